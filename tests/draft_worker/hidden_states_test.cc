#include "draft_worker/hidden_states.h"

#include <gtest/gtest.h>

namespace nacre::draft_worker {
namespace {

using Outcome = HiddenStates::Outcome;

worker::ReceivedTensor At(int position, int64_t received_ns = 0,
                          uint32_t epoch = 3) {
  worker::ReceivedTensor received;
  received.tensor.tag = {9, epoch, position, 0, true};
  received.tensor.Own({static_cast<float>(position)});
  received.received_ns = received_ns;
  return received;
}

TEST(HiddenStates, TheOneBeforeTheLastCommittedTokenIsCurrent) {
  HiddenStates states(9, 3, /*committed_length=*/10, /*now_ns=*/100);
  EXPECT_EQ(states.channel(), 9u);
  EXPECT_FALSE(states.OnCommit(12, 1000));
  EXPECT_EQ(states.OnArrived(At(10, 1250)), Outcome::kCurrent);
  EXPECT_EQ(states.current().tensor.values.host()[0], 10.0f);
  // What it was missing for.
  EXPECT_EQ(states.current().start_ns, 1000);
  EXPECT_EQ(states.current().duration_ns, 250);
  EXPECT_EQ(states.num_stale(), 0);
}

TEST(HiddenStates, OneThatComesBeforeItsCommitIsKeptForIt) {
  HiddenStates states(9, 3, 10, 100);
  EXPECT_EQ(states.OnArrived(At(12, 900)), Outcome::kEarly);
  EXPECT_FALSE(states.OnCommit(12, 950));  // not yet
  EXPECT_TRUE(states.OnCommit(14, 1000));
  EXPECT_EQ(states.current().tensor.values.host()[0], 12.0f);
  EXPECT_EQ(states.current().start_ns, 900);
  EXPECT_EQ(states.current().duration_ns, 0);
  EXPECT_FALSE(states.OnCommit(15, 1100));  // it serves one commit
}

TEST(HiddenStates, OlderOnesAndThoseOfAnotherDraftAreStale) {
  HiddenStates states(9, 3, 10, 100);
  EXPECT_FALSE(states.OnCommit(14, 1000));
  EXPECT_EQ(states.OnArrived(At(11)), Outcome::kStale);
  EXPECT_EQ(states.OnArrived(At(12, 0, /*epoch=*/2)), Outcome::kStale);
  EXPECT_EQ(states.OnArrived(At(12, 0, /*epoch=*/4)), Outcome::kStale);
  worker::ReceivedTensor other = At(12);
  other.tensor.tag.layer = 1;
  EXPECT_EQ(states.OnArrived(other), Outcome::kStale);
  other = At(12);
  other.tensor.tag.after_norm = false;
  EXPECT_EQ(states.OnArrived(other), Outcome::kStale);
  EXPECT_EQ(states.num_stale(), 5);
  EXPECT_EQ(states.OnArrived(At(12)), Outcome::kCurrent);
}

TEST(HiddenStates, OfEarlyOnesTheNewestIsKept) {
  HiddenStates states(9, 3, 10, 100);
  EXPECT_EQ(states.OnArrived(At(12)), Outcome::kEarly);
  EXPECT_EQ(states.OnArrived(At(15)), Outcome::kEarly);
  EXPECT_EQ(states.OnArrived(At(13)), Outcome::kStale);
  EXPECT_EQ(states.num_stale(), 2);
  EXPECT_TRUE(states.OnCommit(17, 1000));
  EXPECT_EQ(states.current().tensor.values.host()[0], 15.0f);
  // A commit that goes beyond it.
  EXPECT_EQ(states.OnArrived(At(20)), Outcome::kEarly);
  EXPECT_FALSE(states.OnCommit(25, 2000));
  EXPECT_EQ(states.num_stale(), 3);
  EXPECT_EQ(states.OnArrived(At(23)), Outcome::kCurrent);
}

}  // namespace
}  // namespace nacre::draft_worker
