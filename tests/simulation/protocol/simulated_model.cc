#include "tests/simulation/protocol/simulated_model.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "model/block_store.h"
#include "tests/testing/draw_token.h"
#include "tests/testing/table_model.h"

namespace nacre::protocol {
namespace {

uint64_t TableSeed(int table) { return 100 + static_cast<uint64_t>(table); }

}  // namespace

Tapped ReadTap(absl::Span<const float> values) {
  Tapped read = {static_cast<int>(values[0]),
                 static_cast<int>(values[1]),
                 {static_cast<int32_t>(values[2]), 0}};
  for (size_t i = 0; i < 4; ++i) {
    read.cell.hash |= static_cast<uint64_t>(values[3 + i]) << 16 * i;
  }
  return read;
}

LogitTable::LogitTable(uint64_t seed, float disturbance, bool adversarial) {
  testing::TableModelOptions options;
  options.vocab_size = kVocabSize;
  options.seed = seed;
  options.disturbance = disturbance;
  options.adversarial = adversarial;
  const testing::TableModel model(options);
  for (int32_t before = -1; before < kVocabSize; ++before) {
    for (int32_t last = -1; last < kVocabSize; ++last) {
      const int32_t tokens[] = {before, last};
      const std::vector<float> row = model.Logits(tokens);
      logits_.insert(logits_.end(), row.begin(), row.end());
    }
  }
}

const LogitTable& LogitTable::Target(int table) {
  return Draft(table, DraftKind::kPerfect);
}

const LogitTable& LogitTable::Draft(int table, DraftKind kind) {
  static const std::vector<LogitTable>& tables = *[] {
    auto* made = new std::vector<LogitTable>();
    for (int i = 0; i < kNumTables; ++i) {
      for (const float disturbance : {0.0f, 0.1f, 0.5f, 3.0f}) {
        made->push_back(LogitTable(TableSeed(i), disturbance, false));
      }
      made->push_back(LogitTable(TableSeed(i), 0.0f, true));
    }
    return made;
  }();
  return tables[static_cast<size_t>(table * kNumDraftKinds +
                                    static_cast<int>(kind))];
}

SimulatedSequence::SimulatedSequence(SimulatedModel* owner, int max_length,
                                     model::BlockPool::Reservation reservation,
                                     int num_slots)
    : BlockSequence(&owner->blocks_, max_length, std::move(reservation),
                    num_slots),
      model_(owner) {
  model_->sequences_.push_back(this);
}

SimulatedSequence::~SimulatedSequence() {
  model_->options_.on_sequence(this, false);
  auto& all = model_->sequences_;
  all.erase(std::find(all.begin(), all.end(), this));
}

void SimulatedSequence::Truncate(int length) {
  dropped_end_ = std::max(dropped_end_, this->length());
  BlockSequence::Truncate(length);
  if (divergence >= this->length()) divergence = kNoDivergence;
}

absl::Status SimulatedSequence::KeepPath(int length,
                                         absl::Span<const int32_t> slots) {
  // What was dropped stood after other tokens.
  if (!slots.empty()) dropped_end_ = 0;
  const int before = this->length();
  absl::Status status = BlockSequence::KeepPath(length, slots);
  model_->options_.on_kept(*this, this->length() - before);
  return status;
}

void SimulatedSequence::Move(absl::Span<const kernels::KvMove> moves) {
  for (const kernels::KvMove& move : moves) {
    model_->cells_[static_cast<size_t>(move.to)] =
        model_->cells_[static_cast<size_t>(move.from)];
  }
}

Cell SimulatedSequence::FeedNode(const model::TreeNode& node,
                                 int32_t token_id) {
  FillSlot(node);
  std::vector<kernels::KvSlot> path;
  AppendPath(node.slot, &path);
  Cell before;  // of the text
  if (path.size() > 1) {
    before = model_->cells_[static_cast<size_t>(path[path.size() - 2])];
  } else {
    before = cell(node.position - 1);
  }
  model_->cells_[static_cast<size_t>(path.back())] = {
      token_id, ExtendHash(before.hash, token_id)};
  return before;
}

model::TakenOver SimulatedSequence::TakeOver(
    absl::Span<const int32_t> token_ids, int most_blocks) {
  const model::TakenOver taken =
      BlockSequence::TakeOver(token_ids, most_blocks);
  if (taken.positions > 0)
    dropped_end_ = 0;  // it was in a block that was given up
  return taken;
}

void SimulatedSequence::Feed(int32_t token_id) {
  const int position = length();
  if (position < std::exchange(dropped_end_, 0) &&
      token(position) == token_id) {
    model_->options_.on_fed_again(*this, position);
  }
  const uint64_t before = hash(position);
  cell(position) = {token_id, ExtendHash(before, token_id)};
  Append(1);
}

// What the KV loses, as KvStore keeps it. A few blocks at a time, so that
// sessions have to ask again.
class SimulatedModel::Store final : public model::BlockStore {
 public:
  Store(int num_blocks, int block_size, std::vector<Cell>* cells,
        int* num_brought)
      : BlockStore(num_blocks, block_size, /*blocks_at_once=*/2),
        block_size_(block_size),
        cells_(cells),
        num_brought_(num_brought),
        kept_(static_cast<size_t>(num_blocks * block_size)) {}

