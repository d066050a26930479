// A causal language model as a drafter. The children of a node are the tokens
// of the largest scores, logit / temperature + noise of their position, in its
// row of logits. A lone child is the token that model::Sampler draws. Where the
// model draws tokens itself, it draws a lone child where the logits are. Logits
// of nodes with several children come to the host, which ranks them.
//
// Several nodes of a sequence must be neighbours in a call. Thread-compatible.

#ifndef MODEL_MODEL_DRAFTER_H_
#define MODEL_MODEL_DRAFTER_H_

#include <vector>

#include "absl/types/optional.h"
#include "common/token_draw.h"
#include "model/drafter.h"
#include "model/forwarded_model.h"

namespace nacre::model {

class ModelDrafter final : public ForwardedModel<Drafter> {
 public:
  explicit ModelDrafter(LanguageModel* model);  // outlives the drafter

  const DrafterTraits& traits() const override { return traits_; }
  absl::StatusOr<absl::Span<const Proposal>> Propose(
      absl::Span<const DraftRows> nodes) override;
  LanguageModel* canary_model() override { return model_; }

 private:
  // How the model draws the node's lone child, or the row that is looked at;
  // absent: its logits are wanted.
  absl::optional<TokenDraw> DrawOf(const DraftRows& node) const;
  // Fills in batch_: the nodes of a sequence are its last rows there.
  void PlanRows(absl::Span<const DraftRows> nodes);
  // One sequence's.
  SequenceRows JoinRows(absl::Span<const DraftRows> nodes, size_t first);
  // Tells the model what follows the step, where that can be told: it then need
  // not wait for the engine between the two.
  void PlanNextDraws(absl::Span<const DraftRows> nodes);
  // What the model drew, or what its logits say. `room`: for the children.
  static void TakeDrawn(int32_t token_id, absl::Span<ScoredToken> room,
                        Proposal* proposal);
  void TakeLogits(const DraftRows& node, absl::Span<const float> logits,
                  absl::Span<ScoredToken> room, Proposal* proposal) const;

  DrafterTraits traits_;
  // Of the call being made.
  std::vector<absl::optional<TokenDraw>> draws_;  // by node
  std::vector<SequenceRows> batch_;
  std::vector<int32_t> token_ids_;  // of all rows, where nodes are in slots
  std::vector<TreeNode> tree_nodes_;
  std::vector<ScoredToken> children_;  // of all nodes
  std::vector<Proposal> proposals_;
  std::vector<float> hidden_copy_;  // of a device's
};

}  // namespace nacre::model

#endif  // MODEL_MODEL_DRAFTER_H_
