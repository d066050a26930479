// The narrow interface that the workers' engines use: sequences of tokens with
// a KV cache in, logits out. Transformer (model/transformer.h) implements it
// over a kernels::Backend; tests implement it with tables.
//
// Thread-compatible: one thread, the engine's, uses a model and its sequences;
// only forward_progress is for any.

#ifndef MODEL_LANGUAGE_MODEL_H_
#define MODEL_LANGUAGE_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "common/token_draw.h"
#include "kernels/float_view.h"
#include "kernels/kv_layer.h"
#include "model/feature_tap.h"
#include "model/target_sequence.h"

namespace nacre::kernels {
class Backend;       // kernels/backend.h
class PackedMatrix;  // kernels/product_ops.h
class PackedTable;   // kernels/product_ops.h
}  // namespace nacre::kernels

namespace nacre::model {

struct ModelInfo {
  int vocab_size = 0;      // rows of the vocabulary head
  int hidden_size = 0;     // of final_hidden(); 0: it shows none
  int num_layers = 0;      // those that taps name; 0: it has no taps
  int context_length = 0;  // most positions a sequence may have
  int even_positions = 0;  // before a row that cost what its products do, or 0
  std::vector<int32_t> eos_token_ids;
  std::string fingerprint;  // SHA-256, hex: config.json and all weights
  std::string target_fingerprint = {};  // that a draft reads; empty: unknown
  std::string numerics_id;              // backend, types, kernel version
  std::string description;  // one line: family, parameters, bytes, KV capacity
  int64_t kv_capacity_tokens = 0;
  std::string unread = {};  // UnreadTensors of its checkpoint, for people
};

// What a sequence has taken over.
struct TakenOver {
  int positions = 0;  // that it is longer now
  int brought = 0;    // of them, copied from where more is kept
  bool more = false;  // more is kept, which no block is left for
  int blocks = 0;     // copied for what was brought

  bool operator==(const TakenOver&) const = default;
};

// The KV cache of one session. Destroying it frees its blocks. Must not outlive
// its model.
class Sequence {
 public:
  virtual ~Sequence() = default;

  // Tokens whose KV is held: positions 0..length()-1.
  virtual int length() const = 0;

  // Forgets positions >= length, and the nodes of the tree that are not below
  // one of the others. Idempotent; no effect if already that short.
  virtual void Truncate(int length) = 0;

  // Room for nodes of a token tree, beside the positions (TreeNode).
  virtual int num_slots() const { return 0; }

