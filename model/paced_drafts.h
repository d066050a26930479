// What a target drafts from on its own device, at the speed of a given device:
// each call takes at least as long as one there, by waiting. As in
// paced_model.h not one bit of what is said differs.
//
// Thread-compatible: the model's thread.

#ifndef MODEL_PACED_DRAFTS_H_
#define MODEL_PACED_DRAFTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/step_times.h"
#include "model/feature_drafter.h"
#include "model/future_heads.h"

namespace nacre::model {

class PaceOfCalls {
 public:
  // For tests: both in ns.
  struct Clock {
    std::function<int64_t()> now;
    std::function<void(int64_t)> sleep;
  };

  explicit PaceOfCalls(StepTimes times);
  PaceOfCalls(StepTimes times, Clock clock)
      : times_(std::move(times)), clock_(std::move(clock)) {}

  int64_t Now() const { return clock_.now(); }
  // Waits until a call of so many rows, which began at `start_ns`, may end.
  void End(int64_t start_ns, int rows) const;

 private:
  const StepTimes times_;
  const Clock clock_;
};

class PacedHeads final : public FutureHeads {
 public:
  PacedHeads(std::unique_ptr<FutureHeads> heads, int hidden_size,
             PaceOfCalls pace)
      : heads_(std::move(heads)),
        hidden_size_(hidden_size),
        pace_(std::move(pace)) {}

  int count() const override { return heads_->count(); }
  // A row is one hidden state, which all heads see.
  absl::Span<const float> Run(absl::Span<const float> hidden) override;

 private:
  const std::unique_ptr<FutureHeads> heads_;
  const int hidden_size_;
  const PaceOfCalls pace_;
};

class PacedDrafter final : public FeatureDrafter {
 public:
  PacedDrafter(std::unique_ptr<FeatureDrafter> drafter, PaceOfCalls pace)
      : drafter_(std::move(drafter)), pace_(std::move(pace)) {}

  absl::Span<const FeatureTap> taps() const override {
    return drafter_->taps();
  }
  int feature_size() const override { return drafter_->feature_size(); }
  int max_depth() const override { return drafter_->max_depth(); }
  absl::StatusOr<std::unique_ptr<FeatureSequence>> NewSequence(
      int max_length, int num_slots) override {
    return drafter_->NewSequence(max_length, num_slots);
  }
  // The rows of all sequences.
  absl::StatusOr<absl::Span<const float>> Forward(
      absl::Span<const FeatureRows> batch) override;

 private:
  const std::unique_ptr<FeatureDrafter> drafter_;
  const PaceOfCalls pace_;
};

}  // namespace nacre::model

#endif  // MODEL_PACED_DRAFTS_H_
