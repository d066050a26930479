// A worker's model on two nodes, as its processes load it: each node a thread
// here.

#include "worker/process/nodes.h"

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/rpc/security.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/certificates.h"
#include "tests/testing/free_address.h"
#include "tests/testing/tiny_checkpoint.h"
#include "worker/process/load.h"

namespace nacre::worker {
namespace {

using ::testing::HasSubstr;

WorkerOptions NodeOptions(int rank, const std::string& address) {
  WorkerOptions options;
  options.model_dir = NACRE_MODELS "/target";
  options.compute.tensor_parallel = 2;
  options.nodes.nodes = 2;
  options.nodes.rank = rank;
  options.nodes.leader_address = address;
  options.pace.hang_timeout = absl::Minutes(5);
  return options;
}

// A follower's process.
class Follower {
 public:
  explicit Follower(WorkerOptions options,
                    wire::WorkerRole role = wire::WorkerRole::kTarget,
                    const rpc::ChannelSecurity& security = {})
      : options_(std::move(options)), thread_([this, role, security] {
          status_ = RunFollower(options_, role, security,
                                [this] { joined_.Notify(); },
                                {&exit_, [](const absl::Status&) {}});
        }) {}
  ~Follower() {
    if (thread_.joinable()) thread_.join();
  }

  ExitSignal& exit() { return exit_; }
  void AwaitJoined() { joined_.WaitForNotification(); }
  absl::Status Wait() {
    thread_.join();
    return status_;
  }

 private:
  const WorkerOptions options_;
  ExitSignal exit_;
  absl::Notification joined_;
  absl::Status status_;
  std::thread thread_;
};

// The leader's, as far as loading.
struct Leader {
  explicit Leader(WorkerOptions given, const rpc::PeerSecurity& security = {})
      : options(std::move(given)) {
    auto started = NodeLeader::Start(options, wire::WorkerRole::kTarget,
                                     security, {&exit, nullptr});
    status = started.status();
    if (!status.ok()) return;
    leader = *std::move(started);
    auto loading =
        LoadForWorker(options, wire::WorkerRole::kTarget, {}, leader.get());
    status = loading.status();
    if (!status.ok()) return;
    loaded = *std::move(loading);
  }

  const WorkerOptions options;
  absl::Status status;
  ExitSignal exit;
  std::unique_ptr<NodeLeader> leader;
  LoadedModel loaded;
};

std::vector<float> LogitsOf(model::LanguageModel* model) {
  const auto sequence = *model->NewSequence(16);
  const std::vector<int32_t> tokens = {5, 6, 7, 8};
  const auto logits = model->Forward({{sequence.get(), tokens, 2}});
  EXPECT_TRUE(logits.ok()) << logits.status();
  return {logits->begin(), logits->end()};
}

TEST(NodesTest, ComputeWhatOneProcessDoesAndStopInOrder) {
  const std::string address = nacre::testing::FreeAddress();
  Follower follower(NodeOptions(1, address));
  Leader leader(NodeOptions(0, address));
  ASSERT_EQ(leader.status, absl::OkStatus());
  WorkerOptions whole = NodeOptions(0, "");
  whole.nodes = {};
  const auto one = LoadForWorker(whole, wire::WorkerRole::kTarget);
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(LogitsOf(leader.loaded.model.get()), LogitsOf(one->model.get()));
  EXPECT_EQ(leader.loaded.model->info().numerics_id,
            one->model->info().numerics_id);
  EXPECT_THAT(leader.loaded.model->info().description,
              HasSubstr("on 2 ranks of 2 nodes"));
  leader.leader->End(absl::OkStatus());
  EXPECT_EQ(follower.Wait(), absl::OkStatus());
}

TEST(NodesTest, AFollowerThatIsToldToTerminateHasTheLeaderDrain) {
  const std::string address = nacre::testing::FreeAddress();
  Follower follower(NodeOptions(1, address));
  Leader leader(NodeOptions(0, address));
  ASSERT_EQ(leader.status, absl::OkStatus());
  follower.exit().Drain();
  leader.exit.Wait();
  EXPECT_TRUE(leader.exit.draining());
  EXPECT_EQ(leader.exit.failure(), absl::OkStatus());
  // It computes until then.
  EXPECT_FALSE(LogitsOf(leader.loaded.model.get()).empty());
  leader.leader->End(absl::OkStatus());
  EXPECT_EQ(follower.Wait(), absl::OkStatus());
}

TEST(NodesTest, ALeaderThatFailsTellsTheFollowerWhy) {
  const std::string address = nacre::testing::FreeAddress();
  Follower follower(NodeOptions(1, address));
  Leader leader(NodeOptions(0, address));
  ASSERT_EQ(leader.status, absl::OkStatus());
  leader.leader->End(absl::InternalError("the engine has failed"));
  EXPECT_EQ(follower.Wait(), absl::InternalError("the engine has failed"));
}

// A leader that has not begun to load, and a follower that does.
class LoadingTest : public ::testing::Test {
 protected:
  LoadingTest() {
    const std::string address = nacre::testing::FreeAddress();
    follower_ = std::make_unique<Follower>(NodeOptions(1, address));
    options_ = NodeOptions(0, address);
    auto leader =
        NodeLeader::Start(options_, wire::WorkerRole::kTarget, {},
                          {&exit_, [this](const absl::Status& status) {
                             quit_ = status;
                             has_quit_.Notify();
                           }});
    EXPECT_TRUE(leader.ok()) << leader.status();
    leader_ = *std::move(leader);
    follower_->AwaitJoined();
  }

