#include "speculation/target_text.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace nacre::speculation {

TargetText::TargetText(Limits limits, std::vector<int32_t> committed)
    : limits_(std::move(limits)), committed_(std::move(committed)) {
  NACRE_CHECK(limits_.prompt_length >= 1 && length() >= limits_.prompt_length,
              "a session needs its whole prompt");
  if (remaining() <= 0) {
    finish_ = FinishReason::kLength;
  } else if (generated() > 0) {
    finish_ = EndsWith(committed_.back());
  }
}

void TargetText::Commit(int32_t token_id) {
  committed_.push_back(token_id);
  finish_ = EndsWith(token_id);
  if (finish_ == FinishReason::kNone && remaining() <= 0) {
    finish_ = FinishReason::kLength;
  }
}

void TargetText::CommitInside(absl::Span<const int32_t> token_ids) {
  committed_.insert(committed_.end(), token_ids.begin(), token_ids.end());
}

FinishReason TargetText::EndsWith(int32_t token_id) const {
  const auto contains = [token_id](const std::vector<int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), token_id) != ids.end();
  };
  if (contains(limits_.eos_ids)) return FinishReason::kEos;
  if (contains(limits_.stop_ids)) return FinishReason::kStop;
  return FinishReason::kNone;
}

}  // namespace nacre::speculation
