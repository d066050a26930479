// What the target engine publishes of its keys and values: all rows of
// committed positions, in order, to those that want them.

#include "target_worker/row_publisher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/dtype.h"
#include "tests/target_worker/real_engine.h"

namespace nacre::target_worker {
namespace {

using ::testing::HasSubstr;
using RowsWanted = worker::TensorPublisher::RowsWanted;

// Stands for one reader, which subscribes to channel 7. The test sets what it
// wants.
class OneReader final : public worker::TensorPublisher {
 public:
  bool HasReaders(uint64_t) const override { return false; }
  void Publish(const worker::Tensor&) override {
    ADD_FAILURE() << "a hidden state";
  }
  absl::optional<RowsWanted> WantedRows(uint64_t channel,
                                        int there) const override {
    if (channel != 7 || wanted.first >= std::min(wanted.end, there) ||
        is_busy) {
      return absl::nullopt;
    }
    return wanted;
  }
  void PublishRows(const worker::Tensor& tensor) override {
    EXPECT_TRUE(tensor.tag.is_rows);
    EXPECT_EQ(tensor.tag.channel, 7u);
    EXPECT_EQ(tensor.tag.epoch, 4u);
    EXPECT_EQ(tensor.tag.position, wanted.first);
    EXPECT_EQ(tensor.in_bf16, wanted.shape.is_features()) << "kept in float32";
    wanted.first += tensor.shape[0];
    EXPECT_LE(wanted.first, wanted.end);
    const absl::Span<const float> values = tensor.values.host();
    rows.insert(rows.end(), values.begin(), values.end());
    sizes.push_back(tensor.shape[0]);
  }
  void RefuseRows(uint64_t channel, const RowsWanted& refused,
                  const absl::Status& why) override {
    EXPECT_EQ(channel, 7u);
    EXPECT_EQ(refused, wanted);
    refusal = why;
    wanted.end = 0;
  }
  void SkipRows(uint64_t channel, const RowsWanted& skipping, int to) override {
    EXPECT_EQ(channel, 7u);
    EXPECT_EQ(skipping, wanted);
    EXPECT_GT(to, wanted.first);
    skipped += to - wanted.first;
    wanted.end += to - wanted.first;
    wanted.first = to;
  }

  RowsWanted wanted;
  bool is_busy = false;
  std::vector<float> rows;
  std::vector<int> sizes;
  absl::Status refusal;
  int skipped = 0;  // rows
};

class RowPublisherTest : public ::testing::Test {
 protected:
  explicit RowPublisherTest(const RealEngine::Published& published = {})
      : engine_(nullptr, &reader_, published) {
    const kernels::KvLayer& layer = engine_.model()->kept_kv()->layers.front();
    reader_.wanted = {{2, layer.num_kv_heads, layer.head_dim}, "", 0, 1000, 4};
  }

  static OpenTarget Opening(bool in_slots, float temperature) {
    OpenTarget open = RealOpen(in_slots ? 2 : 1, temperature);
    open.suffixes.reset();
    open.kv_channel = 7;
    open.epoch = 3;
    open.has_draft = true;
    open.plan.window = 4;
    return open;
  }

  // All that it says, beside a draft that is right and wrong by turns.
  void Run(const OpenTarget& open) {
    const uint64_t id = open.session_id;
    engine_.Open(open);
    int turn = 0;
    while (engine_.finish[id] == speculation::FinishReason::kNone) {
      TargetCommands commands;
      commands.stream = 1;
      const int length = static_cast<int>(engine_.tokens[id].size());
      commands.acknowledged.push_back({id, length});
      speculation::Tail tail;
      tail.epoch = 3;
      tail.base_length = tail.first_position = length;
      // The only two tokens that it may say.
      tail.token_ids = {11, turn % 2 == 0 ? 11 : 12, 12, 11};
      if (++turn % 3 != 0) commands.tails.push_back({id, tail});
      engine_.engine()->Push(std::move(commands));
      ASSERT_TRUE(engine_.engine()->RunOnce().ok());
      reader_.is_busy = turn % 4 == 0;
    }
  }

  // So many steps of a session that drafts nothing.
  void Step(const OpenTarget& open, int count) {
    for (int i = 0; i < count; ++i) {
      TargetCommands commands;
      commands.stream = 1;
      const uint64_t id = open.session_id;
      commands.acknowledged = {
          {id, static_cast<int>(engine_.tokens[id].size())}};
      engine_.engine()->Push(std::move(commands));
      ASSERT_TRUE(engine_.engine()->RunOnce().ok());
    }
  }

