#include "coordinator/client_streams.h"

#include <gtest/gtest.h>

namespace nacre::coordinator {
namespace {

TEST(ClientStreamsTest, EveryClientHasItsOwnLimit) {
  ClientStreams streams(2);
  EXPECT_TRUE(streams.Acquire("a"));
  EXPECT_TRUE(streams.Acquire("a"));
  EXPECT_FALSE(streams.Acquire("a"));
  EXPECT_FALSE(streams.Acquire("a"));
  EXPECT_TRUE(streams.Acquire("b"));
  streams.Release("a");
  EXPECT_TRUE(streams.Acquire("a"));
  EXPECT_FALSE(streams.Acquire("a"));
}

TEST(ClientStreamsTest, ZeroIsNoLimit) {
  ClientStreams streams(0);
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(streams.Acquire("a"));
  for (int i = 0; i < 1000; ++i) streams.Release("a");
}

TEST(ClientStreamsTest, AClientIsAHost) {
  EXPECT_EQ(ClientStreams::HostOf("ipv4:10.0.0.1:4711"), "ipv4:10.0.0.1");
  EXPECT_EQ(ClientStreams::HostOf("ipv6:[::1]:4711"), "ipv6:[::1]");
  EXPECT_EQ(ClientStreams::HostOf("ipv6:%5B::1%5D:4711"), "ipv6:%5B::1%5D");
  EXPECT_EQ(ClientStreams::HostOf("unix:/run/n:1"), "unix:/run/n:1");
  EXPECT_EQ(ClientStreams::HostOf(""), "");
}

}  // namespace
}  // namespace nacre::coordinator
