#include "common/rpc/callers.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace nacre::rpc {
namespace {

// Of a socket, never used again; 0: it is none.
uint64_t CookieOf(int fd) {
  uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  if (getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) != 0) return 0;
  return cookie;
}

// The IPv4 address that `address` is or stands for; nullptr: IPv6 proper.
const uint8_t* Ipv4Of(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(address);
    return reinterpret_cast<const uint8_t*>(&ipv4.sin_addr);
  }
  const auto& ipv6 = reinterpret_cast<const sockaddr_in6&>(address);
  return IN6_IS_ADDR_V4MAPPED(&ipv6.sin6_addr) ? &ipv6.sin6_addr.s6_addr[12]
                                               : nullptr;
}

// gRPC writes peers as URIs.
std::string PeerName(absl::string_view peer) {
  return absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}});
}

}  // namespace

Callers::Host Callers::HostOf(const sockaddr_storage& address) {
  Host host = {};
  if (const uint8_t* ipv4 = Ipv4Of(address); ipv4 != nullptr) {
    std::memcpy(host.data(), ipv4, 4);
    host.back() = 4;  // no network's: none begins with it and ends like this
    return host;
  }
  const auto& ipv6 = reinterpret_cast<const sockaddr_in6&>(address);
  std::memcpy(host.data(), &ipv6.sin6_addr, host.size());
  return host;
}

std::string Callers::PeerOf(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (const uint8_t* ipv4 = Ipv4Of(address); ipv4 != nullptr) {
    const in_port_t port =  // at the same place in both
        reinterpret_cast<const sockaddr_in&>(address).sin_port;
    inet_ntop(AF_INET, ipv4, text, sizeof(text));
    return absl::StrCat("ipv4:", text, ":", ntohs(port));
  }
  const auto& ipv6 = reinterpret_cast<const sockaddr_in6&>(address);
  inet_ntop(AF_INET6, &ipv6.sin6_addr, text, sizeof(text));
  return absl::StrCat("ipv6:[", text, "]:", ntohs(ipv6.sin6_port));
}

bool Callers::IsOpen(const Connection& connection) {
  return CookieOf(connection.fd) == connection.cookie;
}

bool Callers::End(const Connection& connection) {
  // gRPC may close it at any time, and the number may become another file's:
  // what is looked at and ended must be one file.
  const int fd = fcntl(connection.fd, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return false;
  const bool is_same = CookieOf(fd) == connection.cookie;
  if (is_same) shutdown(fd, SHUT_RDWR);
  close(fd);
  return is_same;
}

void Callers::Add(int fd, const sockaddr_storage& address) {
  const uint64_t cookie = CookieOf(fd);
  absl::MutexLock lock(&mu_);
  if (cookie != 0) connections_.push_back({fd, cookie, address});
}

void Callers::Sweep() {
  absl::MutexLock lock(&mu_);
  connections_.erase(
      std::remove_if(connections_.begin(), connections_.end(),
                     [](const Connection& each) { return !IsOpen(each); }),
      connections_.end());
}

size_t Callers::size() const {
  absl::MutexLock lock(&mu_);
  return connections_.size();
}

void Callers::OnCall(absl::string_view peer) {
  absl::MutexLock lock(&mu_);
  ++calls_[PeerName(peer)];
}

void Callers::OnCallEnd(absl::string_view peer) {
  absl::MutexLock lock(&mu_);
  const auto it = calls_.find(PeerName(peer));
  if (--it->second == 0) calls_.erase(it);
}

size_t Callers::EndOldest(size_t count) {
  Sweep();
  absl::MutexLock lock(&mu_);
  absl::flat_hash_map<Host, std::vector<const Connection*>> idle;
  for (const Connection& each : connections_) {
    if (!calls_.contains(PeerOf(each.address))) {
      idle[HostOf(each.address)].push_back(&each);
    }
  }
  const auto most = std::max_element(idle.begin(), idle.end(),
                                     [](const auto& a, const auto& b) {
                                       return a.second.size() < b.second.size();
                                     });
  if (most == idle.end()) return 0;
  size_t num_ended = 0;
  for (const Connection* each : most->second) {
    if (num_ended == count) break;
    num_ended += End(*each) ? 1 : 0;
  }
  return num_ended;
}

}  // namespace nacre::rpc
