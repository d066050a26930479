#include "tools/cluster/supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "absl/time/clock.h"
#include "common/files.h"
#include "tools/cluster/temporary_folder.h"

namespace nacre::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kLimit = absl::Seconds(60);

ChildProcess::Options Shell(const std::string& script) {
  return {{"/bin/sh", "-c", script}, ""};
}

// Waits for another process to get somewhere; false after kLimit.
bool WaitUntil(const std::function<bool()>& condition) {
  const absl::Time deadline = absl::Now() + kLimit;
  while (!condition()) {
    if (absl::Now() >= deadline) return false;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return true;
}

TEST(ChildProcessTest, TellsHowTheProgramEnded) {
  auto failed = ChildProcess::Start(Shell("exit 3"));
  ASSERT_TRUE(failed.ok()) << failed.status();
  ASSERT_TRUE((*failed)->WaitForEnd(kLimit));
  EXPECT_EQ((*failed)->Poll(), "exit code 3");

  auto killed = ChildProcess::Start(Shell("exec sleep 1000"));
  ASSERT_TRUE(killed.ok());
  EXPECT_EQ((*killed)->Poll(), std::nullopt);
  EXPECT_FALSE((*killed)->WaitForEnd(absl::ZeroDuration()));
  (*killed)->Signal(SIGKILL);
  ASSERT_TRUE((*killed)->WaitForEnd(kLimit));
  EXPECT_EQ((*killed)->Poll(), "signal 9 (Killed)");
}

TEST(ChildProcessTest, RefusesWhatCannotRun) {
  EXPECT_EQ(ChildProcess::Start({{"/no/such/program"}, ""}).status().code(),
            absl::StatusCode::kNotFound);
  const TemporaryFolder folder;
  EXPECT_EQ(ChildProcess::Start({{folder.path()}, ""}).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(ChildProcess::Start({{"/bin/sh"}, folder.path() + "/no/log"})
                .status()
                .code(),
            absl::StatusCode::kPermissionDenied);
}

TEST(ChildProcessTest, AppendsBothStreamsToTheLog) {
  const TemporaryFolder folder;
  ChildProcess::Options options = Shell("echo out; echo err >&2; cat");
  options.log_file = folder.path() + "/log";
  for (int i = 0; i < 2; ++i) {
    auto child = ChildProcess::Start(options);
    ASSERT_TRUE(child.ok());
    // `cat` ends at once: stdin is empty.
    ASSERT_TRUE((*child)->WaitForEnd(kLimit));
  }
  EXPECT_EQ(*ReadFile(options.log_file), "out\nerr\nout\nerr\n");
}

// Why it ended: what it wrote last, wherever that goes.
TEST(ChildProcessTest, KeepsTheLastLine) {
  const TemporaryFolder folder;
  for (const std::string& log_file : {std::string(), folder.path() + "/log"}) {
    ChildProcess::Options options =
        Shell("echo first >&2; printf 'last\n\n' >&2; exit 1");
    options.log_file = log_file;
    ::testing::internal::CaptureStderr();
    auto child = ChildProcess::Start(options);
    ASSERT_TRUE(child.ok()) << child.status();
    EXPECT_TRUE((*child)->WaitForEnd(kLimit));
    EXPECT_EQ((*child)->LastLine(), "last");
    child->reset();
    EXPECT_EQ(::testing::internal::GetCapturedStderr(),
              log_file.empty() ? "first\nlast\n\n" : "");
  }
}

TEST(ChildProcessTest, AllOfALongStderrGoesOn) {
  ChildProcess::Options options = Shell(
      "i=0; while [ $i -lt 3000 ]; do echo line $i >&2; i=$((i+1)); "
      "done; printf 'no end' >&2");
  ::testing::internal::CaptureStderr();
  auto child = ChildProcess::Start(options);
  ASSERT_TRUE(child.ok()) << child.status();
  EXPECT_TRUE((*child)->WaitForEnd(kLimit));
  EXPECT_EQ((*child)->LastLine(), "no end");
  child->reset();
  std::string expected;
  for (int i = 0; i < 3000; ++i) {
    expected += "line " + std::to_string(i) + "\n";
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), expected + "no end");
}

// A child of its own may hold its stderr for longer.
TEST(ChildProcessTest, WaitsForNoStderrThatStaysOpen) {
  auto child = ChildProcess::Start(Shell("echo why >&2; sleep 1000 & exit 1"));
  ASSERT_TRUE(child.ok()) << child.status();
  EXPECT_TRUE((*child)->WaitForEnd(kLimit));
  EXPECT_EQ((*child)->LastLine(), "why");
  kill(-(*child)->pid(), SIGKILL);
}

TEST(LastLineTest, IsTheLastThatIsNotEmpty) {
  EXPECT_EQ(LastLine(""), "");
  EXPECT_EQ(LastLine("\n \n"), "");
  EXPECT_EQ(LastLine("one"), "one");
  EXPECT_EQ(LastLine("one\ntwo\n\n"), "two");
  EXPECT_EQ(LastLine("\rloading 10 %\rloading 20 %"), "loading 20 %");
}

TEST(ChildProcessTest, SeesTheFlagsOfThisProcessOnlyWhereItMay) {
  const TemporaryFolder folder;
  ASSERT_EQ(setenv("NACRE_LISTEN", "here", 1), 0);
  for (const bool sees : {false, true}) {
    ChildProcess::Options options = Shell("echo ${NACRE_LISTEN-unset} $PATH");
    options.sees_flags = sees;
    options.log_file = folder.path() + (sees ? "/seen" : "/hidden");
    auto child = ChildProcess::Start(options);
    ASSERT_TRUE(child.ok());
    ASSERT_TRUE((*child)->WaitForEnd(kLimit));
    EXPECT_EQ(*ReadFile(options.log_file),
              std::string(sees ? "here " : "unset ") + getenv("PATH") + "\n");
  }
  unsetenv("NACRE_LISTEN");
}

TEST(ChildProcessTest, StartsWithSignalsUnblockedInItsOwnGroup) {
  sigset_t set;
  sigset_t old;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, &old);
  auto child = ChildProcess::Start(Shell("exec sleep 1000"));
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  ASSERT_TRUE(child.ok());
  EXPECT_EQ(getpgid((*child)->pid()), (*child)->pid());
  (*child)->Signal(SIGTERM);
  ASSERT_TRUE((*child)->WaitForEnd(kLimit));
  EXPECT_EQ((*child)->Poll(), "signal 15 (Terminated)");
}

