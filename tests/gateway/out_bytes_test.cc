#include "gateway/out_bytes.h"

#include <gtest/gtest.h>

namespace nacre::gateway {
namespace {

TEST(OutBytesTest, WhatIsAppendedGoesOnItsWayAtBegin) {
  OutBytes out;
  EXPECT_TRUE(out.empty());
  EXPECT_FALSE(out.Begin());
  out.tail() += "abc";
  EXPECT_FALSE(out.empty());
  EXPECT_FALSE(out.is_writing());
  EXPECT_TRUE(out.Begin());
  EXPECT_TRUE(out.is_writing());
  EXPECT_EQ(out.unwritten(), "abc");
  out.Written(2);
  EXPECT_EQ(out.unwritten(), "c");
  EXPECT_TRUE(out.is_writing());
  out.Written(1);
  EXPECT_FALSE(out.is_writing());
  EXPECT_TRUE(out.empty());
}

TEST(OutBytesTest, WhatIsAppendedMeanwhileGoesNext) {
  OutBytes out;
  out.tail() += "abc";
  ASSERT_TRUE(out.Begin());
  out.tail() += "de";
  EXPECT_FALSE(out.Begin()) << "there is one write at a time";
  EXPECT_EQ(out.size(), 5u);
  EXPECT_EQ(out.unwritten(), "abc");
  out.Written(3);
  EXPECT_EQ(out.size(), 2u);
  EXPECT_TRUE(out.is_writing());
  EXPECT_EQ(out.unwritten(), "de");
  out.Written(2);
  EXPECT_TRUE(out.empty());
  EXPECT_EQ(out.size(), 0u);
}

}  // namespace
}  // namespace nacre::gateway
