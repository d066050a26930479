// A LanguageModel whose logits come from a table that all schedules share
// (computed once by TableModel), and whose sequences can be looked into: what
// was fed at which position, and whether something was fed again in vain.
//
// Its KV is as real as can be: the bookkeeping is that of the real pool
// (model/block_sequence.h), and a position's keys and values are a hash of all
// the tokens up to it. Sequences share blocks, and one that reads a block
// not its own reads what is really there.
//
// Thread-compatible; the tables are immutable once made.

#ifndef TESTS_SIMULATION_PROTOCOL_SIMULATED_MODEL_H_
#define TESTS_SIMULATION_PROTOCOL_SIMULATED_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "model/block_pool.h"
#include "model/block_sequence.h"
#include "model/language_model.h"
#include "model/target_rows.h"
#include "tests/simulation/protocol/schedule.h"
#include "tests/simulation/protocol/simulated_rows.h"

namespace nacre::protocol {

struct SessionOnWorker;

inline constexpr int kNumTables = 4;

// Logits by the last two tokens; -1 is "none".
class LogitTable {
 public:
  // The model of the targets of a schedule, and a draft of it.
  static const LogitTable& Target(int table);
  static const LogitTable& Draft(int table, DraftKind kind);

  absl::Span<const float> Row(int32_t before, int32_t last) const {
    return absl::MakeConstSpan(
        &logits_[static_cast<size_t>(
            ((before + 1) * (kVocabSize + 1) + last + 1) * kVocabSize)],
        kVocabSize);
  }

 private:
  LogitTable(uint64_t seed, float disturbance, bool adversarial);
  std::vector<float> logits_;
};

// A hash of the tokens before a position and of what follows there.
constexpr uint64_t kEmptyHash = 0x243F6A8885A308D3;
inline uint64_t ExtendHash(uint64_t hash, int32_t token_id) {
  hash = (hash ^ static_cast<uint64_t>(token_id + 1)) * 0x9E3779B97F4A7C15;
  return hash ^ (hash >> 29);
}

class SimulatedModel;

inline constexpr int kNoDivergence = 1 << 30;

// The KV of one position: its token and the hash of all up to it.
struct Cell {
  int32_t token_id = -1;
  uint64_t hash = 0;
};

// What a tap shows of a row that was fed.
struct Tapped {
  int tap = 0;
  int position = 0;
  Cell cell;
};
Tapped ReadTap(absl::Span<const float> values);

class SimulatedSequence final : public model::BlockSequence {
 public:
  SimulatedSequence(SimulatedModel* owner, int max_length,
                    model::BlockPool::Reservation reservation, int num_slots);
  ~SimulatedSequence() override;

  void Truncate(int length) override;
  absl::Status KeepPath(int length, absl::Span<const int32_t> slots) override;
  model::TakenOver TakeOver(absl::Span<const int32_t> token_ids,
                            int most_blocks) override;

  const SimulatedModel& model() const { return *model_; }
  // Tokens whose KV is held: [0, length()).
  int32_t token(int position) const { return cell(position).token_id; }
  // The hash of tokens [0, length), as it was when the last of them was fed.
  uint64_t hash(int length) const {
    return length == 0 ? kEmptyHash : cell(length - 1).hash;
  }
  void Feed(int32_t token_id);
  // A node of a tree. Returns what is before it.
  Cell FeedNode(const model::TreeNode& node, int32_t token_id);

  SessionOnWorker* session = nullptr;  // whose it is
  // The first position that is not the target's own token; checks.cc.
  int divergence = kNoDivergence;

 private:
  void Move(absl::Span<const kernels::KvMove> moves) override;
  inline Cell& cell(int position) const;

