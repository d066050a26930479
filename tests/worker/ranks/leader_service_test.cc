// Sums over a real connection, and what ends all nodes.

#include "worker/ranks/leader_service.h"

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/rpc/channel.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/node_collective.h"
#include "kernels/shared_memory_collective.h"
#include "tests/worker/ranks/rank_nodes.h"

namespace nacre::worker {
namespace {

using kernels::Collective;
using kernels::NodeCall;
using ::testing::HasSubstr;
using Values = std::vector<float>;

void OnRanks(size_t ranks, const std::function<void(size_t)>& task) {
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranks; ++rank) threads.emplace_back(task, rank);
  for (std::thread& thread : threads) thread.join();
}

std::vector<Values> SumOf(const std::vector<std::unique_ptr<Collective>>& ranks,
                          size_t count) {
  std::vector<Values> sums(ranks.size(), Values(count));
  OnRanks(ranks.size(), [&](size_t rank) {
    Values part(count);
    for (size_t i = 0; i < count; ++i) {
      part[i] = 1.0f / static_cast<float>(3 + i + 7 * rank * rank);
    }
    EXPECT_EQ(ranks[rank]->AllReduce(part.data(), count, sums[rank].data()),
              absl::OkStatus());
  });
  return sums;
}

TEST(LeaderServiceTest, SumsOverConnectionsHaveTheBitsOfOneProcess) {
  for (const auto& [nodes, ranks] :
       std::vector<std::pair<int, int>>{{2, 2}, {2, 8}, {4, 8}, {8, 8}}) {
    RankNodes group(nodes);
    group.JoinAll();
    EXPECT_EQ(group.leader().AwaitJoined(kTestPatience), absl::OkStatus());
    std::vector<std::unique_ptr<Collective>> all;
    for (int node = 0; node < nodes; ++node) {
      for (auto& own :
           kernels::MakeNodeCollectives(ranks / nodes, group.link(node))) {
        all.push_back(std::move(own));
      }
    }
    // In pieces, too.
    for (const size_t count : {1u, 1000u, 70'000u, 3u}) {
      EXPECT_EQ(SumOf(all, count),
                SumOf(kernels::MakeSharedMemoryCollectives(ranks), count))
          << nodes << " nodes, " << ranks << " ranks, " << count << " values";
    }
  }
}

TEST(LeaderServiceTest, CommandsComeInTheirOrder) {
  RankNodes group(2);
  FollowerClient& follower = group.Join();
  const std::vector<model::RankCommand> first = {
      {1, model::TruncateCommand{3}, 3, 9}, {2, model::FreeCommand(), 0, 9}};
  const std::vector<model::RankCommand> second = {
      {3, model::ShareCommand{{1, 2}}, 3, 9}};
  EXPECT_EQ(group.leader().SendCommands(first), absl::OkStatus());
  EXPECT_EQ(group.leader().SendCommands(second), absl::OkStatus());
  EXPECT_EQ(*follower.NextCommands(), first);
  EXPECT_EQ(*follower.NextCommands(), second);
}

// What it says last, and how long ago.
TEST(LeaderServiceTest, KnowsHowFarFollowersAre) {
  RankNodes group(4);
  group.JoinAll();
  EXPECT_EQ(group.leader().AwaitJoined(kTestPatience), absl::OkStatus());
  const std::vector<kernels::RankProgress> said = {
      {4, 9, 8, "a gather of 4 bytes", std::chrono::milliseconds(3)}};
  group.link(2)->SayProgress({{4, 7, 7, "", {}}});
  group.link(2)->SayProgress(said);
  const auto of_node = [&](int node) {
    return group.leader().Progress()[static_cast<size_t>(node) - 1];
  };
  const absl::Time deadline = absl::Now() + kTestPatience;
  while (of_node(2).ranks != said && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_EQ(of_node(2).ranks, said);
  EXPECT_EQ(of_node(2).node, 2);
  absl::SleepFor(absl::Milliseconds(20));
  EXPECT_GE(of_node(2).ago, std::chrono::milliseconds(20));
  EXPECT_TRUE(of_node(1).ranks.empty());
  EXPECT_EQ(of_node(3).node, 3);
  EXPECT_TRUE(group.link(2)->Progress().empty());
}

TEST(LeaderServiceTest, SaysWhoIsMissing) {
  RankNodes group(4);
  group.Join();
  EXPECT_EQ(group.leader().AwaitJoined(absl::Milliseconds(20)),
            absl::DeadlineExceededError("node 2, node 3 has not joined within "
                                        "20ms (--join-timeout)"));
  group.JoinAll();
  EXPECT_EQ(group.leader().AwaitJoined(kTestPatience), absl::OkStatus());
  EXPECT_EQ(group.leader().AwaitLoaded({}, absl::Milliseconds(20)).code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST(LeaderServiceTest, ANodeThatHasLoadedAnotherModelEndsAll) {
  RankNodes group(2);
  FollowerClient& follower = group.Join();
  follower.SayLoaded({{"fingerprint", "b"}});
  const absl::Status expected = absl::FailedPreconditionError(
      "fingerprint of node 1 is \"b\", of the leader \"a\"");
  EXPECT_EQ(group.leader().AwaitLoaded({{"fingerprint", "a"}}, kTestPatience),
            expected);
  EXPECT_EQ(follower.NextCommands().status(), expected);
}

// In the middle of a call, and when nothing is under way.
TEST(LeaderServiceTest, ALostFollowerEndsAllAndIsNamed) {
  for (const bool computes : {false, true}) {
    RankNodes group(4);
    group.JoinAll();
    absl::Mutex mu;
    absl::Status heard;
    group.leader().SetOnFailure([&](const absl::Status& status) {
      const absl::MutexLock lock(&mu);
      heard = status;
    });
    absl::Status received;
    std::thread waits([&] {
      if (!computes) return;
      float value = 0;
      received =
          group.leader().Receive(2, {1, NodeCall::Kind::kSum, 1}, &value);
    });
    group.Lose(2);
    const auto has_heard = [&] { return !heard.ok(); };
    mu.LockWhenWithTimeout(absl::Condition(&has_heard), kTestPatience);
    EXPECT_THAT(std::string(heard.message()),
                ::testing::MatchesRegex("node 2 at .*127.0.0.1.* is lost"));
    mu.Unlock();
    waits.join();
    if (computes) {
      EXPECT_EQ(received, heard);
    }
    EXPECT_EQ(group.leader().SendCommands({}), heard);
    float value = 0;
    const absl::Status other =
        group.link(3)->Receive(0, {1, NodeCall::Kind::kSum, 1}, &value);
    EXPECT_THAT(std::string(other.message()), HasSubstr("has ended: node 2"));
  }
}

TEST(LeaderServiceTest, AFollowersFailureIsTheReasonOfAll) {
  RankNodes group(4);
  group.JoinAll();
  group.link(2)->Abort(absl::ResourceExhaustedError("rank 2: no room"));
  const absl::Status expected =
      absl::ResourceExhaustedError("node 2: rank 2: no room");
  float value = 0;
  EXPECT_EQ(group.leader().Receive(1, {1, NodeCall::Kind::kSum, 1}, &value),
            expected);
  EXPECT_EQ(group.link(1)->Receive(0, {1, NodeCall::Kind::kSum, 1}, &value),
            expected);
  EXPECT_EQ(group.link(2)->Receive(0, {1, NodeCall::Kind::kSum, 1}, &value),
            absl::ResourceExhaustedError("rank 2: no room"));
}

TEST(LeaderServiceTest, AFollowerThatHangsIsNamed) {
  RankNodes group(2);
  group.Join();
  group.leader().SetPatience(absl::Milliseconds(20));
  float value = 0;
  const absl::Status expected =
      absl::DeadlineExceededError("node 1 has sent nothing for 20ms");
  EXPECT_EQ(group.leader().Receive(1, {1, NodeCall::Kind::kSum, 1}, &value),
            expected);
  EXPECT_EQ(group.leader().SendCommands({}), expected);
}

// Each of the other; the follower as its leader says.
TEST(LeaderServiceTest, WhoHangsIsLostOnceTheLeaderServes) {
  for (const int hangs : {0, 1}) {
    RankNodes group(2);
    FollowerClient& follower = group.Join();
    follower.SetPatience(absl::InfiniteDuration());
    group.leader().StartServing(absl::Milliseconds(20));
    // What comes next has it there.
    EXPECT_EQ(group.leader().SendCommands({{1, model::FreeCommand(), 0, 0}}),
              absl::OkStatus());
    EXPECT_TRUE(follower.NextCommands().ok());
    float value = 0;
    EXPECT_EQ(group.link(1 - hangs)->Receive(
                  hangs, {1, NodeCall::Kind::kSum, 1}, &value),
              absl::DeadlineExceededError(
                  hangs == 1 ? "node 1 has sent nothing for 20ms"
                             : "node 0 has sent nothing for 40ms"));
  }
}

// What ranks that wait for each other on devices ask.
TEST(LeaderServiceTest, BothSidesKnowAFailureWithoutACall) {
  RankNodes group(2);
  FollowerClient& follower = group.Join();
  EXPECT_EQ(group.leader().failure(), absl::OkStatus());
  EXPECT_EQ(follower.failure(), absl::OkStatus());
  const absl::Status reason = absl::InternalError("rank 0: no more");
  group.leader().Abort(reason);
  group.leader().AwaitEnded(kTestPatience);
  follower.AwaitEnd(kTestPatience);
  EXPECT_EQ(group.leader().failure(), reason);
  EXPECT_EQ(follower.failure(), reason);
  EXPECT_FALSE(follower.has_stopped());
}

TEST(LeaderServiceTest, AnEndInOrderIsNoFailure) {
  RankNodes group(2);
  FollowerClient& follower = group.Join();
  absl::Notification ended;
  follower.SetOnEnd([&](const absl::Status& status) {
    EXPECT_EQ(status, absl::OkStatus());
    ended.Notify();
  });
  group.leader().End(absl::OkStatus());
  ended.WaitForNotification();
  EXPECT_EQ(group.leader().failure(), absl::OkStatus());
  EXPECT_EQ(follower.failure(), absl::OkStatus());
  EXPECT_TRUE(follower.has_stopped());
  // Nothing is sent after it.
  EXPECT_FALSE(group.leader().SendCommands({}).ok());
}

TEST(LeaderServiceTest, AFollowerThatIsToTerminateAsksForIt) {
  RankNodes group(2);
  FollowerClient& follower = group.Join();
  absl::Notification asked;
  follower.Leave();
  // Also if the leader cannot do so yet.
  group.leader().SetOnLeave([&] {
    if (!asked.HasBeenNotified()) asked.Notify();
  });
  asked.WaitForNotification();
  EXPECT_EQ(group.leader().SendCommands({}), absl::OkStatus());
}

// Whoever comes to the port by raw calls.
class StrangerTest : public ::testing::Test {
 protected:
  using Call = grpc::ClientReaderWriter<v1::FollowerMessage, v1::LeaderMessage>;

  grpc::Status Refused(const v1::FollowerMessage& message) {
    grpc::ClientContext context;
    // One that is not refused is not answered.
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
    const auto call = stub_->Follow(&context);
    call->Write(message);
    v1::LeaderMessage answer;
    while (call->Read(&answer)) {
    }
    return call->Finish();
  }
  static v1::FollowerMessage JoinAs(uint32_t node, const char* ranks) {
    v1::FollowerMessage message;
    message.mutable_join()->set_node(node);
    for (const auto& [name, value] :
         NodeFacts{{"version", "1"}, {"ranks", ranks}}) {
      auto* const fact = message.mutable_join()->mutable_facts()->add_facts();
      fact->set_name(name);
      fact->set_value(value);
    }
    return message;
  }

  RankNodes group_{2};
  std::unique_ptr<v1::Ranks::Stub> stub_ =
      v1::Ranks::NewStub(rpc::CreateChannel(group_.address()));
};

TEST_F(StrangerTest, IsRefusedAndDisturbsNobody) {
  FollowerClient& follower = group_.Join();
  v1::FollowerMessage values;
  values.mutable_values();
  for (const auto& [message, said] :
       std::vector<std::pair<v1::FollowerMessage, std::string>>{
           {JoinAs(1, "8"), "node 1 has joined already, from ipv4:127.0.0.1"},
           {JoinAs(1, "4"), "ranks of node 1 is \"4\", of the leader \"8\""},
           {JoinAs(0, "8"), "--node-rank is 0, expected 1 to 1"},
           {JoinAs(2, "8"), "--node-rank is 2, expected 1 to 1"},
           {v1::FollowerMessage(), "a node that has not joined"},
           {values, "a node that has not joined"}}) {
    const grpc::Status status = Refused(message);
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(status.error_message(), HasSubstr(said));
  }
  EXPECT_EQ(group_.leader().SendCommands({{1, model::FreeCommand(), 0, 0}}),
            absl::OkStatus());
  EXPECT_EQ(follower.NextCommands()->size(), 1u);
}

// One that has joined and then sends what is none of its business.
TEST_F(StrangerTest, GarbageOfANodeEndsAll) {
  grpc::ClientContext context;
  const auto call = stub_->Follow(&context);
  call->Write(JoinAs(1, "8"));
  v1::LeaderMessage answer;
  ASSERT_TRUE(call->Read(&answer));
  EXPECT_TRUE(answer.has_joined());
  call->Write(JoinAs(1, "8"));
  EXPECT_FALSE(call->Read(&answer));
  EXPECT_THAT(call->Finish().error_message(),
              HasSubstr("node 1 has sent a message out of turn"));
  EXPECT_THAT(group_.leader().SendCommands({}).ToString(),
              HasSubstr("node 1 has sent a message out of turn"));
}

TEST_F(StrangerTest, ProgressThatNoneCanHaveEndsAll) {
  grpc::ClientContext context;
  const auto call = stub_->Follow(&context);
  call->Write(JoinAs(1, "8"));
  v1::LeaderMessage answer;
  ASSERT_TRUE(call->Read(&answer));
  v1::FollowerMessage message;
  message.mutable_progress()->add_ranks()->set_rank(99);
  call->Write(message);
  EXPECT_FALSE(call->Read(&answer));
  EXPECT_THAT(call->Finish().error_message(),
              HasSubstr("progress that none can have: rank 99"));
}

TEST_F(StrangerTest, ValuesOfAnotherCallEndAll) {
  grpc::ClientContext context;
  const auto call = stub_->Follow(&context);
  call->Write(JoinAs(1, "8"));
  v1::FollowerMessage message;
  message.mutable_values()->set_call(5);
  message.mutable_values()->set_kind(v1::CALL_KIND_SUM);
  message.mutable_values()->set_count(1);
  message.mutable_values()->set_values("abcd");
  call->Write(message);
  float value = 0;
  const absl::Status status =
      group_.leader().Receive(1, {1, NodeCall::Kind::kSum, 1}, &value);
  EXPECT_THAT(status.ToString(), HasSubstr("node 1 is at call 5, a sum of 1"));
  EXPECT_EQ(group_.leader().SendCommands({}), status);
}

}  // namespace
}  // namespace nacre::worker
