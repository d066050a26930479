// A worker as a process of its own, and a session on it.
//
// Not thread-safe.

#ifndef TESTS_WORKER_WORKER_SERVICE_H_
#define TESTS_WORKER_WORKER_SERVICE_H_

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/rpc/channel.h"
#include "proto/worker.grpc.pb.h"
#include "tests/testing/tiny_checkpoint.h"

extern char** environ;

namespace nacre::worker {

// One run of a worker, its stderr in a file.
class Process {
 public:
  // `program` is its path.
  Process(const std::string& program, std::vector<std::string> args)
      : folder_(nacre::testing::TestFolder(
            ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    args.insert(args.begin(), program);
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
inline std::vector<std::string> ServeArgs(const std::string& model) {
  return {"--model", NACRE_MODELS "/" + model, "--coordinator", "127.0.0.1:1"};
}

// A target's session that generates 200 tokens after one.
class OpenSession {
 public:
  // Returns when the worker has opened it, or at once.
  explicit OpenSession(const std::string& address, uint64_t id = 1,
                       bool await_opened = true)
      : stub_(v1::TargetWorker::NewStub(rpc::CreateChannel(address))),
        stream_(stub_->Session(&context_)) {
    v1::TargetControl control;
    v1::OpenTarget* open = control.add_open();
    open->set_session_id(id);
    open->add_token_ids(5);
    open->set_prompt_length(1);
    open->set_max_tokens(200);
    open->set_ignore_eos(true);
    const bool written = stream_->Write(control);
    if (!await_opened) return;
    EXPECT_TRUE(written);
    v1::TargetEvent event;
    EXPECT_TRUE(stream_->Read(&event));
    EXPECT_EQ(event.opened_size(), 1);
  }
  ~OpenSession() {
    context_.TryCancel();
    if (!ended_) stream_->Finish();
  }

  // Says so many times that this session is all there is.
  void Keep(int times) {
    for (int i = 0; i < times; ++i) {
      v1::TargetControl control;
      control.mutable_kept()->add_session_ids(1);
      EXPECT_TRUE(stream_->Write(control));
    }
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

  // How the worker ends the stream, when nothing is acknowledged.
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

}  // namespace nacre::worker

#endif  // TESTS_WORKER_WORKER_SERVICE_H_
