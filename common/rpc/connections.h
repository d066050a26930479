// The connections of a server that the acceptor took: how many there are, and
// how much has come in on each.

#ifndef COMMON_RPC_CONNECTIONS_H_
#define COMMON_RPC_CONNECTIONS_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/optional.h"

namespace nacre::rpc {

// Thread-safe. Descriptors are gRPC's: it closes them whenever it likes.
class Connections {
 public:
  // A TCP connection that was accepted.
  void Add(int fd) ABSL_LOCKS_EXCLUDED(mu_);
  // As of the last Sweep, and what came since.
  size_t size() const ABSL_LOCKS_EXCLUDED(mu_);
  // Forgets the closed ones.
  void Sweep() ABSL_LOCKS_EXCLUDED(mu_);

  // Bytes that have come from `peer`, as gRPC's contexts name it, since it
  // connected, headers and what nothing has read yet included. nullopt: there
  // is no such connection, or the system does not tell.
  absl::optional<int64_t> Received(absl::string_view peer) const
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // A descriptor's number may be another file's by now.
  struct Connection {
    int fd = -1;
    ino_t inode = 0;
  };

  static bool IsOpen(const Connection& connection);

  mutable absl::Mutex mu_;
  absl::flat_hash_map<std::string, Connection> by_peer_ ABSL_GUARDED_BY(mu_);
};

}  // namespace nacre::rpc

#endif  // COMMON_RPC_CONNECTIONS_H_
