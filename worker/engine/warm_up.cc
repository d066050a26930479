#include "worker/engine/warm_up.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/status_macros.h"
#include "model/first_forward.h"
#include "model/sampler.h"

namespace nacre::worker {
namespace {

constexpr std::array<int, 5> kRows = {1, 2, 4, 8, 16};

// The steps that are measured, all of one sequence.
class WarmUpSteps {
 public:
  WarmUpSteps(model::LanguageModel* model, model::Sequence* sequence,
              RowUse use)
      : model_(model),
        sequence_(sequence),
        use_(use),
        token_ids_(kRows.back(), 0),
        sampler_(AtRandom(), model->info().vocab_size) {
    if (model->draws_tokens()) {
      draws_.assign(kRows.back(),
                    TokenDraw{0, 0, 1.0f, model->info().vocab_size});
    }
  }

  // What some drafts have no row for is the first token of a text: it is fed
  // before what is measured.
  absl::Status Begin() {
    NACRE_RETURN_IF_ERROR(Forward(1, {}).status());
    num_before_ = 1;
    return absl::OkStatus();
  }
  // `target`: what rows can see; null: nothing.
  absl::StatusOr<absl::Span<const float>> WithLogits(
      int rows, model::TargetSequence* target) {
    return Forward(rows, {}, target);
  }
  // As steps mostly are: what the model can draw is not copied.
  absl::Status Run(int rows) {
    const bool is_drawn =
        !draws_.empty() && (use_ == RowUse::kDrawn || rows == 1);
    if (is_drawn) {
      return Forward(rows, absl::MakeConstSpan(draws_).subspan(0, rows))
          .status();
    }
    NACRE_ASSIGN_OR_RETURN(const absl::Span<const float> logits,
                           Forward(rows, {}));
    if (use_ == RowUse::kRanked) Rank(rows, logits);
    return absl::OkStatus();
  }

 private:
  static SamplingParams AtRandom() {
    SamplingParams params;
    params.temperature = 1.0f;
    return params;
  }
  absl::StatusOr<absl::Span<const float>> Forward(
      int rows, absl::Span<const absl::optional<TokenDraw>> draws,
      model::TargetSequence* target = nullptr) {
    sequence_->Truncate(num_before_);
    const model::SequenceRows batch = {
        .sequence = sequence_,
        .token_ids = absl::MakeConstSpan(token_ids_).subspan(0, rows),
        .num_logits = rows,
        .draws = draws,
        .target = target};
    return model_->Forward(absl::MakeConstSpan(&batch, 1));
  }
  void Rank(int rows, absl::Span<const float> logits) {
    const auto vocab_size = static_cast<size_t>(model_->info().vocab_size);
    std::array<model::ScoredToken, model::kMaxCandidates> best;
    for (int i = 0; i < rows; ++i) {
      sampler_.Rank(
          logits.subspan(static_cast<size_t>(i) * vocab_size, vocab_size),
          i + 1, history_, absl::MakeSpan(best));
    }
  }

  model::LanguageModel* const model_;
  model::Sequence* const sequence_;
  const RowUse use_;
  int num_before_ = 0;
  const std::vector<int32_t> token_ids_;
  std::vector<absl::optional<TokenDraw>> draws_;
  model::Sampler sampler_;
  const model::TokenHistory history_{0};
};

// Keys and values for a draft that attends to its target's, without which the
// weights for that would give nothing. Null for other models.
absl::StatusOr<std::unique_ptr<model::TargetSequence>> MadeUpTarget(
    model::LanguageModel* model, int rows) {
  model::RowReader* const reader = model->row_reader();
  if (reader == nullptr || reader->shape().is_features()) return nullptr;
  NACRE_ASSIGN_OR_RETURN(auto target, reader->NewTargetSequence(rows));
  target->Append(
      std::vector<float>(static_cast<size_t>(rows) *
                             static_cast<size_t>(reader->shape().row_size()),
                         1.0f));
  return target;
}

}  // namespace

absl::StatusOr<std::vector<StepTime>> WarmUp(model::LanguageModel* model,
                                             const Clock& now_ns, RowUse use) {
  const int64_t room = std::min<int64_t>(model->info().context_length,
                                         model->info().kv_capacity_tokens);
  const bool begins_later = model->row_reader() != nullptr &&
                            model->row_reader()->shape().is_features();
  const int before = begins_later ? 1 : 0;
  const int max_rows =
      static_cast<int>(std::min<int64_t>(kRows.back(), room - before));
  NACRE_ASSIGN_OR_RETURN(const std::unique_ptr<model::Sequence> sequence,
                         model->NewSequence(std::max(1, max_rows) + before));
  WarmUpSteps steps(model, sequence.get(), use);
  if (begins_later) NACRE_RETURN_IF_ERROR(steps.Begin());

  // Also the canary: a device that cannot do this serves no session.
  const int canary_rows = std::max(1, max_rows);
  NACRE_ASSIGN_OR_RETURN(std::unique_ptr<model::TargetSequence> target,
                         MadeUpTarget(model, canary_rows));
  NACRE_ASSIGN_OR_RETURN(const absl::Span<const float> logits,
                         steps.WithLogits(canary_rows, target.get()));
  target.reset();
  NACRE_RETURN_IF_ERROR(model::CheckNumbers(logits, model->info().vocab_size));
  std::vector<StepTime> times;
  for (const int rows : kRows) {
    if (rows > max_rows) break;
    // Whatever disturbs a step makes it longer: the shortest is the cleanest.
    std::array<int64_t, 5> samples{};
    for (int64_t& sample : samples) {
      const int64_t begin_ns = now_ns();
      NACRE_RETURN_IF_ERROR(steps.Run(rows));
      sample = now_ns() - begin_ns;
    }
    times.push_back({rows, *std::min_element(samples.begin(), samples.end())});
  }
  return times;
}

}  // namespace nacre::worker
