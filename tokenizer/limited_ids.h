// The ids of one text as they are found, up to a limit.

#ifndef TOKENIZER_LIMITED_IDS_H_
#define TOKENIZER_LIMITED_IDS_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace nacre::tokenizer {

// Used by one thread.
class LimitedIds {
 public:
  explicit LimitedIds(size_t most) : most_(most) {}

  // OUT_OF_RANGE: the text has more ids than it may.
  absl::Status Add(int32_t id) {
    ids_.push_back(id);
    return ids_.size() <= most_ ? absl::OkStatus() : TooMany();
  }
  absl::Status Add(absl::Span<const int32_t> ids) {
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    return ids_.size() <= most_ ? absl::OkStatus() : TooMany();
  }
  absl::Status TooMany() const {
    return absl::OutOfRangeError(
        absl::StrCat("the text has more than ", most_, " tokens"));
  }
  // So many more may come. Before any error.
  size_t room() const { return most_ - ids_.size(); }

  std::vector<int32_t> Take() { return std::move(ids_); }

 private:
  const size_t most_;
  std::vector<int32_t> ids_;
};

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_LIMITED_IDS_H_
