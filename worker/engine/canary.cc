#include "worker/engine/canary.h"

#include <algorithm>
#include <array>
#include <memory>

#include "absl/hash/hash.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/status_macros.h"
#include "common/token_draw.h"
#include "model/logit_row.h"

namespace nacre::worker {
namespace {

constexpr int kMaxCanaryRows = 16;

template <typename T>
absl::string_view BytesOf(absl::Span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()),
          values.size() * sizeof(T)};
}

}  // namespace

absl::StatusOr<bool> Canary::Ask() {
  const model::ModelInfo& info = model_->info();
  const int num_rows = static_cast<int>(std::max<int64_t>(
      1, std::min<int64_t>(
             {kMaxCanaryRows, info.context_length, info.kv_capacity_tokens})));
  // Half of the rows as a prompt's: some models compute those otherwise.
  NACRE_ASSIGN_OR_RETURN(
      const std::unique_ptr<model::Sequence> sequence,
      model_->NewPromptSequence(num_rows / 2, num_rows, /*num_slots=*/0, {}));
  std::array<int32_t, kMaxCanaryRows> token_ids{};
  for (int i = 0; i < num_rows; ++i) token_ids[i] = i % info.vocab_size;
  // The last row's logits depend on all the others.
  model::SequenceRows rows;
  rows.sequence = sequence.get();
  rows.token_ids = absl::MakeConstSpan(token_ids).first(num_rows);
  rows.num_logits = 1;
  const std::array<absl::optional<TokenDraw>, 2> draws = {
      TokenDraw{0, num_rows - 1, 1.0f, info.vocab_size}, absl::nullopt};
  if (model_->draws_tokens() && num_rows > 1) {
    rows.num_logits = 2;
    rows.draws = draws;
  }
  NACRE_ASSIGN_OR_RETURN(const absl::Span<const float> logits,
                         model_->Forward(absl::MakeConstSpan(&rows, 1)));
  absl::Span<const int32_t> drawn;
  if (!rows.draws.empty()) drawn = model_->drawn_tokens();
  if (!model::IsSoundRow(logits.data(), info.vocab_size) ||
      std::find(drawn.begin(), drawn.end(), kUnsoundDraw) != drawn.end()) {
    return false;
  }
  const uint64_t said = absl::HashOf(BytesOf(logits), BytesOf(drawn));
  if (!first_.has_value()) first_ = said;
  return said == *first_;
}

}  // namespace nacre::worker
