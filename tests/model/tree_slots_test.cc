#include "model/tree_slots.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nacre::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Refused(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return status.ToString();
}

class TreeSlotsTest : public ::testing::Test {
 protected:
  // A sequence of 10; slots 5 and 2 are a path after it, 7 is beside slot 2,
  // and 0 is after position 4.
  TreeSlotsTest() {
    for (const TreeNode& node : {TreeNode{5, kNoSlot, 10}, TreeNode{2, 5, 11},
                                 TreeNode{7, 5, 11}, TreeNode{0, kNoSlot, 5}}) {
      EXPECT_TRUE(slots_.CheckNodes({&node, 1}, 10).ok());
      slots_.Fill(node);
    }
  }

  std::vector<int32_t> Path(int slot) const {
    std::vector<int32_t> path;
    slots_.AppendPath(slot, &path);
    return path;
  }
  absl::Status Check(const std::vector<TreeNode>& nodes) const {
    return slots_.CheckNodes(nodes, 10);
  }

  TreeSlots slots_{8};
};

TEST_F(TreeSlotsTest, PathsEndBehindAPosition) {
  EXPECT_THAT(Path(2), ElementsAre(5, 2));
  EXPECT_THAT(Path(7), ElementsAre(5, 7));
  EXPECT_THAT(Path(0), ElementsAre(0));
}

TEST_F(TreeSlotsTest, NodesOfAStepMayBeBehindEachOther) {
  EXPECT_TRUE(Check({{1, 2, 12}, {3, 1, 13}, {4, 3, 14}, {6, 1, 13}}).ok());
  EXPECT_THAT(Refused(Check({{3, 1, 13}, {1, 2, 12}})),
              HasSubstr("slot 1, the parent of slot 3, does not end a path"));
}

TEST_F(TreeSlotsTest, RefusesSlotsThatAreNone) {
  EXPECT_THAT(Refused(Check({{8, kNoSlot, 10}})),
              HasSubstr("slot 8 is outside the sequence's 8 slots"));
  EXPECT_THAT(Refused(Check({{-1, kNoSlot, 10}})), HasSubstr("slot -1 is"));
  EXPECT_THAT(Refused(Check({{1, 8, 12}})), HasSubstr("slot 8 is outside"));
  EXPECT_THAT(Refused(Check({{1, -2, 12}})), HasSubstr("slot -2 is outside"));
  EXPECT_THAT(Refused(Check({{1, 2, 12}, {1, 7, 12}})),
              HasSubstr("slot 1 is filled twice in a step"));
  EXPECT_THAT(Refused(Check({{1, 1, 12}})), HasSubstr("does not end a path"));
  EXPECT_THAT(Refused(TreeSlots(0).CheckNodes({{0, kNoSlot, 1}}, 1)),
              HasSubstr("slot 0 is outside the sequence's 0 slots"));
}

TEST_F(TreeSlotsTest, RefusesPositionsThatAreNotBehindTheParents) {
  EXPECT_THAT(Refused(Check({{1, 2, 13}})),
              HasSubstr("a node at position 13 in slot 1, but its parent is at "
                        "position 11"));
  EXPECT_THAT(Refused(Check({{1, kNoSlot, 11}})),
              HasSubstr("position 11 follows none of the sequence's 10"));
  EXPECT_THAT(Refused(Check({{1, kNoSlot, 0}})),
              HasSubstr("position 0 follows"));
  EXPECT_TRUE(Check({{1, kNoSlot, 1}, {3, kNoSlot, 10}}).ok());
}

TEST_F(TreeSlotsTest, ASlotThatIsFilledAgainBreaksPathsThroughIt) {
  // Also within the step that fills it.
  EXPECT_THAT(Refused(Check({{5, kNoSlot, 10}, {1, 2, 12}})),
              HasSubstr("slot 2, the parent of slot 1, does not end a path"));
  slots_.Fill({5, kNoSlot, 10});
  EXPECT_THAT(Refused(Check({{1, 2, 12}})), HasSubstr("does not end a path"));
  EXPECT_TRUE(Check({{1, 5, 11}}).ok());
  EXPECT_THAT(Refused(slots_.CheckPath(10, {5, 2})),
              HasSubstr("slot 2 holds no node after slot 5"));
}

TEST_F(TreeSlotsTest, AnEmptiedSlotBreaksPathsThroughIt) {
  slots_.Empty(5);
  EXPECT_THAT(Refused(Check({{1, 2, 12}})), HasSubstr("does not end a path"));
  EXPECT_THAT(Refused(Check({{1, 5, 11}})), HasSubstr("does not end a path"));
  EXPECT_TRUE(Check({{1, 0, 6}}).ok());
}

TEST_F(TreeSlotsTest, ForgottenPositionsTakePathsWithThem) {
  slots_.Truncate(10);
  EXPECT_TRUE(Check({{1, 2, 12}}).ok());
  slots_.Truncate(9);
  EXPECT_THAT(Refused(Check({{1, 2, 12}})), HasSubstr("does not end a path"));
  EXPECT_TRUE(Check({{1, 0, 6}}).ok());
  slots_.Truncate(4);
  EXPECT_THAT(Refused(Check({{1, 0, 6}})), HasSubstr("does not end a path"));
}

TEST_F(TreeSlotsTest, WhatIsBehindAKeptPathStays) {
  slots_.Fill({1, 2, 12});
  slots_.Fill({3, 1, 13});
  ASSERT_TRUE(slots_.CheckPath(10, {5, 2}).ok());
  slots_.KeepPath({5, 2});
  EXPECT_THAT(Path(3), ElementsAre(1, 3));
  EXPECT_THAT(Path(7), ElementsAre(7));  // after a position now
  // Its slots serve other nodes.
  EXPECT_TRUE(slots_.CheckNodes({{5, 3, 14}, {2, kNoSlot, 12}}, 12).ok());
  EXPECT_TRUE(slots_.CheckPath(12, {1, 3}).ok());
  EXPECT_THAT(Refused(slots_.CheckPath(12, {5})),
              HasSubstr("slot 5 holds no node after the sequence"));
}

TEST_F(TreeSlotsTest, RefusesWhatIsNoPathBehindTheSequence) {
  EXPECT_TRUE(slots_.CheckPath(10, {}).ok());
  EXPECT_TRUE(slots_.CheckPath(10, {5, 7}).ok());
  EXPECT_THAT(Refused(slots_.CheckPath(10, {9})),
              HasSubstr("slot 9 is outside the sequence's 8 slots"));
  EXPECT_THAT(Refused(slots_.CheckPath(10, {2})),
              HasSubstr("slot 2 holds no node after the sequence"));
  EXPECT_THAT(Refused(slots_.CheckPath(10, {5, 2, 7})),
              HasSubstr("slot 7 holds no node after slot 2"));
  EXPECT_THAT(Refused(slots_.CheckPath(10, {0})),
              HasSubstr("slot 0 is of position 5, a path is kept after a "
                        "sequence of 10"));
}

}  // namespace
}  // namespace nacre::model
