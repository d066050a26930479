#include "speculation/policies/heuristic.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/speculation/policies/policy_testing.h"

namespace nacre::speculation {
namespace {

using ::testing::ElementsAre;

TEST(HeuristicPolicy, TwoMoreAfterAWholeChunkOneLessAfterAnyOther) {
  TurnTaker turns(MakeHeuristicPolicy(5, 40));
  std::vector<int> lengths;
  for (const bool whole : {true, true, false, false, true, false}) {
    lengths.push_back(turns.Draft());
    turns.Verify(whole ? lengths.back() : lengths.back() - 1);
  }
  lengths.push_back(turns.Draft());
  EXPECT_THAT(lengths, ElementsAre(5, 7, 9, 8, 7, 9, 8));
}

TEST(HeuristicPolicy, StaysBetweenOneAndItsMost) {
  TurnTaker falls(MakeHeuristicPolicy(2, 40));
  TurnTaker rises(MakeHeuristicPolicy(2, 5));
  for (int i = 0; i < 4; ++i) {
    falls.Draft();
    falls.Verify(0);
    rises.Verify(rises.Draft());
  }
  EXPECT_EQ(falls.Draft(), 1);
  EXPECT_EQ(rises.Draft(), 5);
  EXPECT_EQ(TurnTaker(MakeHeuristicPolicy(9, 4)).Draft(), 4);
}

// "All" is measured by the tokens that the chunk had, not by those planned.
TEST(HeuristicPolicy, AChunkCutShortCountsByWhatItHad) {
  DraftLength length(MakeHeuristicPolicy(5, 40), kNoCap);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(length.Decide({}), LengthDecision::kContinue);
  }
  length.OnCommit({3, false, true});  // the lead ended it, all were right
  int drafted = 1;
  while (length.Decide({}) == LengthDecision::kContinue) ++drafted;
  EXPECT_EQ(drafted, 7);
}

// Under overlap: chunk by chunk, each with its own outcome, late.
TEST(HeuristicPolicy, CountsChunksNotCommits) {
  DraftLength length(MakeHeuristicPolicy(2, 40), kNoCap);
  for (int i = 0; i < 4; ++i) length.Decide({});  // two chunks under way
  length.OnCommit({1, false, false});  // half of the first: nothing is known
  length.OnCommit({2, false, false});  // the first was whole: 4 from now on
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(length.Decide({}), LengthDecision::kContinue);
  }
  EXPECT_EQ(length.Decide({}), LengthDecision::kStop);
  // The second falls: the third, in flight, is no trial.
  length.OnCommit({0, true, false});
  int drafted = 1;
  while (length.Decide({}) == LengthDecision::kContinue) ++drafted;
  EXPECT_EQ(drafted, 3);
}

}  // namespace
}  // namespace nacre::speculation