  // A path of nodes, from the one after position length - 1 on, becomes
  // positions length and on. Its slots are empty then; the nodes below it stay
  // where they are. Changes nothing where the sequence is already longer than
  // `length`, so it may be repeated. INVALID_ARGUMENT (with the numbers), and
  // nothing changed: a slot that is none or not of that path. Likewise a
  // sequence shorter than `length`, or a path that passes the reserved length.
  virtual absl::Status KeepPath(int length, absl::Span<const int32_t> slots) {
    static_cast<void>(length);
    if (slots.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError("a path of a sequence without slots");
  }

  // Promises that positions 0..token_ids.size()-1 will hold these tokens as
  // long as the sequence lives: their KV may serve other sequences from now on.
  // Call it again as more is settled.
  virtual void Share(absl::Span<const int32_t> token_ids) {
    static_cast<void>(token_ids);
  }

  // Takes over what other sequences have shared meanwhile of these tokens, its
  // own and settled as with Share. They are past length(), and all but the last
  // at most. Of blocks that are kept elsewhere it copies at most `most_blocks`.
  virtual TakenOver TakeOver(absl::Span<const int32_t> token_ids,
                             int most_blocks) {
    static_cast<void>(token_ids);
    static_cast<void>(most_blocks);
    return {};
  }
};

inline constexpr int32_t kNoSlot = -1;

// A row of a token tree. Its keys and values lie in a slot of the sequence and
// not at its position, where nodes beside it stand, too. It attends to its path
// alone: its outputs are the bits of the chain that the path spells.
struct TreeNode {
  int32_t slot = 0;  // that it fills, from 0 to num_slots() - 1
  // The slot of its parent, filled by an earlier row or step. kNoSlot: it is
  // after the sequence's own position - 1.
  int32_t parent = kNoSlot;
  int position = 0;  // its parent's and 1
};

// Rows of one sequence in a ragged batch. The token ids are fed at positions
// sequence->length() and on, the last nodes.size() of them as nodes of a tree.
// The last num_logits of them yield logits.
struct SequenceRows {
  Sequence* sequence = nullptr;
  absl::Span<const int32_t> token_ids;
  int num_logits = 0;
  // How the model draws the tokens of the rows of which only the token is
  // wanted; absent where the logits are. Empty: all logits are. Only of models
  // that draw tokens.                                          [num_logits]
  absl::Span<const absl::optional<TokenDraw>> draws = {};
  // A hint. The next Forward will probably feed only the sequences that have
  // one, in this order. Each then gets just the token drawn of its last row.
  // The token after that of this sequence will be drawn like this. The model
  // may start that step early; no output depends on it. Only where the last row
  // is drawn, so never of a model of the host, and where the sequence has room
  // for the token. The caller then does not ask for final_hidden() of that
  // Forward.
  absl::optional<TokenDraw> next_draw = {};
  // Of the last rows. Not together with next_draw.
  absl::Span<const TreeNode> nodes = {};
  // Of a draft that reads its target: what it can see of that; null: nothing.
  TargetSequence* target = nullptr;
};

// Steps that a model began before they were asked for.
struct QueuedSteps {
  uint64_t used = 0;
  uint64_t dropped = 0;  // something else was asked for
  bool operator==(const QueuedSteps&) const = default;
};

// What makes logits of hidden states after the final norm, and what makes
// hidden states of tokens. It lives as long as its model, and is for the
// model's thread.
struct VocabularyHead {
  kernels::Backend* backend = nullptr;
  const kernels::PackedMatrix* weights = nullptr;  // [vocab_size, hidden_size]
  float soft_cap = 0;                              // of the logits; 0: none
  // [vocab_size, hidden_size]; null: its rows are not used as they are.
  const kernels::PackedTable* embedding = nullptr;
};

// The keys, turned by their positions, and the values that a model's backend
// keeps of all its sequences. They stay where they are as long as the model
// lives, and are for the model's thread.
struct KeptKv {
  // By layer. Where a sequence's positions lie: LanguageModel::KvTable.
  absl::Span<const kernels::KvLayer> layers;
  int num_heads = 0;  // of queries, in each layer
  // Elements of a head stand as in the checkpoint. False: those that turn were
  // put half a head apart.
  bool has_whole_heads = true;
};

class LanguageModel {
 public:
  virtual ~LanguageModel() = default;

  virtual const ModelInfo& info() const = 0;

  // Called once by the engine's thread before its first Forward: pins it.
  virtual void BindComputeThread() = 0;

  // Reserves KV for max_length positions, so that Forward never fails for room.
  // INVALID_ARGUMENT if max_length is over the context length,
  // RESOURCE_EXHAUSTED (with the numbers) if the pool has too few free blocks.
  virtual absl::StatusOr<std::unique_ptr<Sequence>> NewSequence(
      int max_length) = 0;

  // As NewSequence, but the sequence may start with KV of a prefix of token_ids
  // that another one has shared. It is all but one of them at most: length()
  // tells. Outputs are the same bits as without.
  virtual absl::StatusOr<std::unique_ptr<Sequence>> NewSequenceWithPrefix(
      int max_length, absl::Span<const int32_t> token_ids) {
    static_cast<void>(token_ids);
    return NewSequence(max_length);
  }

  // As NewSequenceWithPrefix, with slots for that many nodes of a token tree
  // (0 to kMostSlots). They take room of their own in the KV cache, whole
  // blocks, and do not count as context.
  static constexpr int kMostSlots = 1024;
  virtual absl::StatusOr<std::unique_ptr<Sequence>> NewTreeSequence(
      int max_length, int num_slots, absl::Span<const int32_t> token_ids) {
    if (num_slots == 0) return NewSequenceWithPrefix(max_length, token_ids);
    return absl::InvalidArgumentError("slots of a model that has none");
  }

