// The requests that are being received. So clients that send much and never all
// of it take neither the memory nor the places of others.
//
// gRPC collects a message up to its end, whatever its length, before anything
// of it is seen or refused. Only the system knows how much has come: on each
// connection, in all. What has come since it had no such call, and is not a
// request that was handed over, is what its calls hold.

#ifndef COORDINATOR_API_RECEPTIONS_H_
#define COORDINATOR_API_RECEPTIONS_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/optional.h"

namespace nacre::coordinator {

// Thread-safe.
class Receptions {
 public:
  struct Options {
    int max_calls = 8192;
    int64_t max_bytes = std::numeric_limits<int64_t>::max();
    // Bytes that have come on a peer's connection; nullopt: not known, nothing
    // that counts. Null: none is known.
    std::function<absl::optional<int64_t>(const std::string& peer)> received;
    // Asks for a Weigh soon; never blocks.
    std::function<void()> weigh_soon;
  };
  struct Call {
    const void* owner = nullptr;
    std::string client;
    std::string peer;  // its connection
    // Called once at most: others need the room more. The request may be
    // leaving meanwhile.
    std::function<void()> refuse;
  };

  explicit Receptions(Options options) : options_(std::move(options)) {}

  // Its request is about to be received. Where there are too many, the last
  // call of the client with most makes room; false where that is this one.
  bool Enter(Call call) ABSL_LOCKS_EXCLUDED(mu_);
  // The request came, or never will: `bytes` of it were handed over. Calls that
  // were refused may leave, too.
  void Leave(const void* owner, int64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);

  // Where more has come than may, refuses calls until the rest is little
  // enough. The client that has sent most loses the calls of its heaviest
  // connection first. Asks for the next time if there are calls.
  void Weigh() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using Calls = std::list<Call>;
  struct Connection {
    int64_t handed_over = 0;  // of what came on it, or of no interest
    int num_calls = 0;
  };
  // What came of a client's requests on one connection.
  struct Load {
    const std::string* client = nullptr;
    const std::string* peer = nullptr;
    int num_calls = 0;
    int64_t bytes = 0;
  };
  using Refusals = std::vector<std::function<void()>>;

  int64_t Received(const std::string& peer) const;
  std::vector<Load> Loads() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Call Remove(const void* owner, int64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The client's calls on the connection.
  void RefuseAll(const std::string& client, const std::string& peer,
                 Refusals* refusals) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  absl::Mutex mu_;
  bool asked_ ABSL_GUARDED_BY(mu_) = false;  // for a Weigh
  absl::flat_hash_map<std::string, Calls> clients_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<const void*, Calls::iterator> calls_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, Connection> connections_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_API_RECEPTIONS_H_
