// A LanguageModel that computes nothing. A forward takes the time that it is
// given for its rows, and the tokens of its draws come from a script.
//
// One thread: its engine's fiber.

#ifndef SIMULATION_SCRIPTED_MODEL_H_
#define SIMULATION_SCRIPTED_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/language_model.h"

namespace nacre::simulation {

class ScriptedModel final : public model::LanguageModel {
 public:
  struct Options {
    // Returns when the time of a forward over so many rows has passed. Not OK:
    // it did not end; ABORTED if `interrupt`, which may be null, said so.
    std::function<absl::Status(int rows,
                               const std::function<bool()>& interrupt)>
        pass;
    // The token that a draw gives; null where nothing draws.
    std::function<int32_t(const TokenDraw& draw)> draw;
    bool is_interruptible = false;
  };
  explicit ScriptedModel(Options options);

  const model::ModelInfo& info() const override { return info_; }
  void BindComputeThread() override {}
  absl::StatusOr<std::unique_ptr<model::Sequence>> NewSequence(
      int max_length) override;
  absl::StatusOr<std::unique_ptr<model::Sequence>> NewTreeSequence(
      int max_length, int num_slots,
      absl::Span<const int32_t> token_ids) override;
  // It has room for everything.
  int64_t kv_free_tokens() const override { return info_.kv_capacity_tokens; }
  void SetInterrupt(std::function<bool()> interrupt) override {
    interrupt_ = std::move(interrupt);
  }
  // Requires that all logits are drawn.
  absl::StatusOr<absl::Span<const float>> Forward(
      absl::Span<const model::SequenceRows> batch) override;
  bool draws_tokens() const override { return true; }
  absl::Span<const int32_t> drawn_tokens() const override { return drawn_; }

 private:
  const Options options_;
  model::ModelInfo info_;
  std::function<bool()> interrupt_;
  std::vector<int32_t> drawn_;
};

}  // namespace nacre::simulation

#endif  // SIMULATION_SCRIPTED_MODEL_H_