 private:
  void Save(int32_t block, int32_t slot) override {
    std::copy_n(cells_->begin() + block * block_size_, block_size_,
                kept_.begin() + slot * block_size_);
  }
  void Load(int32_t slot, int32_t block) override {
    std::copy_n(kept_.begin() + slot * block_size_, block_size_,
                cells_->begin() + block * block_size_);
    ++*num_brought_;
  }

  const int block_size_;
  std::vector<Cell>* const cells_;
  int* const num_brought_;
  std::vector<Cell> kept_;
};

SimulatedModel::~SimulatedModel() = default;

SimulatedModel::SimulatedModel(Options options)
    : options_(std::move(options)),
      blocks_(
          static_cast<int>(options_.kv_capacity_tokens / options_.block_size),
          options_.block_size, options_.shares_prefixes),
      cells_(static_cast<size_t>(options_.kv_capacity_tokens)) {
  info_.vocab_size = info_.hidden_size = kVocabSize;
  info_.context_length = options_.context_length;
  info_.eos_token_ids = {kEos};
  info_.kv_capacity_tokens = options_.kv_capacity_tokens;
  if (!options_.features_of.empty()) {
    features_ =
        std::make_unique<SimulatedFeatures>(options_.features_of, &fed_);
  }
  if (options_.shares_prefixes && options_.kept_blocks > 0) {
    store_ = std::make_unique<Store>(options_.kept_blocks, options_.block_size,
                                     &cells_, &num_brought_);
    blocks_.set_store(store_.get());
  }
}

absl::StatusOr<std::unique_ptr<model::Sequence>>
SimulatedModel::NewSequenceWithPrefix(int max_length,
                                      absl::Span<const int32_t> token_ids) {
  SessionOnWorker* session = options_.next_session();
  const int size = options_.block_size;
  auto reservation = blocks_.Reserve((max_length + size - 1) / size, token_ids);
  if (!reservation.has_value()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a sequence needs ", max_length, " positions, ",
                     kv_free_tokens(), " are free"));
  }
  return Make(session, max_length, *std::move(reservation), 0);
}

absl::StatusOr<std::unique_ptr<model::Sequence>>
SimulatedModel::NewTreeSequence(int max_length, int num_slots,
                                absl::Span<const int32_t> token_ids) {
  const int needed = model::BlockSequence::NumBlocks(max_length, num_slots,
                                                     options_.block_size);
  if (!options_.has_slots) return absl::InvalidArgumentError("has no slots");
  auto reservation = blocks_.Reserve(needed, token_ids);
  if (!reservation.has_value()) {
    return absl::ResourceExhaustedError("has no room for slots");
  }
  return Make(options_.next_session(), max_length, *std::move(reservation),
              num_slots);
}

absl::StatusOr<std::unique_ptr<model::TargetSequence>>
SimulatedModel::NewTargetSequence(int max_length) {
  return std::make_unique<SimulatedTargetSequence>(*options_.reads, max_length);
}

