// The life of a worker process, on the real programs and the bundled models.

#include "worker/process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/rpc/channel.h"
#include "proto/worker.grpc.pb.h"
#include "tests/testing/tiny_checkpoint.h"

extern char** environ;

namespace nacre::worker {
namespace {

using ::testing::HasSubstr;

// One run of a worker, its stderr in a file.
class Process {
 public:
  Process(const std::string& name, std::vector<std::string> args)
      : folder_(nacre::testing::TestFolder(
            ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    args.insert(args.begin(), NACRE_BIN "/" + name);
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO,
                                     (folder_ + "/stderr").c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
    EXPECT_EQ(
        posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ),
        0);
    posix_spawn_file_actions_destroy(&actions);
  }
  ~Process() {
    if (pid_ == 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  void Signal(int signal_number) { kill(pid_, signal_number); }

  // The exit code; -1 when a signal ended it.
  int Wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::string Stderr() const {
    return nacre::testing::ReadFile(folder_ + "/stderr");
  }
  // Polls: another process cannot notify this one.
  void AwaitLog(const std::string& text) {
    const absl::Time deadline = absl::Now() + absl::Seconds(120);
    while (Stderr().find(text) == std::string::npos) {
      ASSERT_LT(absl::Now(), deadline) << Stderr();
      absl::SleepFor(absl::Milliseconds(5));
    }
  }
  std::string Address() {
    AwaitLog("serving on ");
    const std::string log = Stderr();
    const size_t begin = log.find("serving on ") + 11;
    return log.substr(begin, log.find('\n', begin) - begin);
  }

 private:
  std::string folder_;
  pid_t pid_ = 0;
};

// No coordinator is there: the worker goes on trying.
std::vector<std::string> ServeArgs(const std::string& model) {
  return {"--model", NACRE_MODELS "/" + model, "--coordinator", "127.0.0.1:1"};
}

TEST(WorkerProcessTest, ABadStartIsOneLineAndExitCodeOne) {
  for (const auto& [args, message] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{}, "--model DIR is required"},
           {{"--model", "/no/such", "--coordinator", "h:1"}, "/no/such"},
           {{"--model", NACRE_MODELS "/target", "--coordinator", "h:1",
             "--listen", "256.0.0.1:1"},
            "cannot listen on 256.0.0.1:1"}}) {
    Process process("nacre-target-worker", args);
    EXPECT_EQ(process.Wait(), 1);
    const std::string log = process.Stderr();
    const std::string last = log.substr(log.rfind("\n", log.size() - 2) + 1);
    EXPECT_THAT(last, ::testing::StartsWith("nacre-target-worker: "));
    EXPECT_THAT(last, HasSubstr(message));
  }
}

TEST(WorkerProcessTest, HelpIsExitCodeZero) {
  EXPECT_EQ(Process("nacre-draft-worker", {"--help"}).Wait(), 0);
}

TEST(WorkerProcessTest, TerminatesCleanlyWhenNothingIsOpen) {
  for (const int signal_number : {SIGTERM, SIGINT}) {
    Process process("nacre-draft-worker", ServeArgs("draft"));
    process.AwaitLog("serving on ");
    process.Signal(signal_number);
    EXPECT_EQ(process.Wait(), 0) << process.Stderr();
  }
}

class OpenSession {
 public:
  explicit OpenSession(const std::string& address)
      : stub_(v1::TargetWorker::NewStub(rpc::CreateChannel(address))),
        stream_(stub_->Session(&context_)) {
    v1::TargetControl control;
    v1::OpenTarget* open = control.add_open();
    open->set_session_id(1);
    open->add_token_ids(5);
    open->set_prompt_length(1);
    open->set_max_tokens(200);
    open->set_ignore_eos(true);
    EXPECT_TRUE(stream_->Write(control));
    v1::TargetEvent event;
    EXPECT_TRUE(stream_->Read(&event));
    EXPECT_EQ(event.opened_size(), 1);
  }
  ~OpenSession() {
    context_.TryCancel();
    if (!ended_) stream_->Finish();
  }

  // Tells how many tokens the worker committed, acknowledging all of them.
  int ReadToEnd() {
    int length = 1;
    v1::TargetEvent event;
    while (stream_->Read(&event)) {
      v1::TargetControl control;
      for (const v1::Verdict& verdict : event.verdicts()) {
        length += verdict.token_ids_size();
        if (verdict.finish() != v1::FINISH_REASON_UNSPECIFIED) {
          control.add_close()->set_session_id(1);
        }
        v1::Acknowledge* acknowledge = control.add_acknowledge();
        acknowledge->set_session_id(1);
        acknowledge->set_committed_length(static_cast<uint32_t>(length));
      }
      if (event.closed_size() > 0) break;
      stream_->Write(control);
    }
    return length - 1;
  }

  // How the worker ends the stream, when nobody acknowledges anything.
  grpc::Status AwaitEnd() {
    v1::TargetEvent event;
    while (stream_->Read(&event)) {
    }
    ended_ = true;
    return stream_->Finish();
  }

 private:
  std::unique_ptr<v1::TargetWorker::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::TargetControl, v1::TargetEvent>>
      stream_;
  bool ended_ = false;
};

TEST(WorkerProcessTest, ADrainLetsOpenSessionsEnd) {
  Process process("nacre-target-worker", ServeArgs("target"));
  OpenSession session(process.Address());
  process.Signal(SIGTERM);
  process.AwaitLog("draining 1 sessions");
  EXPECT_EQ(session.ReadToEnd(), 200);
  EXPECT_EQ(process.Wait(), 0) << process.Stderr();
}

TEST(WorkerProcessTest, ADrainEndsAtItsTimeout) {
  std::vector<std::string> args = ServeArgs("target");
  args.push_back("--drain-timeout=50ms");
  Process process("nacre-target-worker", args);
  // Nobody acknowledges: the session stands still after 64 tokens.
  OpenSession session(process.Address());
  process.Signal(SIGTERM);
  const grpc::Status end = session.AwaitEnd();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(end.error_message(), HasSubstr("the worker is stopping"));
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_THAT(process.Stderr(), HasSubstr("1 sessions were still open"));
}

TEST(WorkerProcessTest, ASecondSignalEndsItAtOnce) {
  Process process("nacre-target-worker", ServeArgs("target"));
  OpenSession session(process.Address());
  process.Signal(SIGTERM);
  process.AwaitLog("draining 1 sessions");
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), -1);
}

}  // namespace
}  // namespace nacre::worker
