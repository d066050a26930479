#include "coordinator/client_streams.h"

#include "absl/strings/match.h"

namespace nacre::coordinator {

bool ClientStreams::Acquire(const std::string& client) {
  if (max_per_client_ == 0) return true;
  absl::MutexLock lock(&mu_);
  int& open = open_[client];
  if (open >= max_per_client_) return false;
  ++open;
  return true;
}

void ClientStreams::Release(const std::string& client) {
  if (max_per_client_ == 0) return;
  absl::MutexLock lock(&mu_);
  const auto it = open_.find(client);
  if (--it->second == 0) open_.erase(it);
}

std::string ClientStreams::HostOf(absl::string_view peer) {
  if (!absl::StartsWith(peer, "ipv4:") && !absl::StartsWith(peer, "ipv6:")) {
    return std::string(peer);
  }
  return std::string(peer.substr(0, peer.rfind(':')));
}

}  // namespace nacre::coordinator
