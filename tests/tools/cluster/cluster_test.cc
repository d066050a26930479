#include "tools/cluster/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/files.h"
#include "tests/testing/certificates.h"
#include "tests/tools/fake_coordinator.h"
#include "tools/cluster/temporary_folder.h"

namespace nacre::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Shell scripts stand for the programs; the coordinator's writes the address of
// a server inside the test.
class ClusterTest : public ::testing::Test {
 protected:
  ClusterTest()
      : server_([](const auto&, auto*, auto*) { return grpc::Status::OK; }) {
    server_.SetWorkers({v1::WORKER_ROLE_DRAFT, v1::WORKER_ROLE_TARGET});
    Script("nacre-coordinator", AddressScript(server_.address()));
    Script("nacre-target-worker", "exec sleep 1000");
    Script("nacre-draft-worker", "exec sleep 1000");
    options_.target_model = "/models/target";
    options_.draft_model = "/models/draft";
    options_.bin_dir = folder_.path();
    options_.log_dir = folder_.path();
    options_.ready_timeout = absl::Seconds(60);
    options_.supervisor.backoff = absl::Milliseconds(1);
    options_.supervisor.report = [](const std::string&) {};
  }

  // Has one address for all of its ports.
  static std::string AddressScript(const std::string& address) {
    return absl::StrCat(
        "while [ $# -gt 0 ]; do\ncase $1 in --*address-file) echo ", address,
        " > \"$2.tmp\"; mv \"$2.tmp\" \"$2\";; esac\nshift\ndone\n",
        "exec sleep 1000");
  }

  // Each first notes its arguments in NAME.args.
  void Script(const std::string& name, const std::string& body) {
    const std::string path = folder_.path() + "/" + name;
    std::ofstream(path) << "#!/bin/sh\necho \"$*\" >> " << path << ".args\n"
                        << body << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }

  std::string ArgsOf(const std::string& name) {
    const auto args = ReadFile(folder_.path() + "/" + name + ".args");
    return args.ok() ? *args : "";
  }

  // Until a script started in the background has noted its arguments.
  bool WaitForArgs(const std::string& name, const std::string& text) {
    const absl::Time deadline = absl::Now() + absl::Seconds(60);
    while (ArgsOf(name).find(text) == std::string::npos) {
      if (absl::Now() >= deadline) return false;
      absl::SleepFor(absl::Milliseconds(5));
    }
    return true;
  }

  const TemporaryFolder folder_;
  FakeCoordinator server_;
  Cluster::Options options_;
};

TEST_F(ClusterTest, StartsEveryProgramWithItsFlags) {
  server_.SetWorkers(
      {v1::WORKER_ROLE_TARGET, v1::WORKER_ROLE_DRAFT, v1::WORKER_ROLE_DRAFT});
  options_.drafts = 2;
  options_.cpus = "3-7";
  options_.drain_timeout = absl::Seconds(90);
  options_.more_args.coordinator = {"--max-queue=3"};
  options_.more_args.worker = {"--hang-timeout=9s"};
  options_.more_args.draft = {"--record-features=f"};
  options_.more_args.target = {"--gate-timeouts=off"};
  auto cluster = Cluster::Start(options_);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ((*cluster)->address(), server_.address());
  EXPECT_THAT((*cluster)->WorkerLines(),
              ::testing::ElementsAre("target-0  cpus 3,6  /models/target",
                                     "draft-0  cpus 4,7  /models/draft",
                                     "draft-1  cpus 5  /models/draft"));
  EXPECT_THAT(ArgsOf("nacre-coordinator"),
              HasSubstr("--listen 127.0.0.1:0 --registry-listen 127.0.0.1:0 "
                        "--admin-listen 127.0.0.1:0 --tokenizer /models/target "
                        "--address-file "));
  EXPECT_THAT(ArgsOf("nacre-coordinator"),
              HasSubstr(" --drain-timeout 1m30s --max-queue=3\n"));
  EXPECT_THAT(ArgsOf("nacre-coordinator"), Not(HasSubstr("metrics")));
  EXPECT_EQ((*cluster)->metrics_address(), "");
  ASSERT_TRUE(WaitForArgs(
      "nacre-target-worker",
      absl::StrCat("--model /models/target --coordinator ", server_.address(),
                   " --cpus 3,6 --drain-timeout 1m30s --hang-timeout=9s "
                   "--gate-timeouts=off\n")));
  EXPECT_TRUE(WaitForArgs("nacre-draft-worker", "--cpus 4,7"));
  EXPECT_TRUE(WaitForArgs("nacre-draft-worker", "--cpus 5"));
  EXPECT_TRUE(WaitForArgs("nacre-draft-worker",
                          " --target-tokenizer /models/target --drain-timeout "
                          "1m30s --hang-timeout=9s --record-features=f\n"));
}

