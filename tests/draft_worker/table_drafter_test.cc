// The engine over a drafter without a model: what it proposes comes from a
// table. It shows that the engine asks nothing of a drafter but its interface.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "draft_worker/draft_engine.h"
#include "tests/draft_worker/draft_fixture.h"

namespace nacre::draft_worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Says after a token what was said after it before; nothing where nothing
// was. Its sequences hold a length and no KV.
class TableDrafter : public model::Drafter {
 public:
  TableDrafter(std::map<int32_t, int32_t> next, model::DrafterTraits traits)
      : next_(std::move(next)), traits_(std::move(traits)) {
    info_.vocab_size = 16;
    info_.context_length = 1000;
    info_.fingerprint = "table";
  }

  const model::DrafterTraits& traits() const override { return traits_; }
  const model::ModelInfo& info() const override { return info_; }
  absl::StatusOr<std::unique_ptr<model::Sequence>> NewSequenceWithPrefix(
      int, absl::Span<const int32_t>) override {
    return std::make_unique<Length>();
  }
  int64_t kv_free_tokens() const override { return 1 << 20; }

  absl::StatusOr<absl::Span<const model::Proposal>> Propose(
      absl::Span<const model::DraftRows> nodes) override {
    children_.clear();
    children_.reserve(nodes.size());
    proposals_.clear();
    for (const model::DraftRows& node : nodes) {
      static_cast<Length*>(node.sequence)->length_ +=
          static_cast<int>(node.token_ids.size());
      model::Proposal& proposal = proposals_.emplace_back();
      const auto it = next_.find(node.token_ids.back());
      if (node.max_children == 0 || it == next_.end()) continue;
      children_.push_back({it->second, 1.0f});
      proposal.children = absl::MakeConstSpan(&children_.back(), 1);
    }
    return absl::MakeConstSpan(proposals_);
  }

 private:
  struct Length : model::Sequence {
    int length() const override { return length_; }
    void Truncate(int length) override { length_ = std::min(length_, length); }
    int length_ = 0;
  };

  const std::map<int32_t, int32_t> next_;
  const model::DrafterTraits traits_;
  model::ModelInfo info_;
  std::vector<model::ScoredToken> children_;
  std::vector<model::Proposal> proposals_;
};

class TableDrafterTest : public ::testing::Test {
 protected:
  void Make(std::map<int32_t, int32_t> next, model::DrafterTraits traits = {}) {
    DraftEngine::Options options;
    options.drafter =
        std::make_unique<TableDrafter>(std::move(next), std::move(traits));
    options.now_ns = [this] { return now_ns_ += 10; };
    options.send = [this](worker::StreamId, const DraftEvents& events) {
      for (const auto& [id, tail] : events.tails) tails_.push_back(tail);
      for (const auto& failure : events.common.failures) {
        failures_.push_back(failure.status);
      }
    };
    engine_ = std::make_unique<DraftEngine>(std::move(options));
  }

  void Push(OpenDraft open) {
    DraftCommands commands;
    commands.stream = 1;
    commands.open.push_back(std::move(open));
    engine_->Push(std::move(commands));
  }
  void Push(int first_position, std::vector<int32_t> token_ids) {
    DraftCommands commands;
    commands.stream = 1;
    commands.commits.push_back({1, {first_position, std::move(token_ids)}});
    engine_->Push(std::move(commands));
  }

  // The tokens drafted until nothing is left to do.
  std::vector<int32_t> Drafted() {
    tails_.clear();
    while (engine_->RunOnce()->stepped) {
    }
    std::vector<int32_t> drafted;
    for (const speculation::Tail& tail : tails_) {
      drafted.insert(drafted.end(), tail.token_ids.begin(),
                     tail.token_ids.end());
    }
    return drafted;
  }

  int64_t now_ns_ = 1;
  std::vector<speculation::Tail> tails_;
  std::vector<absl::Status> failures_;
  std::unique_ptr<DraftEngine> engine_;
};

TEST_F(TableDrafterTest, DraftsWhatTheTableSays) {
  Make({{1, 2}, {2, 3}, {3, 1}});
  EXPECT_FALSE(engine_->grows_trees());
  ASSERT_TRUE(engine_->Prepare().ok());
  Push(MakeOpen(1, {7, 7, 1}, 5));
  EXPECT_THAT(Drafted(), ElementsAre(2, 3, 1, 2, 3));
  // The target agrees with two tokens and has another third one.
  Push(3, {2, 3, 3});
  EXPECT_THAT(Drafted(), ElementsAre(1, 2, 3, 1, 2));
  EXPECT_THAT(failures_, IsEmpty());
}

TEST_F(TableDrafterTest, SaysThatItStopsWhereTheTableEnds) {
  Make({{1, 2}, {2, 3}});
  Push(MakeOpen(1, {7, 7, 1}, 5));
  EXPECT_THAT(Drafted(), ElementsAre(2, 3));
  ASSERT_FALSE(tails_.empty());
  EXPECT_THAT(tails_.back().token_ids, IsEmpty());
  EXPECT_NE(tails_.back().stop, speculation::StopMark::kNone);
  EXPECT_THAT(Drafted(), IsEmpty());
  // It goes on after a commit that the table knows.
  Push(3, {2, 3, 1});
  EXPECT_THAT(Drafted(), ElementsAre(2, 3));
}

TEST_F(TableDrafterTest, RefusesWhatReadsLogitsThatItDoesNotShow) {
  Make({{1, 2}});
  OpenDraft ratio = MakeOpen(1, {7, 1}, 5);
  ratio.verification = speculation::Verification::kRatio;
  Push(ratio);
  OpenDraft policy = MakeOpen(2, {7, 1}, 5);
  policy.policy = "svip";
  Push(policy);
  EXPECT_THAT(Drafted(), IsEmpty());
  ASSERT_EQ(failures_.size(), 2u);
  for (const absl::Status& failure : failures_) {
    EXPECT_EQ(failure.code(), absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_THAT(std::string(failures_[0].message()), HasSubstr("ratio test"));
  EXPECT_THAT(std::string(failures_[1].message()), HasSubstr("policy svip"));
}

TEST_F(TableDrafterTest, DraftersThatNeedMoreThanAChainAreRefused) {
  model::DrafterTraits reads_features;
  reads_features.features = {{model::FeatureTap::Kind::kKv, 3}};
  Make({}, reads_features);
  EXPECT_THAT(std::string(engine_->Prepare().message()),
              HasSubstr("reads 1 features"));
  model::DrafterTraits fills_more;
  fills_more.tokens_per_call = 4;
  Make({}, fills_more);
  EXPECT_THAT(std::string(engine_->Prepare().message()),
              HasSubstr("fills in 4 tokens a call"));
}

}  // namespace
}  // namespace nacre::draft_worker
