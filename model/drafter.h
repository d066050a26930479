// What proposes tokens for the target to verify. It is a model of its own
// (model_drafter.h), heads over the target's features, or tables of what was
// said before. The engine that drafts owns the sessions, their tokens and how
// each is sampled; a drafter owns what it drafts with: weights, KV, tables.
//
// Thread-compatible: one thread, the engine's, uses a drafter and its
// sequences; only forward_progress is for any.

#ifndef MODEL_DRAFTER_H_
#define MODEL_DRAFTER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "model/feature_tap.h"
#include "model/language_model.h"
#include "model/sampler.h"

namespace nacre::model {

// What a drafter is, for good.
struct DrafterTraits {
  // Of the target, in this order; empty: it needs nothing of the target.
  std::vector<FeatureTap> features = {};
  // Positions beyond its newest features that it was trained to draft for.
  int max_lag = 0;
  // Tokens in a row that one call drafts below a node. 1: its children.
  int tokens_per_call = 1;
  // Whether a proposal can show the logits that its children come from.
  // Policies that read them, the ratio test and recordings need it.
  bool shows_logits = false;
  // Whether it can propose up to kMaxCandidates children, with their scores.
  bool ranks_children = false;
  // Whether a lone child costs less than ranked ones: it is drawn where its
  // logits are, which then stay there.
  bool draws_alone = false;
  // Whether a chain should ask for all candidates: they tell the rank of the
  // target's token.
  bool ranks_chains() const { return ranks_children && !draws_alone; }
};

// One node to expand: rows of its sequence that are not fed yet, the last of
// which is the node's token. Nodes of one sequence follow each other in a call,
// those that lie in slots last.
struct DraftRows {
  Sequence* sequence = nullptr;
  absl::Span<const int32_t> token_ids;  // fed at sequence->length() and on
  // Where it lies in a slot: then token_ids is its token alone.
  absl::optional<TreeNode> node = {};
  // Most children to propose. 0: none; the rows fill the KV, and their last one
  // is only looked at.
  int max_children = 0;  // at most kMaxCandidates
  // How children are ranked: by the noise of their position, and with the
  // tokens up to the node. Set where there may be children.
  Sampler* sampler = nullptr;
  TokenHistory* history = nullptr;
  // Tokens that lead from there to the node, it included, where `history` ends
  // before. It is as it was after the call.
  absl::Span<const int32_t> path = {};
  // What the caller reads besides. Logits: only if traits().shows_logits.
  bool shows_logits = false;
  bool shows_hidden = false;
  // A hint: the next call will probably expand the first child of every node
  // with this mark, in this order and nothing else. The drafter may start it
  // early; no output depends on it.
  bool goes_on = false;
  // Of a drafter that reads its target's keys and values: what it can see of
  // them. The same for all nodes of a sequence.
  TargetSequence* target = nullptr;
};

// What one call says of one node.
struct Proposal {
  // The likeliest first; fewer than asked for, or none, where it knows no more.
  absl::Span<const ScoredToken> children;
  // False: no sound computation gives this. There are no children then.
  bool is_sound = true;
  absl::Span<const float> logits;  // [vocab_size] if shows_logits
  absl::Span<const float> hidden;  // [hidden_size] if shows_hidden
};

class Drafter {
 public:
  virtual ~Drafter() = default;

  virtual const DrafterTraits& traits() const = 0;
  // Its vocabulary, context and fingerprint. hidden_size: of Proposal::hidden.
  virtual const ModelInfo& info() const = 0;

  // As of LanguageModel. Sequences do not outlive the drafter.
  virtual absl::StatusOr<std::unique_ptr<Sequence>> NewSequenceWithPrefix(
      int max_length, absl::Span<const int32_t> token_ids) = 0;
  virtual absl::StatusOr<std::unique_ptr<Sequence>> NewTreeSequence(
      int max_length, int num_slots, absl::Span<const int32_t> token_ids) {
    if (num_slots == 0) return NewSequenceWithPrefix(max_length, token_ids);
    return absl::InvalidArgumentError("slots of a drafter that has none");
  }
  // As of LanguageModel.
  virtual RowReader* row_reader() { return nullptr; }
  virtual int shared_block_size() const { return 0; }
  virtual int blocks_brought_at_once() const { return 0; }
  virtual int64_t kv_free_tokens() const = 0;
  virtual QueuedSteps queued_steps() const { return {}; }
  // NOLINTNEXTLINE(performance-unnecessary-value-param): others keep it.
  virtual void SetInterrupt(std::function<bool()> interrupt) {
    static_cast<void>(interrupt);
  }
  virtual uint64_t forward_progress() const { return 0; }

  // Expands all nodes in one call, of any number of sequences, and appends the
  // KV of their rows, or keeps it in their slots. Returns a proposal for each
  // in their order, valid until the next call. What it says of a node does not
  // depend on the others. Errors: ABORTED when interrupted, and those of
  // LanguageModel::Forward, with what they leave of sequences and slots.
  virtual absl::StatusOr<absl::Span<const Proposal>> Propose(
      absl::Span<const DraftRows> nodes) = 0;

  // The model that all of it comes from, for a canary to ask whether the device
  // computes rightly; null: there is none to ask.
  virtual LanguageModel* canary_model() { return nullptr; }
};

}  // namespace nacre::model

#endif  // MODEL_DRAFTER_H_