void SimulatedModel::Read(const model::Sequence& sequence,
                          const model::TargetRowShape& shape, int first,
                          int count, std::vector<float>* rows) {
  const auto& own = static_cast<const SimulatedSequence&>(sequence);
  NACRE_CHECK(first + count <= own.length(), "rows that were not computed");
  rows->clear();
  for (int i = first; i < first + count; ++i) {
    const auto row = RowValues(shape, "", {own.hash(i + 1), i});
    rows->insert(rows->end(), row.begin(), row.end());
  }
}

absl::Status SimulatedModel::SetTaps(absl::Span<const model::FeatureTap> taps) {
  tapped_.resize(taps.size());
  return absl::OkStatus();
}

void SimulatedModel::FillTaps() {
  for (size_t tap = 0; tap < tapped_.size(); ++tap) {
    std::vector<float>& values = tapped_[tap];
    values.clear();
    for (const FedRow& row : fed_) {
      values.push_back(static_cast<float>(tap));
      values.push_back(static_cast<float>(row.position));
      values.push_back(static_cast<float>(row.token_id));
      for (int i = 0; i < 4; ++i) {
        values.push_back(static_cast<float>(row.hash >> 16 * i & 0xFFFF));
      }
      values.push_back(0);
    }
  }
}

void SimulatedModel::LoseWhatIsUnused() {
  const auto all = blocks_.Reserve(blocks_.num_available(), {});
  blocks_.Release(all->blocks);
}

std::unique_ptr<model::Sequence> SimulatedModel::Make(
    SessionOnWorker* session, int max_length,
    model::BlockPool::Reservation reservation, int num_slots) {
  if (store_ != nullptr && ++sequences_made_ % 2 == 0) LoseWhatIsUnused();
  auto sequence = std::make_unique<SimulatedSequence>(
      this, max_length, std::move(reservation), num_slots);
  sequence->session = session;
  options_.on_sequence(sequence.get(), true);
  return sequence;
}

absl::StatusOr<absl::Span<const float>> SimulatedModel::Forward(
    absl::Span<const model::SequenceRows> batch) {
  if (absl::Status status = options_.on_forward(batch); !status.ok()) {
    return status;
  }
  if (options_.is_interruptible && interrupt_ && interrupt_()) {
    options_.on_interrupted(batch);
    return absl::AbortedError("interrupted");
  }
  logits_.clear();
  hidden_.clear();
  drawn_.clear();
  fed_.clear();
  for (const model::SequenceRows& rows : batch) {
    const auto* sequence = static_cast<SimulatedSequence*>(rows.sequence);
    const int positions = static_cast<int>(rows.token_ids.size()) -
                          static_cast<int>(rows.nodes.size());
    const absl::Status nodes =
        sequence->CheckNodes(rows.nodes, sequence->length() + positions);
    if (!nodes.ok()) return nodes;
  }
  for (const model::SequenceRows& rows : batch) {
    auto* sequence = static_cast<SimulatedSequence*>(rows.sequence);
    const int num_rows = static_cast<int>(rows.token_ids.size());
    for (int i = 0; i < num_rows; ++i) {
      const int32_t last = rows.token_ids[i];
      NACRE_CHECK(last >= 0 && last < kVocabSize, "a token id of no token");
      const int node = i - (num_rows - static_cast<int>(rows.nodes.size()));
      int32_t before = -1;
      if (node >= 0) {
        const model::TreeNode& fed = rows.nodes[static_cast<size_t>(node)];
        const Cell parent = sequence->FeedNode(fed, last);
        before = parent.token_id;
        fed_.push_back({ExtendHash(parent.hash, last), fed.position, last});
      } else {
        sequence->Feed(last);
        const int length = sequence->length();
        if (length >= 2) before = sequence->token(length - 2);
        fed_.push_back({sequence->hash(length), length - 1, last});
      }
      if (i < num_rows - rows.num_logits) continue;
      const absl::Span<const float> row = options_.table->Row(before, last);
      hidden_.insert(hidden_.end(), row.begin(), row.end());
      const auto logit_row =
          static_cast<size_t>(i - (num_rows - rows.num_logits));
      if (!rows.draws.empty() && rows.draws[logit_row].has_value()) {
        drawn_.push_back(testing::DrawToken(row, *rows.draws[logit_row]));
      } else {
        logits_.insert(logits_.end(), row.begin(), row.end());
      }
    }
  }
  FillTaps();
  return absl::MakeConstSpan(logits_);
}

}  // namespace nacre::protocol