TEST_F(ClusterTest, ATargetComputesWhatAnEagleDraftElsewhereReads) {
  options_.draft_model = NACRE_MODELS "/eagle";
  auto cluster = Cluster::Start(options_);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_TRUE(WaitForArgs("nacre-target-worker",
                          "--publish-features " NACRE_MODELS "/eagle"));
  EXPECT_TRUE(
      WaitForArgs("nacre-draft-worker", "--target-tokenizer /models/target"));
}

// What is typed, as a command does it.
TEST_F(ClusterTest, HandsOnTheWorkersFlagsThatWereGiven) {
  FlagSet flags("nacre x", "");
  options_.Register(&flags);
  ASSERT_TRUE(flags
                  .Parse({"--backend",
                          "reference",
                          "--weights=f32",
                          "--kv-type=bf16",
                          "--device=1",
                          "--max-memory=512M",
                          "--prefix-cache=off",
                          "--tensor-transport=grpc",
                          "--draft-backend=cpu",
                          "--draft-weights=int4",
                          "--draft-device=2",
                          "--target-step-time=1:30",
                          "--draft-step-time=1:3,8:4",
                          "--suffix-drafter=on",
                          "--suffix-cache=1M",
                          "--medusa=heads",
                          "--medusa-tree=best",
                          "--policy-file=disco=/a",
                          "--policy-file",
                          "specdec++=/b",
                          "--least-vocabulary-share=0.25"},
                         nullptr)
                  .ok());
  options_.HandOn(flags);
  auto cluster = Cluster::Start(options_);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const std::string all =
      " --backend=reference --weights=f32 --kv-type=bf16 --device=1 "
      "--max-memory=512M --prefix-cache=off --tensor-transport=grpc ";
  EXPECT_TRUE(WaitForArgs(
      "nacre-target-worker",
      all + "--step-time=1:30 --suffix-drafter=on --suffix-cache=1M "
            "--medusa=heads --medusa-tree=best\n"))
      << ArgsOf("nacre-target-worker");
  EXPECT_TRUE(WaitForArgs(
      "nacre-draft-worker",
      all + "--backend=cpu --weights=int4 --device=2 --step-time=1:3,8:4 "
            "--policy-file=disco=/a --policy-file=specdec++=/b "
            "--least-vocabulary-share=0.25\n"))
      << ArgsOf("nacre-draft-worker");
}

TEST_F(ClusterTest, GivesAWorkerNoFlagThatWasNotGiven) {
  FlagSet flags("nacre x", "");
  options_.Register(&flags);
  ASSERT_TRUE(flags.Parse({"--eagle=e"}, nullptr).ok());
  options_.HandOn(flags);
  EXPECT_THAT(options_.more_args.worker, ::testing::IsEmpty());
  EXPECT_THAT(options_.more_args.draft, ::testing::IsEmpty());
  EXPECT_THAT(options_.more_args.target, ::testing::ElementsAre("--eagle=e"));
}

