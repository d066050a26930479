// A target whose ranks are in several processes, as on several machines: all
// methods say the tokens of one process, and when one of them dies, its streams
// go on at another target.

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/cpu_list.h"
#include "tests/integration/processes.h"
#include "tests/integration/streams.h"
#include "tests/testing/free_address.h"
#include "tests/testing/random_checkpoint.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::integration {
namespace {

// Of eight heads of keys, which the bundled target has not; it has the bundled
// tokenizer.
std::string RandomTarget() {
  const std::string dir = nacre::testing::TestFolder("nodes_target");
  nacre::testing::WriteRandomCheckpoint(
      R"({"architectures": ["LlamaForCausalLM"], "hidden_act": "silu",
          "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 8,
          "num_key_value_heads": 8, "head_dim": 16, "intermediate_size": 128,
          "vocab_size": 4096, "max_position_embeddings": 512,
          "rms_norm_eps": 1e-5, "eos_token_id": 2})",
      dir);
  for (const char* file : {"tokenizer.model", "tokenizer_config.json"}) {
    std::filesystem::copy_file(TargetModel() + "/" + file, dir + "/" + file);
  }
  return dir;
}

class NodesServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::vector<int> cores = AvailableCpus();
    if (cores.size() < 2) GTEST_SKIP() << "ranks need two cores";
    cores.resize(2);
    cores_ = cores;
  }

  // As of hosts that are busy: what hangs is another test's.
  static Processes::Options Patient() {
    return {.coordinator = {"--worker-timeout=20s"},
            .workers = {"--hang-timeout=5m", "--prefix-cache=on"}};
  }

  std::vector<std::string> Whole(int ranks, const std::string& model) const {
    return {"--model", model, absl::StrCat("--tensor-parallel=", ranks),
            ranks > 1 ? "--cpus=" + FormatCpuList(cores_) : "--cpus=0"};
  }

  // Starts the processes of a target of two nodes, "leader" and "follower".
  void StartNodes(Processes* processes, int ranks,
                  const std::string& model = TargetModel()) {
    address_ = nacre::testing::FreeAddress();
    for (const int node : {0, 1}) {
      processes->StartWorker(node == 0 ? "leader" : "follower", "target",
                             NodeFlags(node, ranks, model));
    }
  }
  std::vector<std::string> NodeFlags(int node, int ranks,
                                     const std::string& model,
                                     int nodes = 2) const {
    std::vector<std::string> flags = Whole(ranks, model);
    if (ranks == nodes) {
      flags.back() =
          absl::StrCat("--cpus=", cores_[static_cast<size_t>(node) % 2]);
    }
    flags.insert(flags.end(), {absl::StrCat("--nodes=", nodes),
                               absl::StrCat("--node-rank=", node),
                               absl::StrCat("--leader-address=", address_)});
    return flags;
  }

  // What one process says, as it would with more ranks, for which there are not
  // cores enough.
  std::vector<Tokens> InOneProcess(int ranks, int kinds, int max_tokens,
                                   const std::string& model = TargetModel()) {
    Processes processes(Patient());
    processes.StartWorker("target", "target", Whole(ranks, model));
    processes.AwaitReady(1);
    Service service(processes.address(), processes.admin_address());
    return QuietRun(service, kinds, max_tokens);
  }

  // Of one kind alone, of the bundled target.
  Tokens KindInOneProcess(int kind, int max_tokens) {
    Processes processes(Patient());
    processes.StartWorker("target", "target", Whole(2, TargetModel()));
    processes.AwaitReady(1);
    Service service(processes.address(), processes.admin_address());
    const StreamOutcome outcome =
        RunStream(service, StreamRequest(kind, v1::METHOD_AR, max_tokens));
    EXPECT_TRUE(outcome.status.ok()) << outcome.status;
    EXPECT_EQ(outcome.streamed.size(), static_cast<size_t>(max_tokens));
    return outcome.streamed;
  }

  std::vector<int> cores_;
  std::string address_;
};

TEST_F(NodesServiceTest, EveryMethodSaysTheTokensOfOneProcess) {
  const std::vector<Tokens> expected = InOneProcess(2, 3, 48);
  Processes processes(Patient());
  StartNodes(&processes, 2);
  processes.StartWorker("draft", "draft");
  processes.AwaitReady(2);
  Service service(processes.address(), processes.admin_address());
  for (int kind = 0; kind < 3; ++kind) {
    ExpectAllMethods(service, kind, expected[static_cast<size_t>(kind)]);
  }
  EXPECT_TRUE(service.KvReturnsToEmpty());
  processes.Signal("leader", SIGTERM);
  processes.AwaitExit("leader");
  processes.AwaitExit("follower");
}

