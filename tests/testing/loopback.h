// A plain TCP connection on this machine, for what no client library would do.
// A signal, as of a fuzzer's timer, ends none of its calls.

#ifndef TESTS_TESTING_LOOPBACK_H_
#define TESTS_TESTING_LOOPBACK_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace nacre::testing {

// Owns the socket. Not thread-safe.
class LoopbackConnection {
 public:
  // To 127.0.0.1:port. Connecting, sending and receiving end after `patience`.
  explicit LoopbackConnection(const std::string& address,
                              absl::Duration patience = absl::Minutes(1))
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval timeout = absl::ToTimeval(patience);
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
    sockaddr_in peer{};
    peer.sin_family = AF_INET;
    peer.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    peer.sin_port = htons(static_cast<uint16_t>(
        std::atoi(address.substr(address.rfind(':') + 1).c_str())));
    connected_ =
        connect(fd_, reinterpret_cast<sockaddr*>(&peer), sizeof(peer)) == 0 ||
        (errno == EINTR && WasConnected(patience));
  }
  ~LoopbackConnection() {
    if (fd_ >= 0) close(fd_);
  }
  LoopbackConnection(LoopbackConnection&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), connected_(other.connected_) {}
  LoopbackConnection& operator=(LoopbackConnection&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(connected_, other.connected_);
    return *this;
  }

  bool connected() const { return connected_; }

  // False where the peer hung up or does not read.
  bool Send(absl::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = Again(
          [&] { return send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); });
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  // Sends no more.
  void HalfClose() { shutdown(fd_, SHUT_WR); }
  // Waits for what comes next; nothing where the patience or the connection
  // ends before.
  std::string Read() {
    char buffer[4096];
    const ssize_t received = Receive(buffer, sizeof(buffer), 0);
    return std::string(buffer,
                       received > 0 ? static_cast<size_t>(received) : 0);
  }
  // All that comes until the peer hangs up; errno is 0 if it did.
  std::string ReadAll() {
    std::string all;
    char buffer[4096];
    ssize_t received = 0;
    do {
      received = Receive(buffer, sizeof(buffer), 0);
      if (received > 0) all.append(buffer, static_cast<size_t>(received));
    } while (received > 0);
    if (received == 0) errno = 0;
    return all;
  }
  // Whether the peer hung up; what it sent until now is thrown away.
  bool Ended() {
    char buffer[4096];
    ssize_t received = 0;
    do {
      received = Receive(buffer, sizeof(buffer), MSG_DONTWAIT);
    } while (received > 0);
    return received == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
  }
  // Its end is a reset, not a FIN.
  void ResetAtEnd() {
    const linger at_once = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  }

 private:
  template <typename Call>
  static ssize_t Again(Call call) {
    ssize_t result = 0;
    do {
      result = call();
    } while (result < 0 && errno == EINTR);
    return result;
  }
  ssize_t Receive(char* buffer, size_t size, int flags) {
    return Again([&] { return recv(fd_, buffer, size, flags); });
  }
  // What a signal interrupted goes on by itself. Sets errno where it failed.
  bool WasConnected(absl::Duration patience) {
    pollfd waits = {.fd = fd_, .events = POLLOUT, .revents = 0};
    const auto limit = static_cast<int>(absl::ToInt64Milliseconds(patience));
    if (Again([&] { return poll(&waits, 1, limit); }) <= 0) return false;
    int error = 0;
    socklen_t size = sizeof(error);
    if (getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return false;
    errno = error;
    return error == 0;
  }

  int fd_ = -1;
  bool connected_ = false;
};

}  // namespace nacre::testing

#endif  // TESTS_TESTING_LOOPBACK_H_