TEST(ChildProcessTest, DiesWithItsParent) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const pid_t launcher = fork();
  if (launcher == 0) {
    // The program holds the pipe as its stdout.
    dup2(fds[1], STDOUT_FILENO);
    auto child = ChildProcess::Start(Shell("echo up; exec sleep 1000"));
    if (!child.ok()) _exit(1);
    pause();
    _exit(0);
  }
  close(fds[1]);
  char text[3];
  ASSERT_EQ(read(fds[0], text, sizeof(text)), 3);
  kill(launcher, SIGKILL);
  ASSERT_EQ(waitpid(launcher, nullptr, 0), launcher);
  // The end of the file: no process holds the other side any more.
  EXPECT_EQ(read(fds[0], text, sizeof(text)), 0);
  close(fds[0]);
}

class SupervisorTest : public ::testing::Test {
 protected:
  Supervisor::Options Options() {
    Supervisor::Options options;
    options.backoff = absl::Milliseconds(1);
    options.max_backoff = absl::Milliseconds(4);
    options.memory = {{"/no/file", "/no/folder"}, "/no/machine"};
    options.report = [this](const std::string& line) {
      absl::MutexLock lock(&mu_);
      lines_.push_back(line);
    };
    return options;
  }

  std::vector<std::string> Lines() {
    absl::MutexLock lock(&mu_);
    return lines_;
  }

  const TemporaryFolder folder_;
  absl::Mutex mu_;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mu_);
};

TEST_F(SupervisorTest, RestartsAProgramThatDies) {
  Supervisor supervisor(Options());
  ASSERT_TRUE(supervisor.Start({"worker", Shell("exec sleep 1000"), 0}).ok());
  EXPECT_FALSE(supervisor.FindEnded().has_value());
  supervisor.Supervise();
  const pid_t first = supervisor.PidOf("worker");
  ASSERT_GT(first, 0);
  kill(first, SIGKILL);
  ASSERT_TRUE(WaitUntil([&] { return Lines().size() == 2; }));
  EXPECT_EQ(Lines()[0],
            "worker ended with signal 9 (Killed), which the kernel does when "
            "memory runs out; starting it again in 1ms");
  EXPECT_THAT(Lines()[1], HasSubstr("worker runs again (pid "));
  EXPECT_NE(supervisor.PidOf("worker"), first);
  EXPECT_EQ(supervisor.PidOf("other"), 0);
}

TEST_F(SupervisorTest, OfWhatIsKilledSaysTheLimitOfMemory) {
  Supervisor::Options options = Options();
  const std::string dir = folder_.path();
  ASSERT_TRUE(WriteFile(dir + "/groups", "0::/\n").ok());
  ASSERT_TRUE(WriteFile(dir + "/memory.max", "4096000\n").ok());
  ASSERT_TRUE(WriteFile(dir + "/meminfo", "MemTotal: 64000 kB\n").ok());
  options.memory = {{dir + "/groups", dir}, dir + "/meminfo"};
  Supervisor supervisor(options);
  ASSERT_TRUE(supervisor.Start({"worker", Shell("exec sleep 1000"), 0}).ok());
  kill(supervisor.PidOf("worker"), SIGKILL);
  ASSERT_TRUE(WaitUntil([&] { return supervisor.FindEnded().has_value(); }));
  const std::string why =
      ", which the kernel does when memory runs out: all processes together "
      "have 4096000 bytes (" +
      dir + "/memory.max)";
  EXPECT_EQ(supervisor.FindEnded()->how, "signal 9 (Killed)");
  EXPECT_EQ(supervisor.FindEnded()->why, why);
  supervisor.Supervise();
  ASSERT_TRUE(WaitUntil([&] { return !Lines().empty(); }));
  EXPECT_EQ(Lines()[0], "worker ended with signal 9 (Killed)" + why +
                            "; starting it again in 1ms");
}

