#include "tools/cluster/error_relay.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nacre::tools {
namespace {

using ::testing::AnyOf;

void WriteTo(int file, absl::string_view text) {
  ASSERT_EQ(write(file, text.data(), text.size()),
            static_cast<ssize_t>(text.size()));
}

std::unique_ptr<ErrorRelay> NewRelay() {
  absl::StatusOr<std::unique_ptr<ErrorRelay>> relay = ErrorRelay::Create();
  EXPECT_TRUE(relay.ok()) << relay.status();
  return *std::move(relay);
}

// A pipe in place of this process's stderr.
class StderrPipe {
 public:
  StderrPipe() : stderr_(dup(STDERR_FILENO)) {
    EXPECT_EQ(pipe2(ends_, O_CLOEXEC), 0);
    EXPECT_GE(dup2(ends_[1], STDERR_FILENO), 0);
  }
  ~StderrPipe() {
    GiveBack();
    close(ends_[0]);
  }
  // Until it takes no more.
  void Fill() {
    const std::string text(4096, '.');
    fcntl(ends_[1], F_SETFL, O_NONBLOCK);
    while (write(ends_[1], text.data(), text.size()) > 0) {
    }
    fcntl(ends_[1], F_SETFL, 0);
  }
  // All that was written; ends the use of the pipe.
  std::string Take() {
    GiveBack();
    std::string text, part(4096, '\0');
    ssize_t count = 0;
    while ((count = read(ends_[0], part.data(), part.size())) > 0) {
      text.append(part, 0, static_cast<size_t>(count));
    }
    return text;
  }

 private:
  void GiveBack() {
    if (stderr_ < 0) return;
    dup2(stderr_, STDERR_FILENO);
    close(stderr_);
    close(ends_[1]);
    stderr_ = -1;
  }

  int stderr_;
  int ends_[2];
};

TEST(ErrorRelayTest, LinesOfTwoProcessesAreNotMixed) {
  StderrPipe all;
  auto one = NewRelay();
  auto other = NewRelay();
  for (int i = 0; i < 200; ++i) {
    WriteTo(one->input(), "a line ");
    WriteTo(other->input(), "another ");
    WriteTo(one->input(), "of one\n");
    WriteTo(other->input(), "of the other\n");
  }
  WriteTo(one->input(), "no end");
  one.reset();
  other.reset();
  std::string text = all.Take();
  int lines = 0;
  for (size_t end; (end = text.find('\n')) != std::string::npos; ++lines) {
    const std::string line = text.substr(0, end);
    // What has no end goes on when its process has ended.
    EXPECT_THAT(line, AnyOf("a line of one", "another of the other",
                            "no endanother of the other"));
    text.erase(0, end + 1);
  }
  EXPECT_EQ(lines, 400);
}

TEST(ErrorRelayTest, ALineThatIsTooLongIsHandedOnInParts) {
  StderrPipe all;
  auto relay = NewRelay();
  const std::string line = std::string(20000, 'x') + "\nend\n";
  WriteTo(relay->input(), line);
  relay.reset();
  EXPECT_EQ(all.Take(), line);
}

// These would wait for ever if it did.
TEST(ErrorRelayTest, WaitsForNoStderrThatTakesNothing) {
  StderrPipe paused;
  paused.Fill();
  auto relay = NewRelay();
  WriteTo(relay->input(), "why\n");
  relay->CloseInput();
  EXPECT_EQ(relay->LastLine(), "why");
  relay.reset();
}

TEST(ErrorRelayTest, WaitsForNoneThatGoesOnWriting) {
  signal(SIGPIPE, SIG_IGN);
  const int own_stderr = dup(STDERR_FILENO);
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(dup2(nowhere, STDERR_FILENO), 0);
  auto relay = NewRelay();
  const int held = dup(relay->input());
  std::atomic<int> lines = 0;
  std::thread writer([&] {
    const std::string line = std::string(999, 'x') + "\n";
    while (write(held, line.data(), line.size()) > 0) ++lines;
  });
  while (lines < 1000) std::this_thread::yield();
  relay.reset();
  writer.join();  // its pipe is closed
  dup2(own_stderr, STDERR_FILENO);
  for (const int file : {own_stderr, nowhere, held}) close(file);
}

}  // namespace
}  // namespace nacre::tools
