// A LanguageModel for tests without weights or kernels: logits are a pure
// function of the last two tokens and a seed, for a vocabulary of 16.
//
// A pair for speculation: give target and draft the same `seed`. The draft's
// `disturbance` 0 makes it equal to the target; 0.1 lets 82 % of its greedy
// tokens agree, 0.5 42 %, 3 18 %; `adversarial` makes it prefer what the target
// likes least.
//
// It keeps the contract strictly: Forward past the reserved length, with a
// sequence twice or a foreign one is fatal. It begins no step early, but counts
// those that it could have.
//
// Thread-compatible; any thread may read the atomic counters.

#ifndef TESTS_TESTING_TABLE_MODEL_H_
#define TESTS_TESTING_TABLE_MODEL_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/check.h"
#include "common/philox.h"
#include "model/language_model.h"
#include "tests/testing/draw_token.h"
#include "tests/testing/next_draws.h"
#include "tests/testing/table_model_options.h"
#include "tests/testing/table_sequence.h"
#include "tests/testing/target_table.h"

namespace nacre::testing {

class TableModel : public model::LanguageModel, private model::RowReader {
 public:
  explicit TableModel(TableModelOptions options)
      : options_(std::move(options)),
        room_{.kv_free_tokens = options_.kv_capacity_tokens,
              .on_take_over = options_.on_take_over} {
    info_.vocab_size = options_.vocab_size;
    info_.hidden_size = options_.shows_hidden ? options_.vocab_size : 0;
    info_.num_layers = options_.shows_hidden ? 4 : 0;
    info_.context_length = options_.context_length;
    info_.eos_token_ids = options_.eos_token_ids;
    info_.fingerprint =
        absl::StrCat("table-", options_.seed, "-", options_.disturbance, "-",
                     options_.adversarial ? "adversarial" : "plain");
    info_.numerics_id = "table-v1";
    info_.description = "table model of the tests";
    info_.kv_capacity_tokens = options_.kv_capacity_tokens;
  }

  // The logits [vocab_size] that follow `tokens` (only the last two count).
  std::vector<float> Logits(absl::Span<const int32_t> tokens) const {
    const size_t n = tokens.size();
    const int32_t last = n >= 1 ? tokens[n - 1] : -1;
    const int32_t before = n >= 2 ? tokens[n - 2] : -1;
    std::vector<float> logits(static_cast<size_t>(options_.vocab_size));
    for (int id = 0; id < options_.vocab_size; ++id) {
      float logit = Uniform(options_.seed, before, last, id);
      if (options_.disturbance != 0.0f) {
        logit += options_.disturbance *
                 Uniform(options_.disturbance_seed, before, last, id);
      }
      logits[static_cast<size_t>(id)] =
          (options_.adversarial ? -1.0f : 1.0f) * options_.scale * logit;
    }
    return logits;
  }

  // What was asked of the model so far.
  int64_t num_forwards() const { return num_forwards_; }
  int64_t num_rows() const { return num_rows_; }
  int64_t num_logit_rows() const { return num_logit_rows_; }
  int64_t num_draws() const { return num_draws_; }
  int num_sequences() const { return room_.num_sequences; }
  int most_shared() const { return room_.most_shared; }
  bool compute_thread_bound() const { return compute_thread_bound_; }

  const model::ModelInfo& info() const override { return info_; }
  void BindComputeThread() override { compute_thread_bound_ = true; }
  int64_t kv_free_tokens() const override { return room_.kv_free_tokens; }

