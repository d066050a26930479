// Cutting a text at the matches of a pattern, as they are found.

#ifndef TOKENIZER_TEXT_SPLIT_H_
#define TOKENIZER_TEXT_SPLIT_H_

#include <cstddef>
#include <optional>

#include "absl/status/status.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/regex.h"

namespace nacre::tokenizer {

// Used by one thread.
class TextSplitter {
 public:
  // `take` gets the non-empty pieces, left to right; it must outlive this. Its
  // errors are returned, and nothing may follow.
  TextSplitter(SplitBehavior behavior, bool invert, TakeMatch take)
      : behavior_(behavior), invert_(invert), take_(take) {}

  // The next match: ordered, no overlap.
  absl::Status Add(const TextRange& match);
  // There are no more in the text of `size` bytes.
  absl::Status Finish(size_t size);

 private:
  absl::Status AddPart(const TextRange& part, bool is_match);
  bool Joins(bool is_match) const;
  absl::Status Flush();

  const SplitBehavior behavior_;
  const bool invert_;
  const TakeMatch take_;
  size_t done_ = 0;                 // bytes
  std::optional<TextRange> piece_;  // more may join it
  bool previous_match_ = false;
};

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_TEXT_SPLIT_H_
