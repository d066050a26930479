#include "tests/testing/fault_proxy.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/check.h"

namespace nacre::testing {
namespace {

// Held for one direction before its sender is left to wait.
constexpr size_t kMaxHeldBytes = 1 << 20;

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

void Prepare(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

// A connection to 127.0.0.1:port of `address`, -1 without one.
int Dial(const std::string& address) {
  int port = 0;
  if (!absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port)) {
    return -1;
  }
  const sockaddr_in peer = Loopback(port);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&peer), sizeof(peer)) < 0) {
    close(fd);
    return -1;
  }
  return fd;
}

void ResetSocket(int fd) {
  const linger now = {1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  close(fd);
}

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK; }

}  // namespace

FaultProxy::FaultProxy(std::function<std::string()> upstream)
    : upstream_(std::move(upstream)) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  NACRE_CHECK(
      bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
          listen(listener_, 64) == 0 &&
          getsockname(listener_, reinterpret_cast<sockaddr*>(&address),
                      &size) == 0 &&
          pipe2(wake_, O_CLOEXEC | O_NONBLOCK) == 0,
      "a proxy needs a port");
  fcntl(listener_, F_SETFL, O_NONBLOCK);
  address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  thread_ = std::thread([this] { Run(); });
}

FaultProxy::~FaultProxy() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  Wake();
  thread_.join();
  for (const Connection& connection : connections_) Reset(connection);
  for (int fd : {listener_, wake_[0], wake_[1]}) close(fd);
}

void FaultProxy::SetMode(Mode mode) {
  {
    absl::MutexLock lock(&mu_);
    mode_ = mode;
    if (mode == Mode::kReset) {
      for (Connection& connection : connections_) connection.broken = true;
    }
  }
  Wake();
}

void FaultProxy::SetDelay(absl::Duration delay) {
  absl::MutexLock lock(&mu_);
  delay_ = delay;
}

void FaultProxy::Cut() {
  {
    absl::MutexLock lock(&mu_);
    for (Connection& connection : connections_) connection.broken = true;
  }
  Wake();
}

void FaultProxy::SetLimit(int limit) {
  {
    absl::MutexLock lock(&mu_);
    limit_ = limit;
    int count = 0;
    for (Connection& connection : connections_) {
      if (++count > limit) connection.broken = true;
    }
  }
  Wake();
}

int FaultProxy::connections() const {
  absl::MutexLock lock(&mu_);
  return static_cast<int>(connections_.size());
}

int64_t FaultProxy::delivered_bytes() const {
  absl::MutexLock lock(&mu_);
  return delivered_bytes_;
}

void FaultProxy::Wake() {
  const char byte = 0;
  // A full pipe wakes as well.
  (void)!write(wake_[1], &byte, 1);
}

void FaultProxy::Reset(const Connection& connection) {
  // Each of the two ends is read by one pipe.
  for (const Pipe& pipe : connection.pipes) {
    if (pipe.from >= 0) ResetSocket(pipe.from);
  }
}

void FaultProxy::Accept() {
  while (true) {
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) return;
    const std::string upstream = upstream_();
    const bool refused = mode_ == Mode::kReset || upstream.empty() ||
                         static_cast<int>(connections_.size()) >= limit_;
    const int server = refused ? -1 : Dial(upstream);
    if (server < 0) {
      ResetSocket(client);
      continue;
    }
    Prepare(client);
    Prepare(server);
    Connection& connection = connections_.emplace_back();
    connection.pipes[0].from = connection.pipes[1].to = client;
    connection.pipes[0].to = connection.pipes[1].from = server;
  }
}

bool FaultProxy::Receive(Pipe& pipe, absl::Time now) {
  char buffer[65536];
  while (!pipe.ended && pipe.held_bytes < kMaxHeldBytes) {
    const ssize_t count = recv(pipe.from, buffer, sizeof(buffer), 0);
    if (count < 0) return WouldBlock();
    if (count == 0) {
      pipe.ended = true;
    } else {
      pipe.held_bytes += static_cast<size_t>(count);
      pipe.packets.push_back(
          {std::string(buffer, static_cast<size_t>(count)), now + delay_});
    }
  }
  return true;
}

bool FaultProxy::Deliver(Pipe& pipe, absl::Time now) {
  while (!pipe.packets.empty() && pipe.packets.front().due <= now) {
    std::string& bytes = pipe.packets.front().bytes;
    const ssize_t count =
        send(pipe.to, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count < 0) return WouldBlock();
    delivered_bytes_ += count;
    pipe.held_bytes -= static_cast<size_t>(count);
    bytes.erase(0, static_cast<size_t>(count));
    if (bytes.empty()) pipe.packets.pop_front();
  }
  if (pipe.ended && pipe.packets.empty() && !pipe.closed) {
    pipe.closed = true;
    shutdown(pipe.to, SHUT_WR);
  }
  return true;
}

void FaultProxy::Run() {
  std::vector<pollfd> polled;
  while (true) {
    int timeout_ms = -1;
    polled.assign({{wake_[0], POLLIN, 0}, {listener_, POLLIN, 0}});
    {
      absl::MutexLock lock(&mu_);
      if (stopping_) return;
      const absl::Time now = absl::Now();
      if (mode_ != Mode::kSilent) {
        Accept();
        for (Connection& connection : connections_) {
          for (Pipe& pipe : connection.pipes) {
            if (!Receive(pipe, now) || !Deliver(pipe, now)) {
              connection.broken = true;
            }
          }
        }
      }
      for (auto it = connections_.begin(); it != connections_.end();) {
        const bool over = it->pipes[0].closed && it->pipes[1].closed;
        if (it->broken || over) {
          Reset(*it);
          it = connections_.erase(it);
        } else {
          ++it;
        }
      }
      // Silence: the kernel accepts and buffers for us, nothing moves.
      if (mode_ == Mode::kSilent) polled.pop_back();
      for (const Connection& connection : connections_) {
        if (mode_ == Mode::kSilent) break;
        for (const Pipe& pipe : connection.pipes) {
          if (!pipe.ended && pipe.held_bytes < kMaxHeldBytes) {
            polled.push_back({pipe.from, POLLIN, 0});
          }
          if (pipe.packets.empty()) continue;
          const absl::Duration left = pipe.packets.front().due - now;
          if (left <= absl::ZeroDuration()) {
            polled.push_back({pipe.to, POLLOUT, 0});
          } else {
            const int left_ms =
                static_cast<int>(absl::ToInt64Milliseconds(left)) + 1;
            timeout_ms =
                timeout_ms < 0 ? left_ms : std::min(timeout_ms, left_ms);
          }
        }
      }
    }
    poll(polled.data(), polled.size(), timeout_ms);
    char drained[64];
    while (read(wake_[0], drained, sizeof(drained)) > 0) {
    }
  }
}

}  // namespace nacre::testing
