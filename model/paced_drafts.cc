#include "model/paced_drafts.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"

namespace nacre::model {

PaceOfCalls::PaceOfCalls(StepTimes times)
    : PaceOfCalls(std::move(times), {MonotonicNs, [](int64_t ns) {
                                       absl::SleepFor(absl::Nanoseconds(ns));
                                     }}) {}

void PaceOfCalls::End(int64_t start_ns, int rows) const {
  const int64_t end_ns = start_ns + times_.At(std::max(rows, 1));
  // A sleep may end early.
  for (int64_t rest_ns = end_ns - clock_.now(); rest_ns > 0;
       rest_ns = end_ns - clock_.now()) {
    clock_.sleep(rest_ns);
  }
}

absl::Span<const float> PacedHeads::Run(absl::Span<const float> hidden) {
  const int64_t start_ns = pace_.Now();
  const absl::Span<const float> logits = heads_->Run(hidden);
  pace_.End(start_ns, static_cast<int>(hidden.size()) / hidden_size_);
  return logits;
}

absl::StatusOr<absl::Span<const float>> PacedDrafter::Forward(
    absl::Span<const FeatureRows> batch) {
  const int64_t start_ns = pace_.Now();
  absl::StatusOr<absl::Span<const float>> logits = drafter_->Forward(batch);
  if (!logits.ok()) return logits;
  int num_rows = 0;
  for (const FeatureRows& rows : batch) {
    num_rows += static_cast<int>(rows.token_ids.size());
  }
  pace_.End(start_ns, num_rows);
  return logits;
}

}  // namespace nacre::model
