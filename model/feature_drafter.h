// A draft that continues what the target computes on its way, and says the
// token after those that it is fed. It is of one of two kinds:
//
//   beside features (EAGLE, arXiv:2401.15077, 2503.01840): each token that is
//     text beside the target's features of the position before it. Guesses
//     beside what the draft computed itself
//   over keys and values (GliDe, arXiv:2402.02082): all taps are kKv. A row
//     attends to the target's positions before its own, as many as are there
//
// Thread-compatible: the model's thread.

#ifndef MODEL_FEATURE_DRAFTER_H_
#define MODEL_FEATURE_DRAFTER_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/cross_attention.h"
#include "model/feature_tap.h"
#include "model/language_model.h"

namespace nacre::model {

// What it keeps of one text. Does not outlive its drafter.
class FeatureSequence {
 public:
  virtual ~FeatureSequence() = default;
  // Rows fed that are text.
  virtual int length() const = 0;
  // Forgets all of them.
  virtual void Clear() = 0;
};

// Rows of one sequence: those that are text first, as its rows length() and on,
// then nodes of a tree of guesses, in slots. A node's parent had logits: it is
// the last of the rows that are text (kNoSlot), or another node.
struct FeatureRows {
  FeatureSequence* sequence = nullptr;
  absl::Span<const int32_t> token_ids;
  // Of the rows that are no nodes, [rows, feature_size()]. There may be less:
  // the row after them is given what the draft itself gave for the one before
  // it, as nodes are, and rows after that zeros.
  absl::Span<const float> features;
  absl::Span<const TreeNode> nodes;
  int num_logits = 0;  // of the last rows
  // Over keys and values: what there is of the target's, and where in the text
  // the sequence's first row stands.
  TargetKv target = {};
  int first_position = 0;
  // Where the first of them stands; kNextRow: after all of the sequence. Before
  // that they are computed anew, and those after them are left as they are.
  static constexpr int kNextRow = -1;
  int first_row = kNextRow;
};

class FeatureDrafter {
 public:
  virtual ~FeatureDrafter() = default;

  // What the target has to keep, and how many numbers that is for a row: of the
  // taps in this order. Keys and values it keeps anyway: 0.
  virtual absl::Span<const FeatureTap> taps() const = 0;
  virtual int feature_size() const = 0;
  // How many tokens after the last features it was trained to say.
  virtual int max_depth() const = 0;

  // RESOURCE_EXHAUSTED where its KV cache has no room for so many rows and
  // slots of nodes.
  virtual absl::StatusOr<std::unique_ptr<FeatureSequence>> NewSequence(
      int max_length, int num_slots) = 0;

  // Feeds the rows and returns logits of the target's tokens: [sum of
  // num_logits, vocab_size], valid until the next call. A token that it never
  // drafts has -inf. A row does not depend on other sequences.
  // RESOURCE_EXHAUSTED: there is no room; no sequence has changed its length.
  virtual absl::StatusOr<absl::Span<const float>> Forward(
      absl::Span<const FeatureRows> batch) = 0;
};

}  // namespace nacre::model

#endif  // MODEL_FEATURE_DRAFTER_H_
