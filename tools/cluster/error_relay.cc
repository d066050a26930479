#include "tools/cluster/error_relay.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace nacre::tools {
namespace {

constexpr absl::Duration kMostWait = absl::Seconds(1);
constexpr size_t kMostTail = 4096;  // bytes: a line that is longer is cut
// A pipe takes so much at once and unmixed, or nothing (PIPE_BUF).
constexpr size_t kMostWrite = 4096;

}  // namespace

std::string LastLine(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  // A line that redraws itself ends with a carriage return.
  const size_t end = text.find_last_of("\r\n");
  return std::string(end == absl::string_view::npos ? text
                                                    : text.substr(end + 1));
}

absl::StatusOr<std::unique_ptr<ErrorRelay>> ErrorRelay::Create() {
  int pipes[4];
  if (pipe2(pipes, O_CLOEXEC) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("pipe: ", std::strerror(errno)));
  }
  if (pipe2(pipes + 2, O_CLOEXEC) != 0) {
    const int error = errno;
    close(pipes[0]);
    close(pipes[1]);
    return absl::ResourceExhaustedError(
        absl::StrCat("pipe: ", std::strerror(error)));
  }
  return absl::WrapUnique(
      new ErrorRelay(pipes[0], pipes[1], pipes[2], pipes[3]));
}

ErrorRelay::ErrorRelay(int output, int input, int stop_output, int stop_input)
    : output_(output),
      input_(input),
      stop_output_(stop_output),
      stop_input_(stop_input) {
  fcntl(output_, F_SETFL, O_NONBLOCK);
  thread_ = std::thread([this] { Run(); });
}

ErrorRelay::~ErrorRelay() {
  CloseInput();
  close(stop_input_);
  thread_.join();
  close(output_);
  close(stop_output_);
}

void ErrorRelay::CloseInput() {
  if (input_ >= 0) close(input_);
  input_ = -1;
}

void ErrorRelay::Run() {
  std::array<pollfd, 2> files = {pollfd{output_, POLLIN, 0},
                                 pollfd{stop_output_, POLLIN, 0}};
  bool may_be_more = true;
  while (may_be_more && files[1].revents == 0) {
    if (poll(files.data(), files.size(), /*timeout=*/-1) < 0) continue;
    if (files[0].revents != 0) may_be_more = Read(kMostWrite);
    HandOn(/*all=*/false);
  }
  // What is there now: others may go on writing.
  int count = 0;
  if (may_be_more && ioctl(output_, FIONREAD, &count) == 0 && count > 0) {
    Read(static_cast<size_t>(count));
  }
  HandOn(/*all=*/true);
  ended_.Notify();
}

bool ErrorRelay::Read(size_t most) {
  std::string text(most, '\0');
  const ssize_t count = read(output_, text.data(), text.size());
  if (count == 0) return false;
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  text.resize(static_cast<size_t>(count));
  unwritten_ += text;
  absl::MutexLock lock(&mu_);
  tail_ += text;
  if (tail_.size() > 2 * kMostTail) tail_.erase(0, tail_.size() - kMostTail);
  return true;
}

void ErrorRelay::HandOn(bool all) {
  absl::string_view left = unwritten_;
  while (!left.empty()) {
    absl::string_view now = left.substr(0, kMostWrite);
    const size_t end = now.rfind('\n');
    if (end != absl::string_view::npos) {
      now = now.substr(0, end + 1);
    } else if (!all && now.size() < kMostWrite) {
      break;  // its line may go on
    }
    Write(now);
    left.remove_prefix(now.size());
  }
  unwritten_ = std::string(left);
}

void ErrorRelay::Write(absl::string_view text) {
  while (!text.empty()) {
    const bool stopping = give_up_at_ != absl::InfiniteFuture();
    std::array<pollfd, 2> files = {pollfd{STDERR_FILENO, POLLOUT, 0},
                                   pollfd{stop_output_, POLLIN, 0}};
    const absl::Duration left = give_up_at_ - absl::Now();
    if (left <= absl::ZeroDuration()) return;
    const int timeout =
        stopping ? static_cast<int>(absl::ToInt64Milliseconds(left)) + 1 : -1;
    if (poll(files.data(), stopping ? 1 : 2, timeout) < 0) continue;
    if (files[0].revents != 0) {
      const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
      if (written > 0) text.remove_prefix(static_cast<size_t>(written));
      if (written < 0 && errno != EINTR && errno != EAGAIN) return;
    } else if (!stopping && files[1].revents != 0) {
      give_up_at_ = absl::Now() + kMostWait;
    }
  }
}

std::string ErrorRelay::LastLine() {
  ended_.WaitForNotificationWithTimeout(kMostWait);
  absl::MutexLock lock(&mu_);
  return tools::LastLine(tail_);
}

}  // namespace nacre::tools
