// The connections of a port and their calls. Where no more connections fit,
// those without a call make room, first those of the host that has most.

#ifndef COMMON_RPC_CALLERS_H_
#define COMMON_RPC_CALLERS_H_

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace nacre::rpc {

// Thread-safe. Descriptors are gRPC's: it closes them whenever it likes.
class Callers {
 public:
  // A connection that was accepted, from `address`.
  void Add(int fd, const sockaddr_storage& address) ABSL_LOCKS_EXCLUDED(mu_);
  // Forgets the closed ones.
  void Sweep() ABSL_LOCKS_EXCLUDED(mu_);
  // Connections that are not forgotten.
  size_t size() const ABSL_LOCKS_EXCLUDED(mu_);

  // A call of `peer`, as gRPC's contexts name it.
  void OnCall(absl::string_view peer) ABSL_LOCKS_EXCLUDED(mu_);
  void OnCallEnd(absl::string_view peer) ABSL_LOCKS_EXCLUDED(mu_);

  // Ends up to `count` connections without a call, the oldest ones of the host
  // that has most such. How many: gRPC closes them soon after.
  size_t EndOldest(size_t count) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // An IPv4 address, or the half of an IPv6 address that names a network: a
  // host that has one address of it has all.
  using Host = std::array<uint8_t, 8>;
  struct Connection {
    int fd = -1;
    uint64_t cookie = 0;  // the descriptor may be another file's by now
    sockaddr_storage address = {};
  };

  static bool IsOpen(const Connection& connection);
  static bool End(const Connection& connection);
  static Host HostOf(const sockaddr_storage& address);
  static std::string PeerOf(const sockaddr_storage& address);

  mutable absl::Mutex mu_;
  std::vector<Connection> connections_ ABSL_GUARDED_BY(mu_);          // by age
  absl::flat_hash_map<std::string, int> calls_ ABSL_GUARDED_BY(mu_);  // by peer
};

}  // namespace nacre::rpc

#endif  // COMMON_RPC_CALLERS_H_