// A flag that is new in a group is nothing that this folder knows of.
TEST_F(ClusterTest, HandsOnAFlagThatIsNewInAGroup) {
  FlagSet flags("nacre x", "");
  options_.Register(&flags);
  std::string all;
  std::string own;
  std::string page;
  flags.BeginGroup("worker");
  flags.Add("hang-timeout", "DURATION", &all, "");
  flags.BeginGroup("draft", "draft-", "of the drafts");
  flags.Add("spin", "DURATION", &own, "");
  flags.BeginGroup("gateway");
  flags.Add("new-page", "TEXT", &page, "");
  ASSERT_TRUE(
      flags
          .Parse({"--draft-spin=2ms", "--hang-timeout=9s", "--new-page=p"},
                 nullptr)
          .ok());
  options_.HandOn(flags);
  EXPECT_THAT(options_.more_args.gateway,
              ::testing::ElementsAre("--new-page=p"));
  auto cluster = Cluster::Start(options_);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_TRUE(WaitForArgs("nacre-target-worker", " --hang-timeout=9s\n"));
  EXPECT_TRUE(
      WaitForArgs("nacre-draft-worker", " --hang-timeout=9s --spin=2ms\n"));
}

// Where every prompt is to be read, it is, unless the user says otherwise.
TEST_F(ClusterTest, ReadsPromptsWholeUnlessToldOtherwise) {
  options_.ReadPromptsWhole();
  FlagSet flags("nacre x", "");
  options_.Register(&flags);
  EXPECT_THAT(flags.Help(), HasSubstr("outputs are the same (default off)"));
  ASSERT_TRUE(flags.Parse({"--prefix-cache=on"}, nullptr).ok());
  options_.HandOn(flags);
  EXPECT_THAT(
      options_.more_args.worker,
      ::testing::ElementsAre("--prefix-cache=off", "--prefix-cache=on"));
}

TEST_F(ClusterTest, TellsWhereMetricsAreAndKeepsThemThere) {
  options_.metrics_port = 0;
  options_.cpus = "3-4";
  Script("nacre-target-worker", AddressScript("127.0.0.1:7001"));
  Script("nacre-draft-worker", AddressScript("127.0.0.1:7002"));
  auto cluster = Cluster::Start(options_);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ((*cluster)->metrics_address(), server_.address());
  EXPECT_THAT((*cluster)->WorkerLines(),
              ::testing::ElementsAre(
                  "target-0  cpus 3  /models/target  metrics 127.0.0.1:7001",
                  "draft-0  cpus 4  /models/draft  metrics 127.0.0.1:7002"));
  for (const char* name :
       {"nacre-coordinator", "nacre-target-worker", "nacre-draft-worker"}) {
    EXPECT_THAT(ArgsOf(name), HasSubstr("--metrics-listen 127.0.0.1:0 "));
  }
  kill((*cluster)->supervisor().PidOf("coordinator"), SIGKILL);
  kill((*cluster)->supervisor().PidOf("draft-0"), SIGKILL);
  EXPECT_TRUE(WaitForArgs("nacre-coordinator",
                          "--metrics-listen " + server_.address()));
  EXPECT_TRUE(
      WaitForArgs("nacre-draft-worker", "--metrics-listen 127.0.0.1:7002"));
}

TEST_F(ClusterTest, MetricsHaveThePortThatIsAskedFor) {
  options_.metrics_port = 9100;
  options_.drafts = 0;
  Script("nacre-target-worker", AddressScript("127.0.0.1:7001"));
  auto cluster = Cluster::Start(options_);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_THAT(ArgsOf("nacre-coordinator"),
              HasSubstr("--metrics-listen 127.0.0.1:9100 "));
  EXPECT_THAT(ArgsOf("nacre-target-worker"),
              HasSubstr("--metrics-listen 127.0.0.1:0 "));
}

TEST_F(ClusterTest, ClientsAndOperatorsShowTokensOfTheirOwn) {
  options_.auth_tokens_file = folder_.path() + "/clients";
  options_.admin_tokens_file = folder_.path() + "/operators";
  std::ofstream(options_.auth_tokens_file) << "alice:client-0123456789\n";
  std::ofstream(options_.admin_tokens_file) << "operator-0123456789\n";
  auto cluster = Cluster::Start(options_);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(server_.client_authorization(), "Bearer client-0123456789");
  EXPECT_EQ(server_.operator_authorization(), "Bearer operator-0123456789");
  EXPECT_EQ((*cluster)->security().token, "client-0123456789");
  EXPECT_EQ((*cluster)->operator_security().token, "operator-0123456789");
  EXPECT_THAT(ArgsOf("nacre-coordinator"),
              HasSubstr(absl::StrCat(
                  " --auth-tokens-file ", options_.auth_tokens_file,
                  " --admin-tokens-file ", options_.admin_tokens_file, "\n")));
}

