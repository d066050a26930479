// Chunks and their outcomes, told of late and in order.

#include "speculation/draft_length.h"

#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "speculation/policies/constant.h"
#include "speculation/policies/heuristic.h"

namespace nacre::speculation {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Stops where it is told to, and keeps what it hears.
class Recorder final : public LengthPolicy {
 public:
  struct Heard {
    int accepted;
    bool rejected;
    bool overtaken;
    std::vector<ChunkOutcome> chunks;
  };
  struct Log {
    std::vector<DraftRow> rows;
    std::vector<Heard> heard;
    LengthDecision next = LengthDecision::kContinue;
    bool looks = true;
  };
  explicit Recorder(Log* log) : log_(*log) {}

  bool looks_at_token() const override { return log_.looks; }
  LengthDecision Decide(const DraftRow& row) override {
    log_.rows.push_back(row);
    return log_.next;
  }
  void OnVerified(const VerifiedTokens& verified) override {
    log_.heard.push_back({verified.accepted,
                          verified.rejected,
                          verified.overtaken,
                          {verified.chunks.begin(), verified.chunks.end()}});
  }

 private:
  Log& log_;
};

class DraftLengthTest : public ::testing::Test {
 protected:
  LengthDecision Draft(LengthDecision next = LengthDecision::kContinue) {
    log_.next = next;
    DraftRow row;
    row.token = DrawnToken{7, 0.5f};
    return length_.Decide(row);
  }
  void DraftChunk(int tokens) {
    for (int i = 1; i < tokens; ++i) Draft();
    Draft(LengthDecision::kStop);
  }
  const Recorder::Heard& Commit(int accepted, bool rejected, bool overtaken) {
    length_.OnCommit({accepted, rejected, overtaken});
    return log_.heard.back();
  }

