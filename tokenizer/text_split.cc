#include "tokenizer/text_split.h"

#include "common/status_macros.h"

namespace nacre::tokenizer {

absl::Status TextSplitter::Add(const TextRange& match) {
  if (done_ < match.begin) {
    NACRE_RETURN_IF_ERROR(AddPart({done_, match.begin}, invert_));
  }
  NACRE_RETURN_IF_ERROR(AddPart(match, !invert_));
  done_ = match.end;
  return absl::OkStatus();
}

absl::Status TextSplitter::Finish(size_t size) {
  if (done_ < size) {
    NACRE_RETURN_IF_ERROR(AddPart({done_, size}, invert_));
  }
  return Flush();
}

absl::Status TextSplitter::AddPart(const TextRange& part, bool is_match) {
  const bool joins = piece_.has_value() && Joins(is_match);
  previous_match_ = is_match;
  if (joins) {
    piece_->end = part.end;
    return absl::OkStatus();
  }
  NACRE_RETURN_IF_ERROR(Flush());
  if (!is_match || behavior_ != SplitBehavior::kRemoved) piece_ = part;
  return absl::OkStatus();
}

// Whether a part belongs to the piece of the part before it.
bool TextSplitter::Joins(bool is_match) const {
  switch (behavior_) {
    case SplitBehavior::kRemoved:
    case SplitBehavior::kIsolated:
      return false;
    case SplitBehavior::kContiguous:
      return is_match == previous_match_;
    case SplitBehavior::kMergedWithPrevious:
      return is_match && !previous_match_;
    case SplitBehavior::kMergedWithNext:
      return !is_match && previous_match_;
  }
  return false;
}

absl::Status TextSplitter::Flush() {
  if (!piece_.has_value()) return absl::OkStatus();
  const TextRange piece = *piece_;
  piece_.reset();
  return piece.begin == piece.end ? absl::OkStatus() : take_(piece);
}

}  // namespace nacre::tokenizer