  // As NewTreeSequence. Rows of the first positions, so many, may have other
  // bits than if they were not among them: the same request must always say the
  // same number, also when it is opened again. Above it is 0.
  virtual absl::StatusOr<std::unique_ptr<Sequence>> NewPromptSequence(
      int /*prompt_positions*/, int max_length, int num_slots,
      absl::Span<const int32_t> token_ids) {
    if (num_slots == 0) return NewSequenceWithPrefix(max_length, token_ids);
    return NewTreeSequence(max_length, num_slots, token_ids);
  }

  // Sequences share full blocks of so many positions; 0: they share nothing.
  virtual int shared_block_size() const { return 0; }
  // How many blocks all sequences together should copy in TakeOver between two
  // steps. 0: nothing is kept beside the KV cache.
  virtual int blocks_brought_at_once() const { return 0; }

  // Positions that no sequence has reserved.
  virtual int64_t kv_free_tokens() const = 0;

  // Runs the rows of all sequences as one batch and appends their KV, or keeps
  // it in the nodes' slots. Returns logits [sum of num_logits less the draws,
  // vocab_size] in batch order, valid until the next call. A row's logits do
  // not depend on what else is in the batch. A sequence appears at most once.
  // Errors: INTERNAL from the device, RESOURCE_EXHAUSTED where it or the host
  // has no room. Then no sequence has changed its length, and slots that were
  // to be filled are empty. INVALID_ARGUMENT (with the value and the limit) for
  // a token id outside the vocabulary, and for nodes outside the context or
  // that TreeSlots::CheckNodes refuses. Then nothing has changed.
  virtual absl::StatusOr<absl::Span<const float>> Forward(
      absl::Span<const SequenceRows> batch) = 0;

  // Whether rows may have draws: where logits would have to cross a bus.
  virtual bool draws_tokens() const { return false; }
  // The tokens of the last Forward's draws in batch order, valid until the next
  // call. They are those that model::Sampler would have drawn from the logits,
  // or kUnsoundDraw.
  virtual absl::Span<const int32_t> drawn_tokens() const { return {}; }
  // What came of next_draws so far. A model that draws nothing begins nothing.
  virtual QueuedSteps queued_steps() const { return {}; }

  // The hidden states that the last Forward's logits come from, after the final
  // norm, in batch order: [sum of num_logits, hidden_size]. Valid until the
  // next call. Empty where the model shows none.
  virtual kernels::FloatView final_hidden() { return {}; }
  // For heads over the same hidden states. Absent where the model shows none.
  virtual absl::optional<VocabularyHead> vocabulary_head() const {
    return absl::nullopt;
  }

  // From now on each Forward keeps what it computes at these taps, of all its
  // rows. INVALID_ARGUMENT for a layer that the model does not have;
  // UNIMPLEMENTED where it keeps no such features.
  virtual absl::Status SetTaps(absl::Span<const FeatureTap> taps) {
    static_cast<void>(taps);
    return absl::UnimplementedError("a model that keeps no features");
  }
  // Of one of the taps by its index, [rows, hidden_size] of all rows of the
  // last Forward in batch order, those without logits, too. Valid until the
  // next call. Empty where that Forward failed.
  virtual absl::Span<const float> features(int tap) const {
    static_cast<void>(tap);
    return {};
  }

  // For drafts that attend to what it has kept. Absent where it shows none.
  virtual absl::optional<KeptKv> kept_kv() const { return absl::nullopt; }
  // As RowContext::block_table: where KeptKv has positions 0..length()-1 of one
  // of its sequences, paths that were kept included. Valid until the sequence
  // changes or the next Forward. Null where the model shows none.
  virtual const int32_t* KvTable(const Sequence& sequence) {
    static_cast<void>(sequence);
    return nullptr;
  }

  // Of a draft that attends to its target's keys and values; null: it does not.
  virtual RowReader* row_reader() { return nullptr; }

  // Asked on its thread by a Forward that is under way, between layers. True
  // ends it with ABORTED, and no sequence has changed its length. Null: it asks
  // nothing. A model whose device has all of a forward queued may leave it out.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): others keep it.
  virtual void SetInterrupt(std::function<bool()> interrupt) {
    static_cast<void>(interrupt);
  }

  // Rises as a Forward finishes layers: a slow one is not a hung one. Any
  // thread may ask.
  virtual uint64_t forward_progress() const { return 0; }
};

}  // namespace nacre::model

#endif  // MODEL_LANGUAGE_MODEL_H_