TEST_F(NodesServiceTest, SoDoNodesOfTwoRanksEach) {
  const std::string model = RandomTarget();
  const std::vector<Tokens> expected = InOneProcess(2, 2, 16, model);
  Processes processes(Patient());
  StartNodes(&processes, 4, model);
  processes.StartWorker("draft", "draft");
  processes.AwaitReady(2);
  Service service(processes.address(), processes.admin_address());
  for (int kind = 0; kind < 2; ++kind) {
    ExpectAllMethods(service, kind, expected[static_cast<size_t>(kind)]);
  }
  EXPECT_TRUE(service.KvReturnsToEmpty());
}

// Two ranks to a core: of a small model, for a few tokens.
TEST_F(NodesServiceTest, SoDoFourNodesWithADraftOfTwo) {
  const std::string model = RandomTarget();
  const std::vector<Tokens> expected = InOneProcess(2, 1, 12, model);
  Processes processes(Patient());
  address_ = nacre::testing::FreeAddress();
  for (int node = 0; node < 4; ++node) {
    processes.StartWorker(absl::StrCat("target-", node), "target",
                          NodeFlags(node, 4, model, 4));
  }
  address_ = nacre::testing::FreeAddress();
  for (const int node : {0, 1}) {
    processes.StartWorker(absl::StrCat("draft-", node), "draft",
                          NodeFlags(node, 2, model));
  }
  processes.AwaitReady(2);
  Service service(processes.address(), processes.admin_address());
  ExpectAllMethods(service, 0, expected.front());
  EXPECT_TRUE(service.KvReturnsToEmpty());
  // Whichever is told, all of its target end.
  processes.Signal("target-3", SIGTERM);
  for (int node = 0; node < 4; ++node) {
    processes.AwaitExit(absl::StrCat("target-", node));
  }
}

class LostNodeTest : public NodesServiceTest,
                     public ::testing::WithParamInterface<const char*> {};

INSTANTIATE_TEST_SUITE_P(Which, LostNodeTest,
                         ::testing::Values("leader", "follower"),
                         [](const auto& test) { return test.param; });

TEST_P(LostNodeTest, ItsStreamsGoOnAtAnotherTarget) {
  constexpr int kKind = 1;
  // The same for both.
  static const auto& expected = *new Tokens(KindInOneProcess(kKind, 200));
  const std::string lost = GetParam();
  const std::string other = lost == "leader" ? "follower" : "leader";
  Processes processes(Patient());
  StartNodes(&processes, 2);
  // Of the same arithmetic.
  processes.StartWorker("target", "target", Whole(1, TargetModel()));
  processes.StartWorker("draft", "draft");
  processes.AwaitReady(3);
  Service service(processes.address(), processes.admin_address());
  std::atomic<bool> killed{false};
  ExpectAllMethods(service, kKind, expected, [&](size_t tokens) {
    if (tokens < 16 || killed.exchange(true)) return;
    processes.Signal(lost, SIGKILL);
  });
  EXPECT_TRUE(killed);
  EXPECT_EQ(processes.AwaitEnd(other), "exit code 1");
  const std::string log = processes.Log(other);
  for (const std::string& said :
       lost == "leader" ? std::vector<std::string>{absl::StrCat(
                              "the leader at ", address_, " has ended")}
                        : std::vector<std::string>{"node 1 at ", " is lost"}) {
    EXPECT_TRUE(absl::StrContains(log, said)) << log;
  }
  EXPECT_TRUE(service.KvReturnsToEmpty());
}

// As where the chart has one target of several nodes: its pods come back.
TEST_P(LostNodeTest, ItsStreamsWaitForItToComeBack) {
  constexpr int kKind = 1;
  static const auto& expected = *new Tokens(KindInOneProcess(kKind, 200));
  const std::string lost = GetParam();
  const std::string other = lost == "leader" ? "follower" : "leader";
  Processes::Options options = Patient();
  options.coordinator.push_back("--failover-timeout=5m");
  Processes processes(options);
  StartNodes(&processes, 2);
  processes.StartWorker("draft", "draft");
  processes.AwaitReady(2);
  Service service(processes.address(), processes.admin_address());
  std::atomic<bool> began{false};
  absl::Notification begin;
  std::thread streams([&] {
    ExpectAllMethods(service, kKind, expected, [&](size_t tokens) {
      if (tokens >= 16 && !began.exchange(true)) begin.Notify();
    });
  });
  EXPECT_TRUE(begin.WaitForNotificationWithTimeout(absl::Minutes(2)));
  processes.Signal(lost, SIGKILL);
  EXPECT_EQ(processes.AwaitEnd(lost), "signal 9 (Killed)");
  EXPECT_EQ(processes.AwaitEnd(other), "exit code 1");
  // In this thread: processes end with the thread that started them.
  StartNodes(&processes, 2);
  streams.join();
  EXPECT_TRUE(service.KvReturnsToEmpty());
}

