// A draft that computes nothing: its steps take the time of its model's, and
// its candidates come from a script. Where all tokens up to a node are the
// target's, the target's token has the rank that the script says.
//
// One thread: its engine's fiber.

#ifndef SIMULATION_SCRIPTED_DRAFTER_H_
#define SIMULATION_SCRIPTED_DRAFTER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/drafter.h"
#include "model/forwarded_model.h"
#include "model/language_model.h"
#include "simulation/script.h"

namespace nacre::simulation {

class ScriptedDrafter final : public model::ForwardedModel<model::Drafter> {
 public:
  // Both outlive it. `ranks`: whether it tells of more than the first
  // candidate.
  ScriptedDrafter(model::LanguageModel* model, Script* script, bool ranks)
      : ForwardedModel(model), script_(script) {
    traits_.ranks_children = ranks;
  }

  const model::DrafterTraits& traits() const override { return traits_; }
  absl::StatusOr<absl::Span<const model::Proposal>> Propose(
      absl::Span<const model::DraftRows> nodes) override;

 private:
  // The rows of all nodes in one forward. Not OK: it did not end.
  absl::Status Forward(absl::Span<const model::DraftRows> nodes);
  // Fills `room`; returns how many children there are.
  size_t Rank(const model::DraftRows& node,
              absl::Span<model::ScoredToken> room);

  Script* const script_;
  model::DrafterTraits traits_;
  // Of the call being made.
  std::vector<int32_t> token_ids_;
  std::vector<model::TreeNode> tree_nodes_;
  std::vector<model::ScoredToken> children_;
  std::vector<model::Proposal> proposals_;
};

}  // namespace nacre::simulation

#endif  // SIMULATION_SCRIPTED_DRAFTER_H_
