// The life of a worker process, on the real programs and the bundled models.

#include "worker/process/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <utility>
#include <vector>

#include "common/rpc/server.h"
#include "tests/worker/fake_registry.h"
#include "tests/worker/worker_service.h"

namespace nacre::worker {
namespace {

using ::testing::HasSubstr;

TEST(WorkerProcessTest, ABadStartIsOneLineAndExitCodeOne) {
  for (const auto& [args, message] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{}, "--model DIR is required"},
           {{"--model", "/no/such", "--coordinator", "h:1"}, "/no/such"},
           // Before anything is loaded.
           {{"--model", "/no/such", "--coordinator", "h:1", "--record-features",
             "x"},
            "--record-features of a target needs --record-hidden"},
           {{"--model", NACRE_MODELS "/target", "--coordinator", "h:1",
             "--listen", "256.0.0.1:1"},
            "cannot listen on 256.0.0.1:1"}}) {
    Process process(NACRE_BIN "/nacre-target-worker", args);
    EXPECT_EQ(process.Wait(), 1);
    const std::string log = process.Stderr();
    const std::string last = log.substr(log.rfind("\n", log.size() - 2) + 1);
    EXPECT_THAT(last, ::testing::StartsWith("nacre-target-worker: "));
    EXPECT_THAT(last, HasSubstr(message));
  }
}

TEST(WorkerProcessTest, HelpIsExitCodeZero) {
  EXPECT_EQ(Process(NACRE_BIN "/nacre-draft-worker", {"--help"}).Wait(), 0);
}

TEST(WorkerProcessTest, TerminatesCleanlyWhenNothingIsOpen) {
  for (const int signal_number : {SIGTERM, SIGINT}) {
    Process process(NACRE_BIN "/nacre-draft-worker", ServeArgs("draft"));
    process.AwaitLog("serving on ");
    process.Signal(signal_number);
    EXPECT_EQ(process.Wait(), 0) << process.Stderr();
  }
}

TEST(WorkerProcessTest, ADrainLetsOpenSessionsEnd) {
  Process process(NACRE_BIN "/nacre-target-worker", ServeArgs("target"));
  OpenSession session(process.Address());
  process.Signal(SIGTERM);
  process.AwaitLog("draining 1 sessions");
  EXPECT_EQ(session.ReadToEnd(), 200);
  EXPECT_EQ(process.Wait(), 0) << process.Stderr();
}

// One that the coordinator began before it heard of the drain.
TEST(WorkerProcessTest, ADrainServesASessionThatWasOnItsWay) {
  FakeRegistry registry;
  const auto server = *rpc::RpcServer::Start({}, {&registry});
  Process process(
      NACRE_BIN "/nacre-target-worker",
      {"--model", NACRE_MODELS "/target", "--coordinator", server->address()});
  const std::string address = registry.NextEvent().hello().address();
  registry.Ask(1);
  EXPECT_TRUE(registry.NextEvent().has_vocabulary_proof());
  registry.Accept();
  int heartbeats = 1;
  EXPECT_FALSE(registry.NextEvent().heartbeat().draining());
  process.Signal(SIGTERM);
  while (++heartbeats, !registry.NextEvent().heartbeat().draining()) {
    ASSERT_FALSE(HasFailure());
  }
  OpenSession session(address);
  session.Keep(heartbeats);
  // One that leaves has said its last word by now.
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(registry.NextEvent().has_heartbeat());
  }
  EXPECT_EQ(session.ReadToEnd(), 200);
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_THAT(process.Stderr(),
              ::testing::Not(HasSubstr("has not said that it knows")));
}

TEST(WorkerProcessTest, ADrainEndsAtItsTimeout) {
  std::vector<std::string> args = ServeArgs("target");
  args.push_back("--drain-timeout=50ms");
  Process process(NACRE_BIN "/nacre-target-worker", args);
  // No acknowledgement comes: the session stands still after 64 tokens.
  OpenSession session(process.Address());
  process.Signal(SIGTERM);
  const grpc::Status end = session.AwaitEnd();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(end.error_message(), HasSubstr("the worker is stopping"));
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_THAT(process.Stderr(), HasSubstr("1 sessions were still open"));
}

TEST(WorkerProcessTest, ASecondSignalEndsItAtOnce) {
  Process process(NACRE_BIN "/nacre-target-worker", ServeArgs("target"));
  OpenSession session(process.Address());
  process.Signal(SIGTERM);
  process.AwaitLog("draining 1 sessions");
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), -1);
}

}  // namespace
}  // namespace nacre::worker
