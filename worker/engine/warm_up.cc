#include "worker/engine/warm_up.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/status_macros.h"

namespace nacre::worker {
namespace {

constexpr std::array<int, 5> kRows = {1, 2, 4, 8, 16};

absl::Status CheckFinite(absl::Span<const float> logits, int vocab_size) {
  const auto bad = std::find_if(logits.begin(), logits.end(),
                                [](float x) { return !std::isfinite(x); });
  if (bad == logits.end()) return absl::OkStatus();
  const ptrdiff_t index = bad - logits.begin();
  return absl::DataLossError(absl::StrCat(
      "the first forward gave no numbers: row ", index / vocab_size,
      ", token id ", index % vocab_size, " has the logit ", *bad,
      ": the weights are damaged, or the device computes wrongly"));
}

}  // namespace

absl::StatusOr<std::vector<StepTime>> WarmUp(model::LanguageModel* model,
                                             const Clock& now_ns) {
  const int64_t room = std::min<int64_t>(model->info().context_length,
                                         model->info().kv_capacity_tokens);
  const int max_rows = static_cast<int>(std::min<int64_t>(kRows.back(), room));
  NACRE_ASSIGN_OR_RETURN(const std::unique_ptr<model::Sequence> sequence,
                         model->NewSequence(std::max(1, max_rows)));
  const std::vector<int32_t> token_ids(kRows.back(), 0);
  const auto forward = [&](int rows,
                           absl::Span<const absl::optional<TokenDraw>> draws) {
    sequence->Truncate(0);
    const model::SequenceRows batch = {
        sequence.get(), absl::MakeConstSpan(token_ids).subspan(0, rows), rows,
        draws};
    return model->Forward(absl::MakeConstSpan(&batch, 1));
  };
  // Steps as they mostly are: what the model can draw is not copied.
  const TokenDraw sampled = {0, 0, 1.0f, model->info().vocab_size};
  const std::vector<absl::optional<TokenDraw>> draws(
      model->draws_tokens() ? kRows.back() : 0, sampled);
  const auto measure = [&](int rows) -> absl::StatusOr<int64_t> {
    const int64_t begin_ns = now_ns();
    NACRE_RETURN_IF_ERROR(
        forward(rows, absl::MakeConstSpan(draws).subspan(0, rows)).status());
    return now_ns() - begin_ns;
  };

  // Also the canary: a device that cannot do this serves no session.
  NACRE_ASSIGN_OR_RETURN(const absl::Span<const float> logits,
                         forward(std::max(1, max_rows), {}));
  NACRE_RETURN_IF_ERROR(CheckFinite(logits, model->info().vocab_size));
  std::vector<StepTime> times;
  for (const int rows : kRows) {
    if (rows > max_rows) break;
    // Whatever disturbs a step makes it longer: the shortest is the cleanest.
    std::array<int64_t, 5> samples{};
    for (int64_t& sample : samples) {
      NACRE_ASSIGN_OR_RETURN(sample, measure(rows));
    }
    times.push_back({rows, *std::min_element(samples.begin(), samples.end())});
  }
  return times;
}

}  // namespace nacre::worker
