// A model whose forwards take at least as long as those of a given device, by
// waiting. Two workers on one machine then do not fight for one memory, as
// workers on devices of their own do not. So what the services themselves cost
// shows. Not one bit of any output differs.
//
// A forward waits before it computes, for as long as the last one of as many
// rows left over. An interrupt then abandons it as it would abandon a slow one.
// What is left after it has computed it waits then, uninterrupted.
//
// Thread-compatible, as LanguageModel; StopWaiting is for any thread.

#ifndef MODEL_PACED_MODEL_H_
#define MODEL_PACED_MODEL_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "common/step_times.h"
#include "model/forwarded_model.h"
#include "model/language_model.h"

namespace nacre::model {

class PacedModel final : public ForwardedModel<LanguageModel> {
 public:
  // For tests: both in ns.
  struct Clock {
    std::function<int64_t()> now;
    std::function<void(int64_t)> sleep;
  };

  PacedModel(std::unique_ptr<LanguageModel> model, StepTimes times);
  PacedModel(std::unique_ptr<LanguageModel> model, StepTimes times,
             Clock clock);

  // The description says how it is paced.
  const ModelInfo& info() const override { return info_; }
  void BindComputeThread() override { model_->BindComputeThread(); }
  absl::StatusOr<std::unique_ptr<Sequence>> NewSequence(
      int max_length) override {
    return model_->NewSequence(max_length);
  }
  absl::StatusOr<std::unique_ptr<Sequence>> NewPromptSequence(
      int prompt_positions, int max_length, int num_slots,
      absl::Span<const int32_t> token_ids) override {
    return model_->NewPromptSequence(prompt_positions, max_length, num_slots,
                                     token_ids);
  }
  absl::StatusOr<absl::Span<const float>> Forward(
      absl::Span<const SequenceRows> batch) override;
  bool draws_tokens() const override { return model_->draws_tokens(); }
  absl::Span<const int32_t> drawn_tokens() const override {
    return model_->drawn_tokens();
  }
  kernels::FloatView final_hidden() override { return model_->final_hidden(); }
  absl::optional<VocabularyHead> vocabulary_head() const override {
    return model_->vocabulary_head();
  }
  absl::optional<KeptKv> kept_kv() const override { return model_->kept_kv(); }
  const int32_t* KvTable(const Sequence& sequence) override {
    return model_->KvTable(sequence);
  }
  absl::Status SetTaps(absl::Span<const FeatureTap> taps) override {
    return model_->SetTaps(taps);
  }
  absl::Span<const float> features(int tap) const override {
    return model_->features(tap);
  }
  void SetInterrupt(std::function<bool()> interrupt) override {
    interrupt_ = interrupt;
    ForwardedModel::SetInterrupt(std::move(interrupt));
  }
  // No forward waits any more.
  void StopWaiting() { stopped_ = true; }
  uint64_t forward_progress() const override {
    return ForwardedModel::forward_progress() + waited_;
  }

 private:
  // False: interrupted.
  bool WaitUntil(int64_t end_ns, bool may_interrupt);

  const std::unique_ptr<LanguageModel> owned_;  // model_
  const StepTimes times_;
  const Clock clock_;
  ModelInfo info_;
  std::function<bool()> interrupt_;
  // What the last forward of 2^i rows and more, below 2^(i + 1), took to
  // compute.
  std::array<int64_t, 32> computed_ns_ = {};
  std::atomic<uint64_t> waited_ = 0;  // waiting is progress, too
  std::atomic<bool> stopped_ = false;
};

}  // namespace nacre::model

#endif  // MODEL_PACED_MODEL_H_
