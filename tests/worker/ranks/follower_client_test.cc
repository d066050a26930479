// How a follower finds its leader, and what it says when that has gone.

#include "worker/ranks/follower_client.h"

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "common/rpc/security.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/free_address.h"
#include "tests/worker/ranks/rank_nodes.h"

namespace nacre::worker {
namespace {

using kernels::NodeCall;
using ::testing::HasSubstr;

TEST(FollowerClientTest, WaitsForALateLeader) {
  FollowerClient::Options options;
  options.leader = nacre::testing::FreeAddress();
  options.facts = TestFacts();
  LeaderService service(2, TestFacts());
  std::unique_ptr<rpc::RpcServer> server;
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    rpc::RpcServer::Options listen;
    listen.listen = options.leader;
    server = *rpc::RpcServer::Start(listen, {&service});
  });
  {
    const auto client = FollowerClient::Join(options, kTestPatience);
    EXPECT_TRUE(client.ok()) << client.status();
    late.join();
    EXPECT_EQ(service.AwaitJoined(kTestPatience), absl::OkStatus());
    service.End(absl::OkStatus());
    EXPECT_TRUE((*client)->NextCommands()->empty());
  }
  server->Shutdown(absl::Seconds(1));
}

TEST(FollowerClientTest, WaitsNoLongerThanItIsTold) {
  FollowerClient::Options options;
  options.leader = nacre::testing::FreeAddress();
  const auto client = FollowerClient::Join(options, absl::Milliseconds(300));
  EXPECT_EQ(client.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(client.status().ToString(),
              HasSubstr("the leader at " + options.leader +
                        " is not there within 300ms (--join-timeout): "));
}

TEST(FollowerClientTest, IsToldWhyItIsRefused) {
  RankNodes group(2);
  FollowerClient::Options options = group.OptionsOf(1);
  options.facts = {{"version", "0"}, {"ranks", "8"}};
  EXPECT_EQ(FollowerClient::Join(options, kTestPatience).status(),
            absl::FailedPreconditionError(
                "version of node 1 is \"0\", of the leader \"1\""));
}

TEST(FollowerClientTest, EndsWhenTheLeaderIsLostOrFails) {
  for (const bool fails : {false, true}) {
    LeaderService service(2, TestFacts());
    auto server = *rpc::RpcServer::Start({}, {&service});
    FollowerClient::Options options;
    options.leader = server->address();
    options.facts = TestFacts();
    const auto client = *FollowerClient::Join(options, kTestPatience);
    std::thread ends([&] {
      if (fails) {
        service.Abort(absl::InternalError("rank 0: no more"));
      } else {
        server->Shutdown(absl::ZeroDuration());
      }
    });
    float value = 0;
    const absl::Status status =
        client->Receive(0, {1, NodeCall::Kind::kSum, 1}, &value);
    ends.join();
    EXPECT_EQ(client->NextCommands().status(), status);
    if (fails) {
      EXPECT_EQ(status, absl::InternalError("rank 0: no more"));
    } else {
      EXPECT_THAT(
          status.ToString(),
          HasSubstr("the leader at " + options.leader + " has ended: "));
    }
    server->Shutdown(absl::ZeroDuration());
  }
}

TEST(FollowerClientTest, OneThatHangsIsNamed) {
  RankNodes group(2);
  FollowerClient& follower = group.Join();
  follower.SetPatience(absl::Milliseconds(20));
  float value = 0;
  EXPECT_EQ(follower.Receive(0, {1, NodeCall::Kind::kSum, 1}, &value),
            absl::DeadlineExceededError("node 0 has sent nothing for 20ms"));
}

}  // namespace
}  // namespace nacre::worker