  Recorder::Log log_;
  DraftLength length_{std::make_unique<Recorder>(&log_), /*max_length=*/8};
};

TEST_F(DraftLengthTest, ARowKnowsItsPlace) {
  DraftChunk(2);
  Draft();
  EXPECT_EQ(log_.rows[0].chunk_length, 0);
  EXPECT_EQ(log_.rows[1].chunk_length, 1);
  EXPECT_EQ(log_.rows[2].chunk_length, 0);  // after a stop
  EXPECT_EQ(log_.rows[0].unverified, 0);
  EXPECT_EQ(log_.rows[2].unverified, 2);
  Commit(1, false, false);
  Draft();
  EXPECT_EQ(log_.rows[3].chunk_length, 1);
  EXPECT_EQ(log_.rows[3].unverified, 2);
}

// What is decided without looking cannot depend on what was drawn.
TEST_F(DraftLengthTest, OnlyAPolicyThatLooksSeesTheToken) {
  Draft();
  EXPECT_EQ(log_.rows.back().token->token_id, 7);
  log_.looks = false;
  Draft();
  EXPECT_FALSE(log_.rows.back().token.has_value());
  EXPECT_EQ(log_.rows.back().chunk_length, 1);
}

TEST_F(DraftLengthTest, AChunkEndsAtTheCap) {
  for (int i = 1; i < 8; ++i) EXPECT_EQ(Draft(), LengthDecision::kContinue);
  EXPECT_EQ(Draft(), LengthDecision::kStop);
  EXPECT_EQ(Draft(), LengthDecision::kContinue);
  EXPECT_EQ(log_.rows.back().chunk_length, 0);
}

TEST_F(DraftLengthTest, TakingTurnsEachCommitSettlesAChunk) {
  DraftChunk(3);
  EXPECT_THAT(Commit(3, false, true).chunks, ElementsAre(ChunkOutcome{3, 3}));
  DraftChunk(4);
  EXPECT_THAT(Commit(1, true, false).chunks, ElementsAre(ChunkOutcome{4, 1}));
  EXPECT_EQ(log_.rows.back().unverified, 3);
  Draft();
  EXPECT_EQ(log_.rows.back().unverified, 0);
  EXPECT_EQ(log_.rows.back().chunk_length, 0);
}

TEST_F(DraftLengthTest, AChunkThatOtherwiseEndedCountsByWhatItHad) {
  Draft();
  Draft();  // the lead ends here, or the draft is late
  EXPECT_THAT(Commit(2, false, true).chunks, ElementsAre(ChunkOutcome{2, 2}));
}

TEST_F(DraftLengthTest, AnOpenChunkWaitsForTheRestOfItsTokens) {
  Draft();
  Draft();
  EXPECT_THAT(Commit(2, false, false).chunks, IsEmpty());
  Draft(LengthDecision::kStop);
  EXPECT_THAT(Commit(1, false, false).chunks, ElementsAre(ChunkOutcome{3, 3}));
}

TEST_F(DraftLengthTest, OneCommitMaySettleSeveralChunks) {
  DraftChunk(2);
  DraftChunk(1);
  DraftChunk(3);
  const Recorder::Heard& heard = Commit(4, true, false);
  EXPECT_EQ(heard.accepted, 4);
  EXPECT_TRUE(heard.rejected);
  EXPECT_THAT(heard.chunks, ElementsAre(ChunkOutcome{2, 2}, ChunkOutcome{1, 1},
                                        ChunkOutcome{3, 1}));
}

TEST_F(DraftLengthTest, WhatARejectionDropsIsNoTrial) {
  DraftChunk(2);
  DraftChunk(2);
  Draft();
  EXPECT_THAT(Commit(1, true, false).chunks, ElementsAre(ChunkOutcome{2, 1}));
  // Nothing of the others is heard later.
  DraftChunk(1);
  EXPECT_THAT(Commit(0, true, false).chunks, ElementsAre(ChunkOutcome{1, 0}));
}

// Of a tree the policy has decided on the main path alone.
TEST_F(DraftLengthTest, ABranchIsARejectionOfTheMainPath) {
  DraftChunk(3);
  // One of the main path, then two of a branch, below which two more stand.
  length_.OnCommit({.accepted = 3, .of_branches = 2}, /*ahead=*/2);
  EXPECT_EQ(log_.heard.back().accepted, 1);
  EXPECT_TRUE(log_.heard.back().rejected);
  EXPECT_THAT(log_.heard.back().chunks, ElementsAre(ChunkOutcome{3, 1}));
  // What it decides on now stands behind these.
  Draft();
  EXPECT_EQ(log_.rows.back().unverified, 2);
  EXPECT_EQ(log_.rows.back().chunk_length, 0);
  length_.OnCommit({.accepted = 1}, /*ahead=*/2);
  EXPECT_EQ(log_.heard.back().accepted, 0);
  EXPECT_THAT(log_.heard.back().chunks, IsEmpty());
  Draft(LengthDecision::kStop);
  EXPECT_EQ(log_.rows.back().unverified, 2);
  length_.OnCommit({.accepted = 3}, /*ahead=*/0);
  EXPECT_EQ(log_.heard.back().accepted, 2);
  EXPECT_THAT(log_.heard.back().chunks, ElementsAre(ChunkOutcome{2, 2}));
}

TEST_F(DraftLengthTest, ATokenThatWasNotDecidedOnIsNoTrial) {
  DraftChunk(1);
  length_.OnCommit({.accepted = 1, .of_branches = 1}, /*ahead=*/2);
  DraftChunk(2);
  // The second of the two is wrong: nothing is known of the chunk.
  length_.OnCommit({.accepted = 1, .rejected = true}, /*ahead=*/0);
  EXPECT_EQ(log_.heard.back().accepted, 0);
  EXPECT_FALSE(log_.heard.back().rejected);
  EXPECT_TRUE(log_.heard.back().overtaken);
  EXPECT_THAT(log_.heard.back().chunks, IsEmpty());
  DraftChunk(1);
  EXPECT_THAT(Commit(0, true, false).chunks, ElementsAre(ChunkOutcome{1, 0}));
}

TEST_F(DraftLengthTest, CommitsOnNothingDraftedSettleNothing) {
  EXPECT_THAT(Commit(0, false, true).chunks, IsEmpty());
  EXPECT_EQ(Draft(LengthDecision::kDiscard), LengthDecision::kDiscard);
  EXPECT_THAT(Commit(0, false, true).chunks, IsEmpty());
  EXPECT_EQ(log_.heard.size(), 2u);
}

TEST_F(DraftLengthTest, OnlyAPolicyThatLooksMayDiscard) {
  log_.looks = false;
  EXPECT_DEATH(Draft(LengthDecision::kDiscard), "thrown away unseen");
  log_.looks = true;
  EXPECT_DEATH(length_.Decide({}), "looks at a token not drawn");
}

TEST_F(DraftLengthTest, ADiscardedTokenIsNotCounted) {
  Draft();
  EXPECT_EQ(Draft(LengthDecision::kDiscard), LengthDecision::kDiscard);
  EXPECT_THAT(Commit(1, false, true).chunks, ElementsAre(ChunkOutcome{1, 1}));
}

TEST_F(DraftLengthTest, TheCapIsForeseen) {
  for (int i = 1; i < 8; ++i) {
    EXPECT_FALSE(length_.WillStop());
    Draft();
  }
  EXPECT_TRUE(length_.WillStop());
  Draft();
  EXPECT_FALSE(length_.WillStop());
}

// Of policies whose decisions the row does not change.
TEST_F(DraftLengthTest, StopsThatNoRowDecidesAreForeseen) {
  std::vector<DraftLength> lengths;
  lengths.emplace_back(MakeConstantPolicy(1), 8);
  lengths.emplace_back(MakeConstantPolicy(3), 8);
  lengths.emplace_back(MakeConstantPolicy(5), 4);
  lengths.emplace_back(MakeHeuristicPolicy(5, 40), 8);
  for (DraftLength& length : lengths) {
    int unverified = 0;
    for (int i = 0; i < 200; ++i) {
      const bool will_stop = length.WillStop();
      EXPECT_EQ(length.Decide({}) == LengthDecision::kStop, will_stop) << i;
      ++unverified;
      if (i % 7 == 3) {
        length.OnCommit({unverified, false, false});
        unverified = 0;
      } else if (i % 19 == 11) {
        length.OnCommit({unverified / 2, true, false});
        unverified = 0;
      }
    }
  }
}

}  // namespace
}  // namespace nacre::speculation
