#include "coordinator/api/client_streams.h"

#include <gtest/gtest.h>

#include <utility>

namespace nacre::coordinator {
namespace {

TEST(ClientStreamsTest, EveryClientHasItsOwnLimit) {
  ClientStreams streams(2);
  EXPECT_TRUE(streams.Acquire("a", 1).ok());
  EXPECT_TRUE(streams.Acquire("a", 1).ok());
  EXPECT_FALSE(streams.Acquire("a", 1).ok());
  EXPECT_FALSE(streams.Acquire("a", 1).ok());
  EXPECT_TRUE(streams.Acquire("b", 1).ok());
  streams.Release("a", 1);
  EXPECT_TRUE(streams.Acquire("a", 1).ok());
  EXPECT_FALSE(streams.Acquire("a", 1).ok());
}

TEST(ClientStreamsTest, SeveralAreTakenTogetherOrNot) {
  ClientStreams streams(5);
  EXPECT_FALSE(streams.Acquire("a", 6).ok());
  EXPECT_TRUE(streams.Acquire("a", 3).ok());
  const absl::Status status = streams.Acquire("a", 3);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "the client has 3 streams and wants 3 more; "
            "--max-streams-per-client is 5");
  EXPECT_TRUE(streams.Acquire("a", 2).ok());
  streams.Release("a", 3);
  EXPECT_TRUE(streams.Acquire("a", 3).ok());
  EXPECT_FALSE(streams.Acquire("a", 1).ok());
}

TEST(ClientStreamsTest, ZeroIsNoLimit) {
  ClientStreams streams(0);
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(streams.Acquire("a", 16).ok());
  for (int i = 0; i < 1000; ++i) streams.Release("a", 16);
}

TEST(ClientStreamsTest, ALeaseGrowsAndGoesBackWithItsCall) {
  ClientStreams streams(5);
  EXPECT_TRUE(streams.Acquire("a", 2).ok());
  {
    ClientStreams::Lease lease(&streams, "a");
    EXPECT_TRUE(lease.Resize(1).ok());
    // What it holds itself is not in its way.
    const absl::Status status = lease.Resize(4);
    EXPECT_EQ(status.message(),
              "the client has 2 streams and wants 4 more; "
              "--max-streams-per-client is 5");
    EXPECT_TRUE(lease.Resize(3).ok());
    EXPECT_FALSE(streams.Acquire("a", 1).ok());
    ClientStreams::Lease moved = std::move(lease);
    EXPECT_FALSE(streams.Acquire("a", 1).ok());
    lease = ClientStreams::Lease(&streams, "b");
    EXPECT_TRUE(lease.Resize(5).ok());
  }
  EXPECT_TRUE(streams.Acquire("a", 3).ok());
  EXPECT_TRUE(streams.Acquire("b", 5).ok());
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