  absl::Status LeaderQuit() {
    has_quit_.WaitForNotification();
    return quit_;
  }

  WorkerOptions options_;
  ExitSignal exit_;
  absl::Notification has_quit_;
  absl::Status quit_ = absl::UnknownError("it has not quit");
  std::unique_ptr<Follower> follower_;
  std::unique_ptr<NodeLeader> leader_;
};

TEST_F(LoadingTest, ALeaderThatFailsTellsTheFollowerWhy) {
  leader_->Fail(absl::ResourceExhaustedError("no room"));
  const absl::Status expected = absl::ResourceExhaustedError("node 0: no room");
  EXPECT_EQ(follower_->Wait(), expected);
}

TEST_F(LoadingTest, AFollowerThatIsToldToTerminateEndsAllAtOnce) {
  follower_->exit().Drain();
  EXPECT_EQ(LeaderQuit(), absl::OkStatus());
  EXPECT_EQ(follower_->Wait(), absl::OkStatus());
}

TEST_F(LoadingTest, SoDoesALeader) {
  exit_.Drain();
  EXPECT_EQ(LeaderQuit(), absl::OkStatus());
  EXPECT_EQ(follower_->Wait(), absl::OkStatus());
}

// The first steps, which have to fetch all that they touch, may take longer
// than any other.
TEST(NodesTest, NobodyHangsBeforeTheLeaderServes) {
  const std::string address = nacre::testing::FreeAddress();
  WorkerOptions impatient = NodeOptions(0, address);
  impatient.pace.hang_timeout = absl::Nanoseconds(1);
  Follower follower(NodeOptions(1, address));
  Leader leader(impatient);
  ASSERT_EQ(leader.status, absl::OkStatus());
  EXPECT_FALSE(LogitsOf(leader.loaded.model.get()).empty());
  leader.leader->StartServing();
  const auto sequence = *leader.loaded.model->NewSequence(16);
  const std::vector<int32_t> tokens = {5};
  // Whoever of the two waits first.
  EXPECT_EQ(leader.loaded.model->Forward({{sequence.get(), tokens, 1}})
                .status()
                .code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(follower.Wait().ok());
}

// What needs no other node is found before any is waited for.
TEST(NodesTest, FlagsThatContradictEachOtherAreFoundBeforeNodesJoin) {
  // Nobody is there.
  for (const int rank : {0, 1}) {
    WorkerOptions options = NodeOptions(rank, nacre::testing::FreeAddress());
    options.nodes.join_timeout = absl::Hours(1);
    options.features.draft = "a folder";
    ExitSignal exit;
    const absl::Status status =
        rank == 0 ? NodeLeader::Start(options, wire::WorkerRole::kTarget, {},
                                      {&exit, nullptr})
                        .status()
                  : RunFollower(options, wire::WorkerRole::kTarget, {}, [] {},
                                {&exit, nullptr});
    EXPECT_THAT(status.ToString(),
                HasSubstr("--tensor-parallel 2 and --publish-features exclude "
                          "each other"));
    options.features.draft.clear();
    options.model_dir = "/no/such";
    EXPECT_THAT(RunFollower(options, wire::WorkerRole::kTarget, {}, [] {},
                            {&exit, nullptr})
                    .ToString(),
                HasSubstr("/no/such"));
  }
}

TEST(NodesTest, WhatDiffersIsRefusedWithBothValues) {
  struct Case {
    std::function<void(WorkerOptions*)> change;
    std::string said;
    wire::WorkerRole role = wire::WorkerRole::kTarget;
  };
  const std::vector<Case> cases = {
      {[](WorkerOptions* options) { options->compute.prefix_cache = false; },
       "--prefix-cache of node 1 is \"off\", of the leader \"on\""},
      {[](WorkerOptions* options) {
         options->compute.max_memory_bytes = 8 << 20;
       },
       "the KV cache's capacity of node 1 is "},
      {[](WorkerOptions* options) { options->compute.backend.weights = "f32"; },
       "numerics_id of node 1 is "}};
  for (const Case& each : cases) {
    const std::string address = nacre::testing::FreeAddress();
    WorkerOptions other = NodeOptions(1, address);
    each.change(&other);
    Follower follower(other, each.role);
    const Leader leader(NodeOptions(0, address));
    EXPECT_EQ(leader.status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(leader.status.ToString(), HasSubstr(each.said));
    if (leader.status.ok()) leader.leader->End(absl::AbortedError("a failure"));
    EXPECT_EQ(follower.Wait(), leader.status);
  }
}

// Before anything is loaded; the leader waits for the right one.
TEST(NodesTest, ANodeOfAnotherGroupIsRefusedWhenItJoins) {
  const std::string address = nacre::testing::FreeAddress();
  WorkerOptions few = NodeOptions(0, address);
  few.nodes.join_timeout = absl::Seconds(20);
  std::thread leads([&] {
    const Leader leader(few);
    EXPECT_EQ(leader.status, absl::OkStatus());
    leader.leader->End(absl::OkStatus());
  });
  WorkerOptions four = NodeOptions(1, address);
  four.compute.tensor_parallel = 4;
  EXPECT_THAT(Follower(four).Wait().ToString(),
              HasSubstr("--tensor-parallel of node 1 is \"4\", of the leader "
                        "\"2\""));
  EXPECT_THAT(Follower(NodeOptions(1, address), wire::WorkerRole::kDraft)
                  .Wait()
                  .ToString(),
              HasSubstr("role of node 1 is \"draft\""));
  EXPECT_EQ(Follower(NodeOptions(1, address)).Wait(), absl::OkStatus());
  leads.join();
}

TEST(NodesTest, AFollowerThatCannotLoadSaysWhyOnBothSides) {
  const std::string address = nacre::testing::FreeAddress();
  WorkerOptions other = NodeOptions(1, address);
  other.compute.backend.cpus = {0, 0};
  Follower follower(other);
  const Leader leader(NodeOptions(0, address));
  const absl::Status status = follower.Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(leader.status.code(), status.code());
  EXPECT_EQ(std::string(leader.status.message()),
            "node 1: " + std::string(status.message()));
}

TEST(NodesTest, WithTlsOnlyHoldersOfACertificateJoin) {
  const nacre::testing::Authority authority("nodes");
  rpc::PeerTlsFlags tls;
  tls.files = authority.Issue(nacre::testing::TestFolder("tls"), "node");
  const auto security = rpc::LoadPeerSecurity(tls);
  ASSERT_TRUE(security.ok()) << security.status();
  const std::string address = nacre::testing::FreeAddress();
  std::thread leads([&] {
    const Leader leader(NodeOptions(0, address), *security);
    EXPECT_EQ(leader.status, absl::OkStatus());
    leader.leader->End(absl::OkStatus());
  });
  WorkerOptions plain = NodeOptions(1, address);
  plain.nodes.join_timeout = absl::Seconds(2);
  EXPECT_EQ(Follower(plain).Wait().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Follower(NodeOptions(1, address), wire::WorkerRole::kTarget,
                     security->channel)
                .Wait(),
            absl::OkStatus());
  leads.join();
}

TEST(NodesTest, ALeaderWithoutFollowersNamesThem) {
  WorkerOptions options = NodeOptions(0, nacre::testing::FreeAddress());
  options.nodes.join_timeout = absl::Seconds(1);
  ExitSignal exit;
  EXPECT_EQ(NodeLeader::Start(options, wire::WorkerRole::kTarget, {},
                              {&exit, nullptr})
                .status(),
            absl::DeadlineExceededError(
                "node 1 has not joined within 1s (--join-timeout)"));
}

}  // namespace
}  // namespace nacre::worker
