#include "common/rpc/connections.h"

// Not netinet/tcp.h: its tcp_info ends before the bytes.
#include <arpa/inet.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace nacre::rpc {
namespace {

std::string HostPort(const char* family, int af, const void* host,
                     uint16_t port) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(af, host, text, sizeof(text));
  return af == AF_INET6 ? absl::StrCat(family, ":[", text, "]:", ntohs(port))
                        : absl::StrCat(family, ":", text, ":", ntohs(port));
}

// As gRPC says it: an IPv4 address stays one where the listener is for both.
// "" for no TCP connection.
std::string PeerOf(int fd) {
  sockaddr_storage storage = {};
  socklen_t size = sizeof(storage);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) {
    return "";
  }
  if (storage.ss_family == AF_INET) {
    const auto& address = reinterpret_cast<const sockaddr_in&>(storage);
    return HostPort("ipv4", AF_INET, &address.sin_addr, address.sin_port);
  }
  if (storage.ss_family != AF_INET6) return "";
  const auto& address = reinterpret_cast<const sockaddr_in6&>(storage);
  if (IN6_IS_ADDR_V4MAPPED(&address.sin6_addr)) {
    return HostPort("ipv4", AF_INET, &address.sin6_addr.s6_addr[12],
                    address.sin6_port);
  }
  return HostPort("ipv6", AF_INET6, &address.sin6_addr, address.sin6_port);
}

}  // namespace

bool Connections::IsOpen(const Connection& connection) {
  struct stat info = {};
  return fstat(connection.fd, &info) == 0 && info.st_ino == connection.inode;
}

void Connections::Add(int fd) {
  struct stat info = {};
  if (fstat(fd, &info) != 0) return;
  // One whose peer has gone already counts until it is closed.
  std::string peer = PeerOf(fd);
  if (peer.empty()) peer = absl::StrCat("gone:", fd);
  absl::MutexLock lock(&mu_);
  by_peer_[std::move(peer)] = {fd, info.st_ino};
}

size_t Connections::size() const {
  absl::MutexLock lock(&mu_);
  return by_peer_.size();
}

void Connections::Sweep() {
  absl::MutexLock lock(&mu_);
  absl::erase_if(by_peer_,
                 [](const auto& entry) { return !IsOpen(entry.second); });
}

absl::optional<int64_t> Connections::Received(absl::string_view peer) const {
  // gRPC writes peers as URIs.
  const std::string key =
      absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}});
  tcp_info info = {};
  socklen_t size = sizeof(info);
  {
    absl::MutexLock lock(&mu_);
    const auto it = by_peer_.find(key);
    if (it == by_peer_.end() || !IsOpen(it->second) ||
        getsockopt(it->second.fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) {
      return absl::nullopt;
    }
  }
  constexpr size_t kNeeded = offsetof(tcp_info, tcpi_bytes_received) +
                             sizeof(info.tcpi_bytes_received);
  if (size < kNeeded) return absl::nullopt;  // an old kernel
  return static_cast<int64_t>(info.tcpi_bytes_received);
}

}  // namespace nacre::rpc
