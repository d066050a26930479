#include "coordinator/api/held_answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace nacre::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class HeldAnswersTest : public ::testing::Test {
 protected:
  // Answers are known by their addresses.
  bool Enter(int answer, const std::string& client, int64_t bytes) {
    const absl::Status status =
        held_.Enter({&names_[answer], client, bytes,
                     [this, answer] { cut_off_.push_back(answer); }});
    EXPECT_TRUE(status.ok() || absl::IsResourceExhausted(status)) << status;
    return status.ok();
  }
  void Leave(int answer) { held_.Leave(&names_[answer]); }

  HeldAnswers held_{100};
  char names_[16] = {};
  std::vector<int> cut_off_;
};

TEST_F(HeldAnswersTest, WhatWasTakenMakesRoom) {
  EXPECT_TRUE(Enter(0, "a", 60));
  EXPECT_TRUE(Enter(1, "a", 40));
  EXPECT_FALSE(Enter(2, "a", 1));
  Leave(2);  // it never entered
  Leave(1);
  EXPECT_TRUE(Enter(2, "a", 40));
  EXPECT_FALSE(Enter(3, "a", 1));
  EXPECT_THAT(cut_off_, IsEmpty());
}

TEST_F(HeldAnswersTest, WhoHoldsMostMakesRoomByItsLast) {
  EXPECT_TRUE(Enter(0, "a", 30));
  EXPECT_TRUE(Enter(1, "a", 30));
  EXPECT_TRUE(Enter(2, "b", 40));
  EXPECT_FALSE(Enter(3, "c", 50)) << "b would have less";
  EXPECT_THAT(cut_off_, IsEmpty());
  EXPECT_TRUE(Enter(3, "c", 30));
  EXPECT_THAT(cut_off_, ElementsAre(1));
  Leave(1);  // again
  EXPECT_TRUE(Enter(4, "a", 1));
  EXPECT_THAT(cut_off_, ElementsAre(1, 2));
  EXPECT_FALSE(Enter(5, "a", 50)) << "it would hold most itself";
  EXPECT_EQ(cut_off_.size(), 2u);
}

TEST_F(HeldAnswersTest, EqualSharesStay) {
  EXPECT_TRUE(Enter(0, "a", 50));
  EXPECT_TRUE(Enter(1, "b", 50));
  EXPECT_FALSE(Enter(2, "c", 50));
  EXPECT_TRUE(Enter(3, "c", 49));
  EXPECT_EQ(cut_off_.size(), 1u);
}

TEST_F(HeldAnswersTest, OneLargerThanAllTheRoomGoesAlone) {
  EXPECT_TRUE(Enter(0, "a", 1000));
  EXPECT_FALSE(Enter(1, "a", 1));
  EXPECT_TRUE(Enter(2, "b", 1));
  EXPECT_THAT(cut_off_, ElementsAre(0));
}

TEST_F(HeldAnswersTest, SaysWhatThereIsRoomFor) {
  EXPECT_TRUE(Enter(0, "a", 100));
  const absl::Status status = held_.Enter({&names_[1], "a", 7, [] {}});
  EXPECT_EQ(status.message(),
            "no room for an answer of 7 bytes: at most 100 bytes of answers "
            "wait for their clients; try again later");
}

TEST_F(HeldAnswersTest, SeveralMakeRoomForOne) {
  EXPECT_TRUE(Enter(0, "a", 40));
  EXPECT_TRUE(Enter(1, "a", 20));
  EXPECT_TRUE(Enter(2, "b", 35));
  EXPECT_TRUE(Enter(3, "c", 30));
  // Without its last one a still has most.
  EXPECT_THAT(cut_off_, ElementsAre(1, 0));
  Leave(2);
  Leave(3);
  EXPECT_TRUE(Enter(4, "a", 100));
  EXPECT_EQ(cut_off_.size(), 2u);
}

}  // namespace
}  // namespace nacre::coordinator
