#include "draft_worker/length_control.h"

#include <array>
#include <utility>

#include "absl/types/optional.h"
#include "common/check.h"
#include "model/distribution.h"

namespace nacre::draft_worker {

using speculation::DraftRow;

LengthControl::LengthControl(std::unique_ptr<speculation::DraftLength> length,
                             int prompt_length, int vocab_limit)
    : length_(std::move(length)),
      needs_(length_->needs()),
      prompt_length_(prompt_length),
      vocab_limit_(vocab_limit) {}

speculation::LengthDecision LengthControl::Decide(
    int position, absl::optional<int32_t> token_id,
    absl::Span<const float> logits, absl::Span<const float> hidden) {
  DraftRow row;
  row.generated = position - prompt_length_;
  if (token_id.has_value()) row.token = speculation::DrawnToken{*token_id};
  if (needs_.draft_hidden) row.draft_hidden = hidden;
  std::array<float, speculation::kTopProbabilities> top;
  if (needs_logits()) {
    const model::Distribution distribution(
        logits.first(static_cast<size_t>(vocab_limit_)));
    if (needs_.entropy) {
      row.entropy = static_cast<float>(distribution.entropy());
    }
    if (needs_.token_probability) {
      NACRE_CHECK(token_id.has_value(), "the probability of a token not drawn");
      row.token->probability =
          static_cast<float>(distribution.Probability(*token_id));
    }
    if (needs_.top_probabilities) {
      distribution.FillTop(absl::MakeSpan(top));
      row.top_probabilities = top;
    }
  }
  return length_->Decide(row);
}

}  // namespace nacre::draft_worker