TEST_F(SupervisorTest, WaitsLongerEachTimeUpToALimit) {
  Supervisor supervisor(Options());
  ASSERT_TRUE(supervisor.Start({"worker", Shell("exit 5"), 0}).ok());
  supervisor.Supervise();
  ASSERT_TRUE(WaitUntil([&] { return Lines().size() >= 7; }));
  const std::string death = "worker ended with exit code 5; starting it again";
  EXPECT_EQ(Lines()[0], death + " in 1ms");
  EXPECT_EQ(Lines()[2], death + " in 2ms");
  EXPECT_EQ(Lines()[4], death + " in 4ms");
  EXPECT_EQ(Lines()[6], death + " in 4ms");
}

TEST_F(SupervisorTest, RestartsWithTheNewArguments) {
  Supervisor supervisor(Options());
  const std::string file = folder_.path() + "/second";
  ASSERT_TRUE(supervisor.Start({"worker", Shell("exec sleep 1000"), 0}).ok());
  supervisor.SetArgv("worker",
                     {"/bin/sh", "-c", ": > " + file + "; exec sleep 1000"});
  supervisor.Supervise();
  kill(supervisor.PidOf("worker"), SIGKILL);
  EXPECT_TRUE(WaitUntil([&] { return std::filesystem::exists(file); }));
}

TEST_F(SupervisorTest, KeepsTryingWhereTheProgramIsGone) {
  Supervisor supervisor(Options());
  ASSERT_TRUE(supervisor.Start({"worker", Shell("exec sleep 1000"), 0}).ok());
  supervisor.SetArgv("worker", {"/no/such/program"});
  supervisor.Supervise();
  kill(supervisor.PidOf("worker"), SIGKILL);
  ASSERT_TRUE(WaitUntil([&] { return Lines().size() >= 3; }));
  EXPECT_THAT(Lines()[2], HasSubstr("cannot run /no/such/program"));
}

TEST_F(SupervisorTest, FindsAProgramThatEndsWhileStarting) {
  Supervisor supervisor(Options());
  ASSERT_TRUE(supervisor.Start({"good", Shell("exec sleep 1000"), 0}).ok());
  ASSERT_TRUE(supervisor.Start({"bad", Shell("exit 4"), 0}).ok());
  ASSERT_TRUE(WaitUntil([&] { return supervisor.FindEnded().has_value(); }));
  EXPECT_EQ(supervisor.FindEnded()->name, "bad");
  EXPECT_EQ(supervisor.FindEnded()->how, "exit code 4");
  EXPECT_EQ(supervisor.FindEnded()->why, "");
}

// A program that writes `name` into a file when it is told to end.
ChildProcess::Options Polite(const std::string& folder,
                             const std::string& name) {
  return Shell("trap 'echo " + name + " >> " + folder +
               "/order; exit 0' TERM; : > " + folder + "/" + name +
               "; while :; do sleep 0.02; done");
}

TEST_F(SupervisorTest, DrainsStageByStage) {
  Supervisor supervisor(Options());
  ASSERT_TRUE(
      supervisor.Start({"last", Polite(folder_.path(), "last"), 1}).ok());
  ASSERT_TRUE(
      supervisor.Start({"first", Polite(folder_.path(), "first"), 0}).ok());
  supervisor.Supervise();
  for (const char* name : {"/first", "/last"}) {
    ASSERT_TRUE(WaitUntil(
        [&] { return std::filesystem::exists(folder_.path() + name); }));
  }
  supervisor.Drain(kLimit);
  supervisor.Drain(kLimit);
  EXPECT_EQ(*ReadFile(folder_.path() + "/order"), "first\nlast\n");
  EXPECT_THAT(Lines(), ElementsAre());
}

TEST_F(SupervisorTest, KillsWhatDoesNotListen) {
  const std::string up = folder_.path() + "/up";
  Supervisor supervisor(Options());
  ASSERT_TRUE(supervisor
                  .Start({"deaf",
                          Shell("trap '' TERM; : > " + up +
                                "; while :; do sleep 1; "
                                "done"),
                          0})
                  .ok());
  ASSERT_TRUE(WaitUntil([&] { return std::filesystem::exists(up); }));
  const pid_t pid = supervisor.PidOf("deaf");
  supervisor.Drain(absl::Milliseconds(10));
  EXPECT_EQ(kill(pid, 0), -1);
}

}  // namespace
}  // namespace nacre::tools
