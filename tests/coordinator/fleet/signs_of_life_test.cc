#include "coordinator/fleet/signs_of_life.h"

#include <gtest/gtest.h>

namespace nacre::coordinator {
namespace {

TEST(SignsOfLifeTest, TheStreamThatIsSilentForLongerCounts) {
  SignsOfLife life;
  life.OnAttached(100);
  EXPECT_EQ(life.silent_since_ns(), 100);
  EXPECT_EQ(life.heartbeat_ns(), 0);
  EXPECT_FALSE(life.IsLost(149, 50));
  EXPECT_TRUE(life.IsLost(150, 50));
  life.OnHeartbeat(140);
  EXPECT_EQ(life.silent_since_ns(), 100) << "no answer";
  life.OnAnswer(145);
  EXPECT_EQ(life.silent_since_ns(), 140);
  life.OnAnswer(180);
  EXPECT_EQ(life.silent_since_ns(), 140) << "no heartbeat";
  EXPECT_TRUE(life.IsLost(190, 50));
  life.OnHeartbeat(190);
  EXPECT_FALSE(life.IsLost(190, 50));
  EXPECT_EQ(life.heartbeat_ns(), 190);
}

// A heartbeat may come before the session stream is up.
TEST(SignsOfLifeTest, ComingIntoServiceIsASignOfLife) {
  SignsOfLife life;
  life.OnHeartbeat(10);
  life.OnAttached(100);
  EXPECT_EQ(life.silent_since_ns(), 100);
}

}  // namespace
}  // namespace nacre::coordinator
