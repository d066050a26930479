#include "model/paced_model.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"

namespace nacre::model {
namespace {

// How late an interrupt may be noticed.
constexpr int64_t kSliceNs = 250'000;

}  // namespace

PacedModel::PacedModel(std::unique_ptr<LanguageModel> model, StepTimes times)
    : PacedModel(std::move(model), std::move(times),
                 {MonotonicNs,
                  [](int64_t ns) { absl::SleepFor(absl::Nanoseconds(ns)); }}) {}

PacedModel::PacedModel(std::unique_ptr<LanguageModel> model, StepTimes times,
                       Clock clock)
    : model_(std::move(model)),
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
  absl::StatusOr<absl::Span<const float>> logits = model_->Forward(batch);
  if (logits.ok()) WaitUntil(start_ns + times_.At(std::max(num_rows, 1)));
  return logits;
}

void PacedModel::WaitUntil(int64_t end_ns) {
  while (true) {
    const int64_t rest_ns = end_ns - clock_.now();
    if (rest_ns <= 0 || (interrupt_ && interrupt_())) return;
    clock_.sleep(std::min(rest_ns, kSliceNs));
    ++waited_;
  }
}

}  // namespace nacre::model