  SimulatedModel* const model_;
  int dropped_end_ = 0;  // from length() to there it was fed and truncated
};

class SimulatedModel final : public model::LanguageModel,
                             public model::RowReader,
                             public model::RowSource {
 public:
  struct Options {
    const LogitTable* table = nullptr;
    int64_t kv_capacity_tokens = 0;
    int block_size = 0;
    bool shares_prefixes = false;
    int kept_blocks = 0;        // of shared ones, beside the KV; 0: none
    bool draws_tokens = false;  // as a GPU does
    int context_length = 0;
    bool is_interruptible = false;
    bool has_slots = false;  // for rows of trees
    // A draft: it takes rows of its target.
    absl::optional<RowReading> reads = {};
    // A target: it has features for that draft; empty: none.
    std::string features_of = {};
    // Whose the next sequence is: called first in every NewSequence, and in a
    // NewTreeSequence that has room.
    std::function<SessionOnWorker*()> next_session;
    // Called when a sequence has come, and when it is about to go.
    std::function<void(SimulatedSequence*, bool lives)> on_sequence;
    // Called first in every Forward: time passes.
    std::function<absl::Status(absl::Span<const model::SequenceRows>)>
        on_forward;
    // Called when it ends early: none of its rows has been fed.
    std::function<void(absl::Span<const model::SequenceRows>)> on_interrupted;
    // Called before a row is fed: a token that was dropped at that position
    // although it is the one that is fed now.
    std::function<void(const SimulatedSequence&, int position)> on_fed_again;
    // Called when so many slots have become positions.
    std::function<void(const SimulatedSequence&, int count)> on_kept;
  };
  // Numbers of a row at a tap.
  static constexpr int kTapSize = kVocabSize;

  explicit SimulatedModel(Options options);
  ~SimulatedModel() override;

  const std::vector<SimulatedSequence*>& sequences() const {
    return sequences_;
  }

  const model::ModelInfo& info() const override { return info_; }
  void BindComputeThread() override {}
  absl::StatusOr<std::unique_ptr<model::Sequence>> NewSequence(
      int max_length) override {
    return NewSequenceWithPrefix(max_length, {});
  }
  absl::StatusOr<std::unique_ptr<model::Sequence>> NewSequenceWithPrefix(
      int max_length, absl::Span<const int32_t> token_ids) override;
  absl::StatusOr<std::unique_ptr<model::Sequence>> NewTreeSequence(
      int max_length, int num_slots,
      absl::Span<const int32_t> token_ids) override;
  int shared_block_size() const override {
    return options_.shares_prefixes ? options_.block_size : 0;
  }
  int blocks_brought_at_once() const override {
    return blocks_.blocks_brought_at_once();
  }
  // Blocks that were copied from beside the KV cache since the last call.
  int TakeNumBrought() { return std::exchange(num_brought_, 0); }
  int64_t kv_free_tokens() const override {
    return int64_t{blocks_.num_available()} * options_.block_size;
  }
  void SetInterrupt(std::function<bool()> interrupt) override {
    interrupt_ = std::move(interrupt);
  }
  absl::StatusOr<absl::Span<const float>> Forward(
      absl::Span<const model::SequenceRows> batch) override;
  bool draws_tokens() const override { return options_.draws_tokens; }
  absl::Span<const int32_t> drawn_tokens() const override { return drawn_; }
  model::RowReader* row_reader() override {
    return options_.reads.has_value() ? this : nullptr;
  }
  const model::TargetRowShape& shape() const override {
    return options_.reads->shape;
  }
  std::string draft_fingerprint() const override {
    return options_.reads->draft_fingerprint;
  }
  int max_lag() const override { return options_.reads->max_lag; }
  absl::StatusOr<std::unique_ptr<model::TargetSequence>> NewTargetSequence(
      int max_length) override;
  absl::Status Check(const model::TargetRowShape&) const override {
    return absl::OkStatus();
  }
  void Read(const model::Sequence& sequence, const model::TargetRowShape& shape,
            int first, int count, std::vector<float>* rows) override;
  bool reads_features() const {
    return options_.reads.has_value() && options_.reads->shape.is_features();
  }
  // Null: there are none.
  model::FeatureSource* feature_source() { return features_.get(); }
  absl::Status SetTaps(absl::Span<const model::FeatureTap> taps) override;
  absl::Span<const float> features(int tap) const override {
    return tapped_[static_cast<size_t>(tap)];
  }
  const int32_t* KvTable(const model::Sequence& sequence) override {
    return static_cast<const SimulatedSequence&>(sequence).block_table();
  }
  // What is kept there.
  const Cell& CellAt(const int32_t* table, int position) const {
    const int size = options_.block_size;
    return cells_[static_cast<size_t>(table[position / size] * size +
                                      position % size)];
  }
  // The logits of all rows, for want of anything else.
  kernels::FloatView final_hidden() override {
    return kernels::FloatView(hidden_);
  }

 private:
  friend class SimulatedSequence;
  class Store;
  void FillTaps();
  // As if a session had come that needed all room, and gone.
  void LoseWhatIsUnused();
  std::unique_ptr<model::Sequence> Make(
      SessionOnWorker* session, int max_length,
      model::BlockPool::Reservation reservation, int num_slots);

  Options options_;
  model::ModelInfo info_;
  std::function<bool()> interrupt_;
  model::BlockPool blocks_;
  std::vector<Cell> cells_;  // [blocks, block_size]
  std::unique_ptr<Store> store_;
  int num_brought_ = 0;
  int sequences_made_ = 0;
  std::vector<SimulatedSequence*> sequences_;
  std::vector<float> logits_;
  std::vector<float> hidden_;
  std::vector<int32_t> drawn_;
  std::vector<FedRow> fed_;                 // of the last forward
  std::vector<std::vector<float>> tapped_;  // ... by tap
  std::unique_ptr<SimulatedFeatures> features_;
};

Cell& SimulatedSequence::cell(int position) const {
  const int size = model_->options_.block_size;
  return model_->cells_[static_cast<size_t>(
      block_table()[position / size] * size + position % size)];
}

}  // namespace nacre::protocol

#endif  // TESTS_SIMULATION_PROTOCOL_SIMULATED_MODEL_H_
