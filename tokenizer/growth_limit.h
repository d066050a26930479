// How many bytes a tokenizer's file may make of a text on its way to the model.
// A file that makes more (a replacement of megabytes, steps that double it)
// would take all memory.

#ifndef TOKENIZER_GROWTH_LIMIT_H_
#define TOKENIZER_GROWTH_LIMIT_H_

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tokenizer/regex.h"
#include "tokenizer/tokenizer.h"

namespace nacre::tokenizer {

// A value.
class GrowthLimit {
 public:
  // Compatibility forms make 13 bytes of one at most: U+FDFA, with the spaces
  // replaced. Something in front of a short text may be longer.
  static constexpr size_t kMaxFactor = 16;
  static constexpr size_t kFree = 4096;
  static constexpr size_t kMaxBytes = 2 * kMaxTextBytes;

  // Of a text of `bytes`. `steps` may be null: each search has its own.
  explicit GrowthLimit(size_t bytes, StepBudget* steps = nullptr)
      : steps_(steps),
        bytes_(bytes),
        most_(std::min(kMaxBytes, bytes * kMaxFactor + kFree)) {}

  size_t most() const { return most_; }
  StepBudget* steps() const { return steps_; }

  // RESOURCE_EXHAUSTED: `what`, which has `bytes` so far, has more than most().
  absl::Status Check(absl::string_view what, size_t bytes) const {
    if (bytes <= most_) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat(what, " of a text of ", bytes_, " bytes has ", bytes,
                     " bytes or more, the limit is ", most_));
  }

 private:
  StepBudget* const steps_;
  const size_t bytes_;
  const size_t most_;
};

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_GROWTH_LIMIT_H_
