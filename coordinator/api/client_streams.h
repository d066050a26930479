// How many streams each client has open, so that one client cannot take them
// all. It is one for each choice of its calls, one for a call that is not read
// yet or only tokenizes. They count until gRPC is done with the call, also
// where its client does not read what it asked for.

#ifndef COORDINATOR_API_CLIENT_STREAMS_H_
#define COORDINATOR_API_CLIENT_STREAMS_H_

#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace nacre::coordinator {

// Thread-safe.
class ClientStreams {
 public:
  // `max_per_client` 0: no limit.
  explicit ClientStreams(int max_per_client)
      : max_per_client_(max_per_client) {}

  // `count` more, or none: RESOURCE_EXHAUSTED where these are too many.
  absl::Status Acquire(const std::string& client, int count);
  void Release(const std::string& client, int count);

  // Streams that one call holds, given back when it goes. Movable; `streams`
  // must outlive it.
  class Lease {
   public:
    Lease() = default;
    Lease(ClientStreams* streams, std::string client)
        : streams_(streams), client_(std::move(client)) {}
    Lease(Lease&& other) noexcept { *this = std::move(other); }
    Lease& operator=(Lease&& other) noexcept;
    ~Lease() { Drop(); }

    // Holds `count` from then on. As Acquire, without those that it holds; it
    // holds these where that fails.
    absl::Status Resize(int count);

   private:
    void Drop();

    ClientStreams* streams_ = nullptr;
    std::string client_;
    int count_ = 0;
  };

  // The host of a gRPC peer ("ipv4:10.0.0.1:4711", "ipv6:[::1]:4711",
  // "unix:/path"): all connections from it are one client.
  static std::string HostOf(absl::string_view peer);

 private:
  // `held`: what the caller has of them, and changes to `count`.
  absl::Status Change(const std::string& client, int held, int count);

  const int max_per_client_;
  absl::Mutex mu_;
  absl::flat_hash_map<std::string, int> open_ ABSL_GUARDED_BY(mu_);
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_API_CLIENT_STREAMS_H_
