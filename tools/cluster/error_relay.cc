#include "tools/cluster/error_relay.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace nacre::tools {
namespace {

constexpr absl::Duration kMostWait = absl::Seconds(1);
constexpr size_t kMostTail = 4096;  // bytes: a line that is longer is cut

void WriteAll(const char* data, size_t count) {
  while (count > 0) {
    const ssize_t written = write(STDERR_FILENO, data, count);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // nothing reads it
    data += written;
    count -= static_cast<size_t>(written);
  }
}

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
  do {
    if (poll(files.data(), files.size(), /*timeout=*/-1) < 0) continue;
    if (!HandOn()) break;
  } while (files[1].revents == 0);
  ended_.Notify();
}

bool ErrorRelay::HandOn() {
  std::array<char, 4096> buffer;
  while (true) {
    const ssize_t count = read(output_, buffer.data(), buffer.size());
    if (count == 0) return false;
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    WriteAll(buffer.data(), static_cast<size_t>(count));
    absl::MutexLock lock(&mu_);
    tail_.append(buffer.data(), static_cast<size_t>(count));
    if (tail_.size() > 2 * kMostTail) tail_.erase(0, tail_.size() - kMostTail);
  }
}

std::string ErrorRelay::LastLine() {
  ended_.WaitForNotificationWithTimeout(kMostWait);
  absl::MutexLock lock(&mu_);
  return tools::LastLine(tail_);
}

}  // namespace nacre::tools