TEST_F(ClusterTest, RefusesTokensThatCannotBeRead) {
  for (std::string Cluster::Options::*file :
       {&Cluster::Options::auth_tokens_file,
        &Cluster::Options::admin_tokens_file}) {
    Cluster::Options options = options_;
    options.*file = "/no/such/tokens";
    const absl::Status status = Cluster::Start(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(status.message()), HasSubstr("/no/such/tokens"));
  }
  EXPECT_EQ(ArgsOf("nacre-coordinator"), "") << "nothing was started";
}

TEST_F(ClusterTest, GivesEveryProgramTheCertificate) {
  const nacre::testing::Authority authority("authority");
  options_.tls = authority.Issue(folder_.path(), "all",
                                 {.alternative_names = "DNS:nacre.test"});
  options_.tls_server_name = "nacre.test";
  const auto security = rpc::LoadPeerSecurity({options_.tls});
  ASSERT_TRUE(security.ok()) << security.status();
  FakeCoordinator server(
      [](const auto&, auto*, auto*) { return grpc::Status::OK; },
      security->server);
  server.SetWorkers({v1::WORKER_ROLE_DRAFT, v1::WORKER_ROLE_TARGET});
  Script("nacre-coordinator", AddressScript(server.address()));
  auto cluster = Cluster::Start(options_);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const std::string flags =
      absl::StrCat(" --tls-cert ", options_.tls.cert_file, " --tls-key ",
                   options_.tls.key_file, " --tls-ca ", options_.tls.ca_file,
                   " --tls-server-name nacre.test\n");
  for (const char* name :
       {"nacre-coordinator", "nacre-target-worker", "nacre-draft-worker"}) {
    EXPECT_TRUE(WaitForArgs(name, flags)) << ArgsOf(name);
  }
}

