#include "common/rpc/connections.h"

// Not netinet/tcp.h: its tcp_info ends before the bytes.
#include <arpa/inet.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace nacre::rpc {
namespace {

// Of an IPv4 address that stands for itself in IPv6.
constexpr std::array<uint8_t, 12> kMappedPrefix = {0, 0, 0, 0, 0,    0,
                                                   0, 0, 0, 0, 0xff, 0xff};
// A table with this many places for each connection is made smaller.
constexpr size_t kSparse = 8;

std::array<uint8_t, 16> Mapped(const in_addr& ipv4) {
  std::array<uint8_t, 16> host;
  std::copy(kMappedPrefix.begin(), kMappedPrefix.end(), host.begin());
  std::memcpy(host.data() + kMappedPrefix.size(), &ipv4, sizeof(ipv4));
  return host;
}

std::array<uint8_t, 16> Bytes(const in6_addr& ipv6) {
  std::array<uint8_t, 16> host;
  std::memcpy(host.data(), &ipv6, host.size());
  return host;
}

template <typename Table>
void ShrinkIfSparse(Table* table) {
  if (table->bucket_count() > kSparse * (table->size() + 1)) table->rehash(0);
}

}  // namespace

absl::optional<Connections::Peer> Connections::PeerOf(int fd) {
  sockaddr_storage storage = {};
  socklen_t size = sizeof(storage);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) {
    return absl::nullopt;
  }
  if (storage.ss_family == AF_INET) {
    const auto& address = reinterpret_cast<const sockaddr_in&>(storage);
    return Peer(Mapped(address.sin_addr), ntohs(address.sin_port));
  }
  if (storage.ss_family != AF_INET6) return absl::nullopt;
  const auto& address = reinterpret_cast<const sockaddr_in6&>(storage);
  return Peer(Bytes(address.sin6_addr), ntohs(address.sin6_port));
}

// "ipv4:10.0.0.1:4711" or "ipv6:[::1]:4711", as a URI ("%5B::1%5D") or not.
absl::optional<Connections::Peer> Connections::ParsePeer(
    absl::string_view text) {
  std::string host = absl::StrReplaceAll(text, {{"%5B", "["}, {"%5D", "]"}});
  const size_t colon = host.rfind(':');
  uint32_t port = 0;
  if (colon == std::string::npos ||
      !absl::SimpleAtoi(host.substr(colon + 1), &port) || port > 0xffff) {
    return absl::nullopt;
  }
  host.resize(colon);
  absl::string_view name = host;
  in_addr ipv4 = {};
  in6_addr ipv6 = {};
  if (absl::ConsumePrefix(&name, "ipv4:") &&
      inet_pton(AF_INET, std::string(name).c_str(), &ipv4) == 1) {
    return Peer(Mapped(ipv4), port);
  }
  if (absl::ConsumePrefix(&name, "ipv6:[") && absl::ConsumeSuffix(&name, "]") &&
      inet_pton(AF_INET6, std::string(name).c_str(), &ipv6) == 1) {
    return Peer(Bytes(ipv6), port);
  }
  return absl::nullopt;
}

bool Connections::IsOpen(const Entry& entry) {
  struct stat info = {};
  return fstat(entry.first, &info) == 0 && info.st_ino == entry.second.inode;
}

void Connections::Remove(const Entry& entry) {
  if (entry.second.peer.has_value()) {
    // The same port of the same host may be another connection's by now.
    const auto it = fds_.find(*entry.second.peer);
    if (it != fds_.end() && it->second == entry.first) fds_.erase(it);
  }
  const int fd = entry.first;  // goes with the entry
  by_fd_.erase(fd);
}

void Connections::Add(int fd) {
  struct stat info = {};
  if (fstat(fd, &info) != 0) return;
  const absl::optional<Peer> peer = PeerOf(fd);
  absl::MutexLock lock(&mu_);
  if (const auto it = by_fd_.find(fd); it != by_fd_.end()) Remove(*it);
  // One whose peer has gone already counts until it is closed.
  by_fd_[fd] = {info.st_ino, peer};
  if (peer.has_value()) fds_[*peer] = fd;
}

size_t Connections::size() const {
  absl::MutexLock lock(&mu_);
  return by_fd_.size();
}

void Connections::Sweep() {
  absl::MutexLock lock(&mu_);
  std::vector<int> closed;
  for (const Entry& entry : by_fd_) {
    if (!IsOpen(entry)) closed.push_back(entry.first);
  }
  for (const int fd : closed) Remove(*by_fd_.find(fd));
  ShrinkIfSparse(&by_fd_);
  ShrinkIfSparse(&fds_);
}

absl::optional<int64_t> Connections::Received(absl::string_view peer) const {
  const absl::optional<Peer> key = ParsePeer(peer);
  if (!key.has_value()) return absl::nullopt;
  tcp_info info = {};
  socklen_t size = sizeof(info);
  {
    absl::MutexLock lock(&mu_);
    const auto it = fds_.find(*key);
    if (it == fds_.end() || !IsOpen(*by_fd_.find(it->second)) ||
        getsockopt(it->second, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) {
      return absl::nullopt;
    }
  }
  constexpr size_t kNeeded = offsetof(tcp_info, tcpi_bytes_received) +
                             sizeof(info.tcpi_bytes_received);
  if (size < kNeeded) return absl::nullopt;  // an old kernel
  return static_cast<int64_t>(info.tcpi_bytes_received);
}

}  // namespace nacre::rpc
