// Heads of the world's targets (model/future_heads.h). From the row of logits
// that is their hidden state they know the two tokens before. They take the
// likeliest one after these for what was drawn, and go on so with the table of
// a draft, good or bad. Each says about half of the tokens, which depend on
// the row: so a proposal shows which row it came from.
//
// Thread-compatible.

#ifndef TESTS_SIMULATION_PROTOCOL_SIMULATED_HEADS_H_
#define TESTS_SIMULATION_PROTOCOL_SIMULATED_HEADS_H_

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "model/future_heads.h"
#include "tests/simulation/protocol/simulated_model.h"

namespace nacre::protocol {

class SimulatedHeads final : public model::FutureHeads {
 public:
  static constexpr int kHeads = 3;

  // Both outlive it. `on_run`: called first in every Run, with so many rows.
  SimulatedHeads(const LogitTable* target, const LogitTable* draft,
                 std::function<void(int rows)> on_run = nullptr)
      : target_(target), draft_(draft), on_run_(std::move(on_run)) {}

  int count() const override { return kHeads; }
  absl::Span<const float> Run(absl::Span<const float> hidden) override;

  // Whether that head says this token after these two and the one drawn there.
  bool Says(int head, int32_t before, int32_t last, int32_t token_id);

 private:
  const LogitTable* const target_;
  const LogitTable* const draft_;
  const std::function<void(int rows)> on_run_;
  std::vector<float> logits_;
};

}  // namespace nacre::protocol

#endif  // TESTS_SIMULATION_PROTOCOL_SIMULATED_HEADS_H_
