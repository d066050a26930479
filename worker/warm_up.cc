#include "worker/warm_up.h"

#include <algorithm>
#include <array>
#include <memory>

#include "absl/types/span.h"
#include "common/status_macros.h"

namespace nacre::worker {
namespace {

constexpr std::array<int, 5> kRows = {1, 2, 4, 8, 16};

}  // namespace

absl::StatusOr<std::vector<StepTime>> WarmUp(model::LanguageModel* model,
                                             const Clock& now_ns) {
  const int64_t room = std::min<int64_t>(model->info().context_length,
                                         model->info().kv_capacity_tokens);
  const int max_rows = static_cast<int>(std::min<int64_t>(kRows.back(), room));
  NACRE_ASSIGN_OR_RETURN(const std::unique_ptr<model::Sequence> sequence,
                         model->NewSequence(std::max(1, max_rows)));
  const std::vector<int32_t> token_ids(kRows.back(), 0);
  const auto forward = [&](int rows) -> absl::StatusOr<int64_t> {
    sequence->Truncate(0);
    const model::SequenceRows batch = {
        sequence.get(), absl::MakeConstSpan(token_ids).subspan(0, rows), rows};
    const int64_t begin_ns = now_ns();
    NACRE_RETURN_IF_ERROR(
        model->Forward(absl::MakeConstSpan(&batch, 1)).status());
    return now_ns() - begin_ns;
  };

  NACRE_RETURN_IF_ERROR(forward(std::max(1, max_rows)).status());
  std::vector<StepTime> times;
  for (const int rows : kRows) {
    if (rows > max_rows) break;
    // Whatever disturbs a step makes it longer: the shortest is the cleanest.
    std::array<int64_t, 5> samples{};
    for (int64_t& sample : samples) {
      NACRE_ASSIGN_OR_RETURN(sample, forward(rows));
    }
    times.push_back({rows, *std::min_element(samples.begin(), samples.end())});
  }
  return times;
}

}  // namespace nacre::worker