TEST_F(ClusterTest, RefusesABadCertificate) {
  options_.tls.cert_file = "/no/such.crt";
  options_.tls.key_file = "/no/such.key";
  EXPECT_EQ(Cluster::Start(options_).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(ClusterTest, RunsWithoutADraft) {
  server_.SetWorkers({v1::WORKER_ROLE_TARGET});
  options_.drafts = 0;
  options_.draft_model = "";
  auto cluster = Cluster::Start(options_);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ((*cluster)->supervisor().PidOf("draft-0"), 0);
}

TEST_F(ClusterTest, RestartsTheCoordinatorWhereItWas) {
  auto cluster = Cluster::Start(options_);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  kill((*cluster)->supervisor().PidOf("coordinator"), SIGKILL);
  EXPECT_TRUE(
      WaitForArgs("nacre-coordinator",
                  absl::StrCat("--listen ", server_.address(),
                               " --registry-listen ", server_.address(),
                               " --admin-listen ", server_.address(), " ")));
}

TEST_F(ClusterTest, ReportsAWorkerThatCannotStart) {
  server_.SetWorkers({v1::WORKER_ROLE_TARGET});
  Script("nacre-draft-worker",
         "echo starting; echo 'no such folder: /models/draft' >&2; exit 1");
  // With logs in files, and with logs that go where ours go.
  for (const std::string& log_dir : {folder_.path(), std::string()}) {
    options_.log_dir = log_dir;
    const auto cluster = Cluster::Start(options_);
    EXPECT_EQ(cluster.status().code(), absl::StatusCode::kAborted);
    EXPECT_EQ(std::string(cluster.status().message()),
              "draft-0 ended with exit code 1 while starting: no such folder: "
              "/models/draft");
  }
}

TEST_F(ClusterTest, ReportsACoordinatorThatCannotStart) {
  Script("nacre-coordinator", "echo port taken; exit 1");
  const auto cluster = Cluster::Start(options_);
  EXPECT_EQ(cluster.status().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(cluster.status().message()),
              HasSubstr("coordinator ended with exit code 1 while starting: "
                        "port taken"));
}

TEST_F(ClusterTest, ReportsAMissingProgram) {
  std::filesystem::remove(folder_.path() + "/nacre-target-worker");
  EXPECT_EQ(Cluster::Start(options_).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(ClusterTest, GivesUpOnWorkersThatNeverGetReady) {
  server_.SetWorkers({v1::WORKER_ROLE_DRAFT});
  // The coordinator's script must have written its address by then.
  options_.ready_timeout = absl::Seconds(3);
  const auto cluster = Cluster::Start(options_);
  EXPECT_EQ(cluster.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(cluster.status().message()),
              HasSubstr("the cluster"));
}

TEST_F(ClusterTest, StopsWaitingWhenInterrupted) {
  server_.SetWorkers({});
  options_.interrupted = [] { return true; };
  EXPECT_EQ(Cluster::Start(options_).status().code(),
            absl::StatusCode::kCancelled);
}

TEST_F(ClusterTest, ChecksItsOptions) {
  const auto error = [this](const auto& change) {
    Cluster::Options options = options_;
    change(options);
    const absl::Status status = Cluster::Start(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(error([](auto& options) { options.cpus = "x"; }),
              HasSubstr("flag --cpus: "));
  EXPECT_THAT(error([](auto& options) { options.metrics_port = 65536; }),
              HasSubstr("flag --metrics-port: 65536 is not in 0..65535"));
  EXPECT_THAT(error([](auto& options) {
                options.more_args.target = {"--medusa=m", "--eagle=e"};
              }),
              HasSubstr("target workers: --medusa, --eagle and --glide exclude "
                        "each other"));
  EXPECT_THAT(
      error([](auto& options) { options.drain_timeout = -absl::Seconds(1); }),
      HasSubstr("flag --drain-timeout: -1s is below 0"));
}

// Flags of all workers and those of the drafts alone may contradict each other.
TEST_F(ClusterTest, RefusesWhatItsWorkersWouldRefuse) {
  struct Case {
    std::vector<std::string> args;
    const char* error;  // empty: it is none
  };
  const std::vector<Case> cases = {
      {{"--backend=cuda", "--prefix-cache-size=1G"},
       "target workers: --prefix-cache-size 1073741824: the backend cuda"},
      {{"--draft-backend=cuda", "--prefix-cache-size=1G"},
       "draft workers: --prefix-cache-size 1073741824: the backend cuda"},
      {{"--draft-backend=cuda", "--draft-prefix-cache-size=0",
        "--prefix-cache-size=1G"},
       ""},
      {{"--draft-prefix-cache-dir=/d"},
       "draft workers: --prefix-cache-dir /d needs --prefix-cache-size"},
      {{"--draft-prefix-cache-dir=/d", "--prefix-cache-size=1G"}, ""},
      {{"--draft-prefix-cache=off", "--prefix-cache-size=1G"},
       "draft workers: --prefix-cache-size 1073741824 needs --prefix-cache on"},
      {{"--tensor-transport=nccl"},
       "target workers: --tensor-transport nccl needs --backend cuda, it is "
       "cpu"}};
  for (const Case& each : cases) {
    Cluster::Options options = options_;
    FlagSet flags("nacre x", "");
    options.Register(&flags);
    ASSERT_TRUE(flags.Parse(each.args, nullptr).ok());
    options.HandOn(flags);
    const absl::Status status = options.Validate();
    EXPECT_EQ(status.ok(), *each.error == '\0') << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(each.error));
    // What drafts would refuse is no matter where there are none.
    options.drafts = 0;
    EXPECT_EQ(options.Validate().ok(),
              !absl::StartsWith(each.error, "target workers"));
  }
  EXPECT_EQ(ArgsOf("nacre-coordinator"), "") << "nothing was started";
}

}  // namespace
}  // namespace nacre::tools
