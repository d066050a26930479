#include "model/paced_model.h"

#include <algorithm>
#include <bit>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"

namespace nacre::model {
namespace {

// How late an interrupt or a stop may be noticed.
constexpr int64_t kSliceNs = 250'000;

}  // namespace

PacedModel::PacedModel(std::unique_ptr<LanguageModel> model, StepTimes times)
    : PacedModel(std::move(model), std::move(times),
                 {MonotonicNs,
                  [](int64_t ns) { absl::SleepFor(absl::Nanoseconds(ns)); }}) {}

PacedModel::PacedModel(std::unique_ptr<LanguageModel> model, StepTimes times,
                       Clock clock)
    : ForwardedModel(model.get()),
      owned_(std::move(model)),
      times_(std::move(times)),
      clock_(std::move(clock)),
      info_(model_->info()) {
  std::string points;
  for (const StepTimes::Point& point : times_.points()) {
    absl::StrAppend(&points, points.empty() ? "" : ",", point.rows, ":",
                    point.ns * 1e-6);
  }
  absl::StrAppend(&info_.description, ", paced to ", points, " ms");
}

absl::StatusOr<absl::Span<const float>> PacedModel::Forward(
    absl::Span<const SequenceRows> batch) {
  const int64_t start_ns = clock_.now();
  int num_rows = 0;
  for (const SequenceRows& rows : batch) {
    num_rows += static_cast<int>(rows.token_ids.size());
  }
  num_rows = std::max(num_rows, 1);
  const int64_t end_ns = start_ns + times_.At(num_rows);
  int64_t& computed_ns =
      computed_ns_[std::bit_width(static_cast<unsigned>(num_rows)) - 1];
  const bool is_known = computed_ns > 0;
  if (is_known && !WaitUntil(end_ns - computed_ns, /*may_interrupt=*/true)) {
    return absl::AbortedError("interrupted");
  }
  const int64_t compute_start_ns = clock_.now();
  absl::StatusOr<absl::Span<const float>> logits = model_->Forward(batch);
  if (!logits.ok()) return logits;
  computed_ns = clock_.now() - compute_start_ns;
  WaitUntil(end_ns, /*may_interrupt=*/false);
  return logits;
}

bool PacedModel::WaitUntil(int64_t end_ns, bool may_interrupt) {
  while (!stopped_) {
    const int64_t rest_ns = end_ns - clock_.now();
    if (rest_ns <= 0) break;
    if (may_interrupt && interrupt_ && interrupt_()) return false;
    clock_.sleep(std::min(rest_ns, kSliceNs));
    ++waited_;
  }
  return true;
}

}  // namespace nacre::model
