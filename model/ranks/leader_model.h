// A model on several nodes as the leader has it: its own ranks, and the
// followers' (follower_model.h), which are told to do whatever it does.
//
// What takes no time waits for the next Forward, so that a step is one message.
// Errors of Forward: also why a follower was lost, from then on.
//
// Thread-compatible, as any LanguageModel. Its sequences must not outlive it.

#ifndef MODEL_RANKS_LEADER_MODEL_H_
#define MODEL_RANKS_LEADER_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/forwarded_model.h"
#include "model/language_model.h"
#include "model/ranks/rank_command.h"

namespace nacre::model {

class LeaderModel : public ForwardedModel<LanguageModel> {
 public:
  // `ranks`: of the leader's node. `followers` outlives the model.
  LeaderModel(std::unique_ptr<LanguageModel> ranks, RankCommandSink* followers);
  ~LeaderModel() override;

  void BindComputeThread() override { ranks_->BindComputeThread(); }
  absl::StatusOr<std::unique_ptr<Sequence>> NewSequence(
      int max_length) override {
    return NewTreeSequence(max_length, 0, {});
  }
  absl::StatusOr<std::unique_ptr<Sequence>> NewSequenceWithPrefix(
      int max_length, absl::Span<const int32_t> token_ids) override {
    return NewTreeSequence(max_length, 0, token_ids);
  }
  absl::StatusOr<std::unique_ptr<Sequence>> NewTreeSequence(
      int max_length, int num_slots,
      absl::Span<const int32_t> token_ids) override;
  absl::StatusOr<absl::Span<const float>> Forward(
      absl::Span<const SequenceRows> batch) override;
  bool draws_tokens() const override { return ranks_->draws_tokens(); }
  absl::Span<const int32_t> drawn_tokens() const override {
    return ranks_->drawn_tokens();
  }
  kernels::FloatView final_hidden() override { return ranks_->final_hidden(); }
  absl::Status SetTaps(absl::Span<const FeatureTap> taps) override {
    return ranks_->SetTaps(taps);
  }
  absl::Span<const float> features(int tap) const override {
    return ranks_->features(tap);
  }

 private:
  class LedSequence;

  // To be sent before the next step. `own`: the leader's sequence, null where
  // it is gone. `tokens`: ids that the command has.
  void Tell(uint64_t sequence, const Sequence* own,
            decltype(RankCommand::what) what, size_t tokens = 0);
  absl::Status Flush();

  const std::unique_ptr<LanguageModel> ranks_;
  RankCommandSink* const followers_;
  uint64_t last_sequence_ = 0;
  std::vector<RankCommand> waiting_;
  size_t waiting_tokens_ = 0;
  std::vector<SequenceRows> batch_;
  absl::Status failure_;  // for good
};

}  // namespace nacre::model

#endif  // MODEL_RANKS_LEADER_MODEL_H_
