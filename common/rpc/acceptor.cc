#include "common/rpc/acceptor.h"

#include <fcntl.h>
#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace nacre::rpc {
namespace {

// Connections that may wait for the thread.
constexpr int kBacklog = 4096;
// How long to wait for a descriptor where there is none.
constexpr int kNoFileWaitMs = 50;
// How often a full acceptor looks which connections are closed.
constexpr absl::Duration kCountPeriod = absl::Milliseconds(10);

int PortOf(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return 0;
  }
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

void SetOption(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value, sizeof(value));
}

// A listening socket, or -1. Connections inherit what is set here.
int ListenAt(const addrinfo& info, bool dual_stack, int user_timeout_ms) {
  const int fd =
      socket(info.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  SetOption(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, user_timeout_ms);
  if (info.ai_family == AF_INET6) {
    SetOption(fd, IPPROTO_IPV6, IPV6_V6ONLY, dual_stack ? 0 : 1);
  }
  if (bind(fd, info.ai_addr, info.ai_addrlen) == 0 &&
      listen(fd, kBacklog) == 0) {
    return fd;
  }
  close(fd);
  return -1;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Bind(
    const Options& options) {
  auto acceptor = absl::WrapUnique(new Acceptor(options));
  const size_t colon = options.listen.rfind(':');
  std::string host = options.listen.substr(0, colon);
  int port = 0;
  const bool has_port =
      colon != std::string::npos &&
      absl::SimpleAtoi(options.listen.substr(colon + 1), &port);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  // Any address means IPv6, too, where there is such a thing.
  const bool any = host == "0.0.0.0" || host == "::";
  if (!has_port || pipe2(acceptor->wake_, O_CLOEXEC) != 0 ||
      (!(any && acceptor->Listen("::", port, /*dual_stack=*/true)) &&
       !acceptor->Listen(host, port, /*dual_stack=*/false))) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", options.listen,
                     ": bad host, or the port is taken"));
  }
  return acceptor;
}

bool Acceptor::Listen(const std::string& host, int port, bool dual_stack) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  port_ = port;
  if (getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found) !=
      0) {
    return false;
  }
  const int user_timeout_ms =
      static_cast<int>(absl::ToInt64Milliseconds(options_.user_timeout));
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    if (info->ai_family == AF_INET6) {
      reinterpret_cast<sockaddr_in6*>(info->ai_addr)->sin6_port =
          htons(static_cast<uint16_t>(port_));
    } else if (info->ai_family == AF_INET) {
      reinterpret_cast<sockaddr_in*>(info->ai_addr)->sin_port =
          htons(static_cast<uint16_t>(port_));
    } else {
      continue;
    }
    const int fd = ListenAt(*info, dual_stack, user_timeout_ms);
    if (fd < 0) continue;
    listeners_.push_back(fd);
    port_ = PortOf(fd);  // the same one for all addresses
  }
  freeaddrinfo(found);
  return !listeners_.empty();
}

void Acceptor::Start(std::function<void(int, int)> on_connection) {
  on_connection_ = std::move(on_connection);
  thread_ = std::thread([this] { Run(); });
}

void Acceptor::Stop() {
  if (wake_[1] >= 0) close(std::exchange(wake_[1], -1));
  if (thread_.joinable()) thread_.join();
  if (wake_[0] >= 0) close(std::exchange(wake_[0], -1));
  for (const int fd : listeners_) close(fd);
  listeners_.clear();
}

void Acceptor::Run() {
  std::vector<pollfd> polled = {{wake_[0], POLLIN, 0}};
  for (const int fd : listeners_) polled.push_back({fd, POLLIN, 0});
  bool has_files = true;
  while (true) {
    // Without descriptors the listeners are always ready, for nothing.
    const int sweep_ms = SweepMs();
    poll(polled.data(), has_files ? polled.size() : 1,
         has_files ? sweep_ms : kNoFileWaitMs);
    if (polled[0].revents != 0) return;
    has_files = true;
    for (size_t i = 1; i < polled.size(); ++i) {
      while (AcceptOne(polled[i].fd)) {
      }
      has_files = has_files && (errno == EAGAIN || errno == EWOULDBLOCK);
    }
  }
}

bool Acceptor::AcceptOne(int listener) {
  const int fd =
      accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) {
    // Those of one connection, which is gone (man 2 accept).
    return errno == EINTR || errno == ECONNABORTED || errno == EPROTO ||
           errno == ENETDOWN || errno == EHOSTDOWN || errno == ENONET ||
           errno == EHOSTUNREACH || errno == ENETUNREACH;
  }
  if (!HasRoom()) {
    close(fd);
    return true;
  }
  connections_->Add(fd);
  on_connection_(listener, fd);
  return true;
}

bool Acceptor::HasRoom() {
  const size_t most = static_cast<size_t>(options_.max_connections);
  if (connections_->size() < most) return true;
  const absl::Time now = absl::Now();
  if (now < next_count_) return false;
  next_count_ = now + kCountPeriod;
  connections_->Sweep();
  return connections_->size() < most;
}

int Acceptor::SweepMs() {
  const absl::Time now = absl::Now();
  if (now >= next_sweep_) {
    connections_->Sweep();
    next_sweep_ = now + options_.sweep_period;
  }
  if (connections_->size() == 0) return -1;
  // At least one: a poll that returns before the time would be called again and
  // again.
  return static_cast<int>(absl::ToInt64Milliseconds(next_sweep_ - now)) + 1;
}

int RaiseFileLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  getrlimit(RLIMIT_NOFILE, &limit);
  constexpr rlim_t kMost = std::numeric_limits<int>::max();
  return static_cast<int>(std::min(limit.rlim_cur, kMost));
}

}  // namespace nacre::rpc