TEST_F(NodesServiceTest, AFollowerThatHangsEndsItsLeader) {
  constexpr int kKind = 1;
  const Tokens expected = KindInOneProcess(kKind, 60);
  Processes processes(Patient());
  // Of these two alone, and long enough for hosts that are busy.
  address_ = nacre::testing::FreeAddress();
  for (const int node : {0, 1}) {
    std::vector<std::string> flags = NodeFlags(node, 2, TargetModel());
    flags.push_back("--hang-timeout=10s");
    processes.StartWorker(node == 0 ? "leader" : "follower", "target", flags);
  }
  processes.StartWorker("target", "target", Whole(1, TargetModel()));
  processes.StartWorker("draft", "draft");
  processes.AwaitReady(3);
  Service service(processes.address(), processes.admin_address());
  processes.Signal("follower", SIGSTOP);
  ExpectAllMethods(service, kKind, expected);
  EXPECT_EQ(processes.AwaitEnd("leader"), "exit code 1");
  EXPECT_TRUE(absl::StrContains(processes.Log("leader"),
                                "node 1 has sent nothing for 10s"))
      << processes.Log("leader");
  processes.Signal("follower", SIGCONT);
  EXPECT_EQ(processes.AwaitEnd("follower"), "exit code 1");
}

TEST_F(NodesServiceTest, AFollowerEndsWithItsLeader) {
  Processes processes(Patient());
  StartNodes(&processes, 2);
  processes.AwaitReady(1);
  // A node that comes later is refused, and the others go on.
  processes.StartWorker("stranger", "target", NodeFlags(1, 2, TargetModel()));
  EXPECT_EQ(processes.AwaitEnd("stranger"), "exit code 1");
  EXPECT_TRUE(absl::StrContains(processes.Log("stranger"),
                                "node 1 has joined already, from"))
      << processes.Log("stranger");
  Service service(processes.address(), processes.admin_address());
  EXPECT_EQ(QuietRun(service, 1, 8).size(), 1u);
  processes.Signal("leader", SIGKILL);
  EXPECT_EQ(processes.AwaitEnd("follower"), "exit code 1");
  EXPECT_TRUE(
      absl::StrContains(processes.Log("follower"),
                        absl::StrCat("the leader at ", address_, " has ended")))
      << processes.Log("follower");
}

// As when the machine of one of them is emptied.
TEST_F(NodesServiceTest, AFollowerThatIsToldToTerminateDrainsTheTarget) {
  Processes processes(Patient());
  StartNodes(&processes, 2);
  processes.AwaitReady(1);
  processes.Signal("follower", SIGTERM);
  processes.AwaitExit("leader");
  processes.AwaitExit("follower");
}

// Of four nodes two are there, which wait for the others.
TEST_F(NodesServiceTest, NodesThatLoadEndTogetherWhenOneIsToldTo) {
  for (const char* told : {"leader", "follower"}) {
    Processes processes(Patient());
    address_ = nacre::testing::FreeAddress();
    const std::string model = RandomTarget();
    for (const int node : {0, 1}) {
      processes.StartWorker(node == 0 ? "leader" : "follower", "target",
                            NodeFlags(node, 4, model, 4));
    }
    ASSERT_TRUE(Service::Eventually([&] {
      return absl::StrContains(processes.Log("leader"), "node 1 has joined");
    }));
    processes.Signal(told, SIGTERM);
    processes.AwaitExit("leader");
    processes.AwaitExit("follower");
  }
}

TEST_F(NodesServiceTest, ALeaderThatCannotLoadTellsItsFollowerWhy) {
  Processes processes(Patient());
  const std::string model = RandomTarget();
  const std::string without = model + "_without_tokenizer";
  std::filesystem::remove_all(without);
  std::filesystem::copy(model, without);
  std::filesystem::remove(without + "/tokenizer.model");
  address_ = nacre::testing::FreeAddress();
  processes.StartWorker("leader", "target", NodeFlags(0, 2, without));
  processes.StartWorker("follower", "target", NodeFlags(1, 2, model));
  EXPECT_EQ(processes.AwaitEnd("leader"), "exit code 1");
  EXPECT_EQ(processes.AwaitEnd("follower"), "exit code 1");
  const std::string log = processes.Log("follower");
  EXPECT_TRUE(absl::StrContains(log, "node 0: ")) << log;
  EXPECT_TRUE(absl::StrContains(log, without)) << log;
}

}  // namespace
}  // namespace nacre::integration
