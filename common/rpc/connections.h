// The connections of a server that the acceptor took: how many there are, and
// how much has come in on each.

#ifndef COMMON_RPC_CONNECTIONS_H_
#define COMMON_RPC_CONNECTIONS_H_

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/optional.h"

namespace nacre::rpc {

// Thread-safe. Descriptors are gRPC's: it closes them whenever it likes.
//
// A connection takes no memory of its own here, only a place in two tables.
// Thousands of connections come in bursts, between the pieces that gRPC
// allocates for them. A piece left over would keep its page.
class Connections {
 public:
  // A TCP connection that was accepted. One that had this descriptor before is
  // closed, and forgotten.
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
  // IPv6 address, or the IPv4 address mapped into one, and port.
  using Peer = std::pair<std::array<uint8_t, 16>, uint16_t>;
  struct Connection {
    ino_t inode = 0;            // the descriptor may be another file's by now
    absl::optional<Peer> peer;  // nullopt: it had gone when it was accepted
  };
  using Entry = std::pair<const int, Connection>;

  static bool IsOpen(const Entry& entry);
  static absl::optional<Peer> PeerOf(int fd);
  static absl::optional<Peer> ParsePeer(absl::string_view text);
  void Remove(const Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable absl::Mutex mu_;
  absl::flat_hash_map<int, Connection> by_fd_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<Peer, int> fds_ ABSL_GUARDED_BY(mu_);
};

}  // namespace nacre::rpc

#endif  // COMMON_RPC_CONNECTIONS_H_