  // What a model says that is fed these tokens at once.
  std::vector<float> RowsOf(const std::vector<int32_t>& tokens, int count) {
    RealEngine fresh(nullptr);
    const auto sequence = *fresh.model()->NewSequence(64);
    const model::SequenceRows rows = {sequence.get(), tokens, 1};
    EXPECT_TRUE(fresh.model()->Forward({&rows, 1}).ok());
    std::vector<float> result;
    model::KeptRows(fresh.model())
        .Read(*sequence, reader_.wanted.shape, 0, count, &result);
    return result;
  }

  void ExpectAllRows(const OpenTarget& open) {
    Run(open);
    const std::vector<int32_t>& said = engine_.tokens[open.session_id];
    const int count = reader_.wanted.first;
    // All but those of the last step, of which nothing more is drafted.
    EXPECT_GE(count, static_cast<int>(said.size()) - 8);
    EXPECT_LT(count, static_cast<int>(said.size()));
    EXPECT_EQ(reader_.rows, RowsOf(said, count));
    EXPECT_GE(reader_.sizes.size(), 3u);
  }

  OneReader reader_;
  RealEngine engine_;
};

TEST_F(RowPublisherTest, RowsAreThoseOfTheTextThatIsCommitted) {
  ExpectAllRows(Opening(/*in_slots=*/false, 0.9f));
}

TEST_F(RowPublisherTest, AlsoWhereTheRowsOfAStepWereATree) {
  ExpectAllRows(Opening(/*in_slots=*/true, 0.9f));
}

TEST_F(RowPublisherTest, NoMoreThanIsWanted) {
  reader_.wanted.first = 3;
  reader_.wanted.end = 9;
  Run(Opening(false, 0));
  EXPECT_EQ(reader_.wanted.first, 9);
  EXPECT_EQ(reader_.sizes, std::vector<int>{6});
}

TEST_F(RowPublisherTest, WithoutAChannelNothingIsAsked) {
  OpenTarget open = Opening(false, 0);
  open.kv_channel = 0;
  Run(open);
  EXPECT_TRUE(reader_.sizes.empty());
}

TEST_F(RowPublisherTest, ADraftOfAnotherTargetIsRefused) {
  reader_.wanted.target_fingerprint = engine_.model()->info().fingerprint;
  Run(Opening(false, 0));
  EXPECT_TRUE(reader_.refusal.ok()) << reader_.refusal;
  EXPECT_FALSE(reader_.sizes.empty());
  reader_.wanted.target_fingerprint = "another";
  reader_.wanted.first = 0;
  Run(Opening(true, 0));
  EXPECT_EQ(reader_.refusal.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(reader_.refusal.ToString(),
              HasSubstr("the draft is of the target another, this is "));
}

TEST_F(RowPublisherTest, RowsThatItDoesNotHaveAreRefused) {
  reader_.wanted.shape.head_dim = 99;
  Run(Opening(false, 0));
  EXPECT_EQ(reader_.refusal.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(reader_.sizes.empty());
}

class FeaturePublisherTest : public RowPublisherTest {
 protected:
  explicit FeaturePublisherTest(int64_t bytes = FeatureShelf::kDefaultBytes)
      : RowPublisherTest({RealFolder("eagle/specforge"), bytes}) {
    reader_.wanted = {};
    reader_.wanted.shape.num_features = engine_.projection()->size();
    reader_.wanted.end = 1000;
    reader_.wanted.epoch = 4;
    reader_.wanted.draft_fingerprint =
        engine_.projection()->draft_fingerprint();
  }

  // What is made of the features of these tokens, fed at once, in bf16.
  std::vector<float> FeaturesOf(const std::vector<int32_t>& tokens, int first,
                                int count) {
    RealEngine fresh(nullptr, nullptr, {RealFolder("eagle/specforge")});
    const auto sequence = *fresh.model()->NewSequence(64);
    const model::SequenceRows rows = {sequence.get(), tokens, 1};
    EXPECT_TRUE(fresh.model()->Forward({&rows, 1}).ok());
    std::vector<float> result;
    fresh.projection()->Project(first, count, &result);
    for (float& value : result) {
      value = kernels::FromBF16(kernels::ToBF16(value));
    }
    return result;
  }

  void ExpectAllFeatures(const OpenTarget& open) {
    Run(open);
    const std::vector<int32_t>& said = engine_.tokens[open.session_id];
    const int count = reader_.wanted.first;
    EXPECT_GE(count, static_cast<int>(said.size()) - 8);
    EXPECT_LT(count, static_cast<int>(said.size()));
    EXPECT_EQ(reader_.rows, FeaturesOf(said, 0, count));
  }
};

TEST_F(FeaturePublisherTest, FeaturesAreThoseOfTheTextThatIsCommitted) {
  ExpectAllFeatures(Opening(/*in_slots=*/false, 0.9f));
}

TEST_F(FeaturePublisherTest, AlsoWhereTheRowsOfAStepWereATree) {
  ExpectAllFeatures(Opening(/*in_slots=*/true, 0.9f));
}

// A draft that is attached late, or again, gets them from the start.
TEST_F(FeaturePublisherTest, KeepsThemForWhoComesLate) {
  reader_.wanted.end = 0;
  const OpenTarget open = Opening(false, 0);
  engine_.Open(open);
  ASSERT_NO_FATAL_FAILURE(Step(open, 6));
  EXPECT_TRUE(reader_.sizes.empty());
  reader_.wanted.end = 5;
  ASSERT_NO_FATAL_FAILURE(Step(open, 1));
  EXPECT_EQ(reader_.wanted.first, 5);
  EXPECT_EQ(reader_.rows, FeaturesOf(engine_.tokens[1], 0, 5));
}

// There are none of what the prefix cache brought.
TEST_F(FeaturePublisherTest, BeginsAfterWhatWasTakenOver) {
  OpenTarget open = Opening(false, 0);
  reader_.wanted.end = 0;
  Run(open);
  open.session_id += 10;
  open.token_ids = engine_.tokens[open.session_id - 10];
  open.token_ids.resize(40);
  open.prompt_length = 40;
  open.max_tokens = 10;
  reader_.wanted.end = 1000;
  Run(open);
  EXPECT_GT(engine_.cached_tokens, 0);
  EXPECT_EQ(reader_.skipped, engine_.cached_tokens);
  const auto& said = engine_.tokens[open.session_id];
  EXPECT_EQ(reader_.rows, FeaturesOf(said, reader_.skipped,
                                     reader_.wanted.first - reader_.skipped));
}

TEST_F(FeaturePublisherTest, NoneUnderTheRatioTest) {
  OpenTarget open = Opening(false, 0.9f);
  open.verification = speculation::Verification::kRatio;
  engine_.Open(open);
  ASSERT_TRUE(engine_.engine()->RunOnce().ok());
  ASSERT_TRUE(engine_.engine()->RunOnce().ok());
  EXPECT_EQ(reader_.refusal.code(), absl::StatusCode::kUnimplemented);
}

TEST_F(FeaturePublisherTest, OfAnotherDraftTheyAreRefused) {
  reader_.wanted.draft_fingerprint = "another";
  Run(Opening(false, 0));
  EXPECT_EQ(reader_.refusal.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(reader_.refusal.ToString(), HasSubstr("this is another"));
  EXPECT_TRUE(reader_.sizes.empty());
}

TEST_F(FeaturePublisherTest, OfAnotherSizeTheyAreRefused) {
  ++reader_.wanted.shape.num_features;
  Run(Opening(false, 0));
  EXPECT_EQ(reader_.refusal.code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(RowPublisherTest, FeaturesThatItDoesNotComputeAreRefused) {
  reader_.wanted.shape = {};
  reader_.wanted.shape.num_features = 64;
  Run(Opening(false, 0));
  EXPECT_EQ(reader_.refusal.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(reader_.refusal.ToString(), HasSubstr("--publish-features"));
}

// Room for a few rows alone.
class FewFeaturesTest : public FeaturePublisherTest {
 protected:
  FewFeaturesTest() : FeaturePublisherTest(8 * 2 * 64) {}
};

TEST_F(FewFeaturesTest, TheOldestAreDroppedAndTheReaderLearnsIt) {
  reader_.wanted.end = 0;
  const OpenTarget open = Opening(false, 0);
  engine_.Open(open);
  ASSERT_NO_FATAL_FAILURE(Step(open, 20));
  reader_.wanted.end = 1000;
  ASSERT_NO_FATAL_FAILURE(Step(open, 1));
  EXPECT_GT(reader_.skipped, 0);
  ASSERT_FALSE(reader_.rows.empty());
  EXPECT_LE(reader_.rows.size(), 8u * 64u);
  EXPECT_EQ(reader_.rows, FeaturesOf(engine_.tokens[1], reader_.skipped,
                                     reader_.wanted.first - reader_.skipped));
  // Who has asked for what is gone altogether gets as many after it.
  reader_.wanted.first = 0;
  reader_.wanted.end = 1;
  reader_.skipped = 0;
  reader_.rows.clear();
  ASSERT_NO_FATAL_FAILURE(Step(open, 1));
  EXPECT_TRUE(reader_.refusal.ok()) << reader_.refusal;
  EXPECT_EQ(reader_.rows, FeaturesOf(engine_.tokens[1], reader_.skipped, 1));
}

}  // namespace
}  // namespace nacre::target_worker
