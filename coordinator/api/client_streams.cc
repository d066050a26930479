#include "coordinator/api/client_streams.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace nacre::coordinator {

absl::Status ClientStreams::Acquire(const std::string& client, int count) {
  return Change(client, 0, count);
}

absl::Status ClientStreams::Change(const std::string& client, int held,
                                   int count) {
  if (max_per_client_ == 0) return absl::OkStatus();
  absl::MutexLock lock(&mu_);
  const auto it = open_.find(client);
  const int open = (it == open_.end() ? 0 : it->second) - held;
  if (count > max_per_client_ - open) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the client has ", open, " streams and wants ", count,
                     " more; --max-streams-per-client is ", max_per_client_));
  }
  open_[client] = open + count;
  return absl::OkStatus();
}

void ClientStreams::Release(const std::string& client, int count) {
  if (max_per_client_ == 0) return;
  absl::MutexLock lock(&mu_);
  const auto it = open_.find(client);
  it->second -= count;
  if (it->second == 0) open_.erase(it);
}

ClientStreams::Lease& ClientStreams::Lease::operator=(Lease&& other) noexcept {
  if (this == &other) return *this;
  Drop();
  streams_ = std::exchange(other.streams_, nullptr);
  client_ = std::move(other.client_);
  count_ = std::exchange(other.count_, 0);
  return *this;
}

absl::Status ClientStreams::Lease::Resize(int count) {
  absl::Status status = streams_->Change(client_, count_, count);
  if (status.ok()) count_ = count;
  return status;
}

void ClientStreams::Lease::Drop() {
  if (count_ > 0) streams_->Release(client_, count_);
  count_ = 0;
}

std::string ClientStreams::HostOf(absl::string_view peer) {
  if (!absl::StartsWith(peer, "ipv4:") && !absl::StartsWith(peer, "ipv6:")) {
    return std::string(peer);
  }
  return std::string(peer.substr(0, peer.rfind(':')));
}

}  // namespace nacre::coordinator
