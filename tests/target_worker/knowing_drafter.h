// A drafter over a TableModel's features that knows what the target says of any
// text, and says that or noise. It is strict: features must be those of the
// positions one after another, each beside the token after it. Or one over its
// keys and values: rows must be one after another, each where the target has
// all positions before it.

#ifndef TESTS_TARGET_WORKER_KNOWING_DRAFTER_H_
#define TESTS_TARGET_WORKER_KNOWING_DRAFTER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "model/feature_drafter.h"
#include "tests/testing/table_model.h"

namespace nacre::target_worker {

// How often the engine reads its clock because of this call. (It reads it once
// for a look, which begins with the roots.)
inline int ClockReads(absl::Span<const model::FeatureRows> batch) {
  const bool are_roots = batch[0].nodes.empty() && batch[0].num_logits > 0;
  return are_roots ? 1 : 2;
}

class KnowingDrafter : public model::FeatureDrafter {
 public:
  struct Sequence : model::FeatureSequence {
    int length() const override { return num_rows; }
    void Clear() override {
      if (num_clears == 0) first_cleared = last_position + 1;
      num_rows = 0;
      last_position = -1;
      ++num_clears;
    }
    int max_length = 0;
    int num_rows = 0;
    int last_position = -1;
    int num_clears = 0;
    int first_cleared = -1;  // the position that was next when it was cleared
    // What was fed after the last row and in each slot: the last two tokens.
    std::vector<int32_t> root;
    std::vector<std::vector<int32_t>> slots;
  };

  explicit KnowingDrafter(nacre::testing::TableModel* model,
                          bool over_kv = false)
      : model_(model), over_kv_(over_kv) {
    if (over_kv) {
      taps_ = {{model::FeatureTap::Kind::kKv, 3}};
    } else {
      EXPECT_TRUE(model->SetTaps(taps_).ok());
    }
  }

  absl::Span<const model::FeatureTap> taps() const override { return taps_; }
  int feature_size() const override {
    return over_kv_ ? 0 : 2 * model_->info().hidden_size;
  }
  int max_depth() const override { return depth; }
  absl::StatusOr<std::unique_ptr<model::FeatureSequence>> NewSequence(
      int max_length, int num_slots) override {
    if (!has_room) return absl::ResourceExhaustedError("no room");
    auto sequence = std::make_unique<Sequence>();
    sequence->max_length = max_length;
    sequence->slots.resize(static_cast<size_t>(num_slots));
    last = sequence.get();
    return sequence;
  }

  absl::StatusOr<absl::Span<const float>> Forward(
      absl::Span<const model::FeatureRows> batch) override {
    ++num_calls;
    if (on_call) on_call(ClockReads(batch));
    most_sessions = std::max(most_sessions, batch.size());
    if (fails || num_calls == fails_at) return absl::Status(error, "no room");
    logits_.clear();
    for (const model::FeatureRows& rows : batch) {
      Feed(rows, *static_cast<Sequence*>(rows.sequence));
    }
    return logits_;
  }

  int depth = 6;
  bool has_room = true;
  bool fails = false;
  int fails_at = 0;  // this call, counted from 1
  absl::StatusCode error = absl::StatusCode::kResourceExhausted;
  int percent_right = 100;
  std::function<void(int clock_reads)> on_call;
  int num_calls = 0;
  size_t most_sessions = 0;  // of a call
  size_t most_rows = 0;      // of a sequence in a call
  size_t most_nodes = 0;     // likewise
  Sequence* last = nullptr;  // the newest sequence

 private:
  void Feed(const model::FeatureRows& rows, Sequence& sequence) {
    const size_t positions = rows.token_ids.size() - rows.nodes.size();
    most_rows = std::max(most_rows, positions);
    most_nodes = std::max(most_nodes, rows.nodes.size());
    EXPECT_EQ(rows.features.size(),
              positions * static_cast<size_t>(feature_size()));
    for (size_t i = 0; i < rows.token_ids.size(); ++i) {
      std::vector<int32_t> fed;
      if (i < positions && over_kv_) {
        const int position = rows.first_position + sequence.num_rows;
        if (sequence.num_rows > 0) {
          EXPECT_EQ(position, sequence.last_position + 1);
          fed.push_back(sequence.root.back());
        }
        EXPECT_GE(rows.target.length, position);
        sequence.last_position = position;
        ++sequence.num_rows;
        EXPECT_LE(sequence.num_rows, sequence.max_length);
        fed.push_back(rows.token_ids[i]);
        sequence.root = fed;
      } else if (i < positions) {
        const size_t at = i * static_cast<size_t>(feature_size());
        const int position = static_cast<int>(rows.features[at]);
        const int token = static_cast<int>(rows.features[at + 1]);
        const size_t half = at + static_cast<size_t>(feature_size()) / 2;
        EXPECT_EQ(rows.features[half], rows.features[at]) << "both taps";
        if (sequence.num_rows > 0) {
          EXPECT_EQ(position, sequence.last_position + 1);
          EXPECT_EQ(token, sequence.root.back()) << "fed beside the row before";
        }
        sequence.last_position = position;
        ++sequence.num_rows;
        EXPECT_LE(sequence.num_rows, sequence.max_length);
        sequence.root = fed = {token, rows.token_ids[i]};
      } else {
        const model::TreeNode& node = rows.nodes[i - positions];
        const std::vector<int32_t>& parent =
            node.parent == model::kNoSlot
                ? sequence.root
                : sequence.slots.at(static_cast<size_t>(node.parent));
        EXPECT_FALSE(parent.empty()) << "a parent that was not fed";
        fed = {parent.back(), rows.token_ids[i]};
        sequence.slots.at(static_cast<size_t>(node.slot)) = fed;
      }
      if (i + static_cast<size_t>(rows.num_logits) < rows.token_ids.size()) {
        continue;
      }
      std::vector<float> row = model_->Logits(fed);
      if (static_cast<int>(random_() % 100) >= percent_right) {
        for (float& value : row) {
          value = static_cast<float>(random_() % 1000) * 0.01f;
        }
      }
      logits_.insert(logits_.end(), row.begin(), row.end());
    }
  }

  nacre::testing::TableModel* const model_;
  const bool over_kv_;
  std::vector<model::FeatureTap> taps_ = {{model::FeatureTap::Kind::kIn, 1},
                                          {model::FeatureTap::Kind::kIn, 2}};
  std::mt19937_64 random_{7};
  std::vector<float> logits_;
};

}  // namespace nacre::target_worker

#endif  // TESTS_TARGET_WORKER_KNOWING_DRAFTER_H_
