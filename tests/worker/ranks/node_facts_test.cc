#include "worker/ranks/node_facts.h"

#include "gtest/gtest.h"

namespace nacre::worker {
namespace {

TEST(NodeFactsTest, TheFirstThatDiffersIsNamedWithBothValues) {
  const NodeFacts leader = {{"version", "1"}, {"ranks", "4"}};
  EXPECT_EQ(CheckSameFacts(1, leader, leader), absl::OkStatus());
  EXPECT_EQ(CheckSameFacts(2, {{"version", "1"}, {"ranks", "8"}}, leader),
            absl::FailedPreconditionError(
                "ranks of node 2 is \"8\", of the leader \"4\""));
  EXPECT_EQ(CheckSameFacts(1, {{"version", "2"}, {"ranks", "8"}}, leader),
            absl::FailedPreconditionError(
                "version of node 1 is \"2\", of the leader \"1\""));
  // Of another version's node.
  EXPECT_EQ(CheckSameFacts(1, {{"version", "1"}}, leader),
            absl::FailedPreconditionError(
                "ranks of node 1 is not said, of the leader \"4\""));
  EXPECT_EQ(CheckSameFacts(1, {{"build", "1"}}, leader),
            absl::FailedPreconditionError(
                "version of node 1 is not said, of the leader \"1\""));
}

}  // namespace
}  // namespace nacre::worker
