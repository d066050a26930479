#include "tests/simulation/protocol/simulated_model.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "tests/testing/table_model.h"

namespace nacre::protocol {
namespace {

uint64_t TableSeed(int table) { return 100 + static_cast<uint64_t>(table); }

}  // namespace

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

SimulatedSequence::SimulatedSequence(SimulatedModel* owner, int max_length)
    : model_(owner), max_length_(max_length) {
  model_->kv_free_tokens_ -= max_length;
  model_->sequences_.push_back(this);
  tokens_.reserve(static_cast<size_t>(max_length));
  hashes_.reserve(static_cast<size_t>(max_length));
}

SimulatedSequence::~SimulatedSequence() {
  model_->options_.on_sequence(this, false);
  model_->kv_free_tokens_ += max_length_;
  auto& all = model_->sequences_;
  all.erase(std::find(all.begin(), all.end(), this));
}

void SimulatedSequence::Truncate(int length) {
  NACRE_CHECK(length >= 0, "truncation to a negative length");
  length_ = std::min(length_, length);
  if (divergence >= length_) divergence = 1 << 30;
}

void SimulatedSequence::Feed(int32_t token_id) {
  if (length_ < static_cast<int>(tokens_.size())) {
    if (tokens_[length_] == token_id) {
      model_->options_.on_fed_again(*this, length_);
    }
    tokens_.resize(static_cast<size_t>(length_));
    hashes_.resize(static_cast<size_t>(length_));
  }
  const uint64_t before = hash(length_);
  tokens_.push_back(token_id);
  hashes_.push_back(ExtendHash(before, token_id));
  ++length_;
}

SimulatedModel::SimulatedModel(Options options)
    : options_(std::move(options)),
      kv_free_tokens_(options_.kv_capacity_tokens) {
  info_.vocab_size = kVocabSize;
  info_.context_length = options_.context_length;
  info_.eos_token_ids = {kEos};
  info_.kv_capacity_tokens = options_.kv_capacity_tokens;
}

absl::StatusOr<std::unique_ptr<model::Sequence>> SimulatedModel::NewSequence(
    int max_length) {
  SessionOnWorker* session = options_.next_session();
  if (max_length > kv_free_tokens_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a sequence needs ", max_length, " positions, ",
                     kv_free_tokens_, " are free"));
  }
  auto sequence = std::make_unique<SimulatedSequence>(this, max_length);
  sequence->session = session;
  options_.on_sequence(sequence.get(), true);
  return sequence;
}

absl::StatusOr<absl::Span<const float>> SimulatedModel::Forward(
    absl::Span<const model::SequenceRows> batch) {
  if (absl::Status status = options_.on_forward(batch); !status.ok()) {
    return status;
  }
  logits_.clear();
  for (const model::SequenceRows& rows : batch) {
    auto* sequence = static_cast<SimulatedSequence*>(rows.sequence);
    const int num_rows = static_cast<int>(rows.token_ids.size());
    NACRE_CHECK(sequence->length_ + num_rows <= sequence->max_length_,
                "a sequence passes its reserved length");
    for (int i = 0; i < num_rows; ++i) {
      const int32_t last = rows.token_ids[i];
      NACRE_CHECK(last >= 0 && last < kVocabSize, "a token id of no token");
      sequence->Feed(last);
      if (i < num_rows - rows.num_logits) continue;
      const int length = sequence->length_;
      const int32_t before = length >= 2 ? sequence->tokens_[length - 2] : -1;
      const absl::Span<const float> row = options_.table->Row(before, last);
      logits_.insert(logits_.end(), row.begin(), row.end());
    }
  }
  return absl::MakeConstSpan(logits_);
}

}  // namespace nacre::protocol