  absl::StatusOr<std::unique_ptr<model::Sequence>> NewSequence(
      int max_length) override {
    return NewTreeSequence(max_length, 0, {});
  }
  // Slots count as that many positions.
  absl::StatusOr<std::unique_ptr<model::Sequence>> NewTreeSequence(
      int max_length, int num_slots, absl::Span<const int32_t>) override {
    if (max_length < 1 || max_length > options_.context_length) {
      return absl::InvalidArgumentError(
          absl::StrCat("a sequence of ", max_length,
                       " positions is outside 1 to ", options_.context_length));
    }
    if (max_length + num_slots > room_.kv_free_tokens) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "a sequence needs ", max_length + num_slots, " positions, ",
          room_.kv_free_tokens.load(), " are free"));
    }
    return std::make_unique<TableSequence>(&room_, max_length, num_slots);
  }

  model::RowReader* row_reader() override {
    return options_.reads_target.has_value() ? this : nullptr;
  }
  const model::TargetRowShape& shape() const override {
    return *options_.reads_target;
  }
  std::string draft_fingerprint() const override {
    return options_.reads_target->is_features() ? info_.fingerprint : "";
  }
  int max_lag() const override {
    return options_.reads_target->is_features() ? options_.max_lag : kAnyLag;
  }
  // RESOURCE_EXHAUSTED where a sequence would find no room.
  absl::StatusOr<std::unique_ptr<model::TargetSequence>> NewTargetSequence(
      int max_length) override {
    if (max_length > room_.kv_free_tokens) {
      return absl::ResourceExhaustedError("no room for rows of a target");
    }
    return std::make_unique<TargetTable>(options_.reads_target->row_size(),
                                         options_.reads_target->is_features());
  }

  kernels::FloatView final_hidden() override {
    NACRE_CHECK(next_.empty(), "hidden states of a step with next draws");
    if (!options_.shows_hidden) return {};
    return kernels::FloatView(hidden_);
  }
  // Each row's tap says where the row stands and what was fed there.
  absl::Status SetTaps(absl::Span<const model::FeatureTap> taps) override {
    keeps_features_ = !taps.empty();
    return options_.shows_hidden
               ? absl::OkStatus()
               : absl::UnimplementedError("a table that shows nothing");
  }
  absl::Span<const float> features(int) const override { return features_; }
  bool draws_tokens() const override { return options_.draws_tokens; }
  absl::Span<const int32_t> drawn_tokens() const override { return drawn_; }
  model::QueuedSteps queued_steps() const override { return next_.counts(); }

  void SetInterrupt(std::function<bool()> interrupt) override {
    interrupt_ = std::move(interrupt);
  }

  absl::StatusOr<absl::Span<const float>> Forward(
      absl::Span<const model::SequenceRows> batch) override {
    int num_rows = 0;
    for (const model::SequenceRows& rows : batch) {
      num_rows += static_cast<int>(rows.token_ids.size());
    }
    if (options_.on_forward) {
      if (absl::Status status = options_.on_forward(num_rows); !status.ok()) {
        return status;
      }
    }
    if (options_.is_interruptible && interrupt_ && interrupt_()) {
      return absl::AbortedError("interrupted");
    }
    for (size_t i = 0; i < batch.size(); ++i) CheckRows(batch, i);
    for (const model::SequenceRows& rows : batch) {
      for (const int32_t id : rows.token_ids) {
        if (id < 0 || id >= options_.vocab_size) {
          return absl::InvalidArgumentError(
              absl::StrCat("token id ", id, " is outside the vocabulary of ",
                           options_.vocab_size));
        }
      }
      const auto* sequence = static_cast<TableSequence*>(rows.sequence);
      const absl::Status status = sequence->slots.CheckNodes(
          rows.nodes, sequence->length() + NumPositions(rows));
      if (!status.ok()) return status;
    }
    next_.Count(
        batch, [](const model::Sequence* sequence) -> auto& {
          return static_cast<const TableSequence*>(sequence)->tokens;
        });
    logits_.clear();
    hidden_.clear();
    features_.clear();
    drawn_.clear();
    for (const model::SequenceRows& rows : batch) {
      if (options_.on_sequence) options_.on_sequence(rows);
      auto* const sequence = static_cast<TableSequence*>(rows.sequence);
      std::vector<int32_t>& chain = sequence->tokens;
      const size_t first_node = static_cast<size_t>(NumPositions(rows));
      const size_t first_logits =
          rows.token_ids.size() - static_cast<size_t>(rows.num_logits);
      for (size_t i = 0; i < rows.token_ids.size(); ++i) {
        std::vector<int32_t> path;  // of a node
        if (i < first_node) {
          chain.push_back(rows.token_ids[i]);
        } else {
          path = sequence->Fill(rows.nodes[i - first_node], rows.token_ids[i]);
        }
        const std::vector<int32_t>& tokens = i < first_node ? chain : path;
        if (keeps_features_) KeepFeatures(tokens);
        if (i < first_logits) continue;
        std::vector<float> row = Logits(tokens);
        if (options_.on_row) options_.on_row(tokens, &row);
        hidden_.insert(hidden_.end(), row.begin(), row.end());
        if (!rows.draws.empty() && rows.draws[i - first_logits].has_value()) {
          drawn_.push_back(DrawToken(row, *rows.draws[i - first_logits]));
          ++num_draws_;
        } else {
          logits_.insert(logits_.end(), row.begin(), row.end());
          ++num_logit_rows_;
        }
      }
      next_.Note(rows, chain, drawn_);
    }
    ++num_forwards_;
    num_rows_ += num_rows;
    return absl::MakeConstSpan(logits_);
  }

 private:
  // Rows that are fed at positions, before the nodes.
  static int NumPositions(const model::SequenceRows& rows) {
    return static_cast<int>(rows.token_ids.size()) -
           static_cast<int>(rows.nodes.size());
  }

  void KeepFeatures(const std::vector<int32_t>& tokens) {
    const size_t begin = features_.size();
    features_.resize(begin + static_cast<size_t>(info_.hidden_size));
    features_[begin] = static_cast<float>(tokens.size() - 1);
    features_[begin + 1] = static_cast<float>(tokens.back());
  }

  // A number in [-1, 1) of (seed, two tokens, id).
  static float Uniform(uint64_t seed, int32_t before, int32_t last,
                       int32_t id) {
    const PhiloxBlock block = Philox4x32(
        {static_cast<uint32_t>(before), static_cast<uint32_t>(last),
         static_cast<uint32_t>(id), 0},
        {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
    return static_cast<float>(block[0] >> 8) * 0x1p-23f - 1.0f;
  }

  void CheckRows(absl::Span<const model::SequenceRows> batch, size_t index) {
    const model::SequenceRows& rows = batch[index];
    NACRE_CHECK(rows.sequence != nullptr, "rows without a sequence");
    const auto* sequence = static_cast<TableSequence*>(rows.sequence);
    NACRE_CHECK(sequence->room == &room_, "the sequence is not of this model");
    const int count = static_cast<int>(rows.token_ids.size());
    NACRE_CHECK(count > 0, "a sequence without rows");
    NACRE_CHECK(NumPositions(rows) >= 0, "more nodes than rows");
    NACRE_CHECK(sequence->length() + NumPositions(rows) <= sequence->max_length,
                "a sequence passes its reserved length");
    NACRE_CHECK(rows.num_logits >= 0 && rows.num_logits <= count,
                "more logits than rows");
    NACRE_CHECK(rows.draws.empty() ||
                    (options_.draws_tokens &&
                     rows.draws.size() == static_cast<size_t>(rows.num_logits)),
                "draws of a model that draws none, or not one for each row");
    NextDraws::Check(rows, sequence->max_length - sequence->length());
    for (size_t j = 0; j < index; ++j) {
      NACRE_CHECK(batch[j].sequence != rows.sequence,
                  "a sequence is twice in a batch");
    }
  }

  TableModelOptions options_;
  model::ModelInfo info_;
  std::function<bool()> interrupt_;
  TableRoom room_;
  std::atomic<int64_t> num_forwards_ = 0;
  std::atomic<int64_t> num_rows_ = 0;
  std::atomic<bool> compute_thread_bound_ = false;
  std::atomic<int64_t> num_logit_rows_ = 0;
  std::atomic<int64_t> num_draws_ = 0;
  std::vector<float> logits_;
  std::vector<float> hidden_;
  bool keeps_features_ = false;
  std::vector<float> features_;
  std::vector<int32_t> drawn_;
  NextDraws next_;
};

}  // namespace nacre::testing

#endif  // TESTS_TESTING_TABLE_MODEL_H_
