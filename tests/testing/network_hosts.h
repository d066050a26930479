// Hosts inside this machine, for tests of what a real network does: each a
// network namespace with TCP, loopback and an Ethernet card of its own. The
// cards hang on one switch, a thread of this process, which delays, loses and
// withholds frames as it is told. No host gets a FIN or a reset from it.
//
// A switch in user space because tc's netem is in few kernels; it needs root
// and /dev/net/tun. Nothing has a name outside: the kernel removes namespaces
// and cards with the last process in them, however a test ended.
//
// Thread-safe. Owns one thread.

#ifndef TESTS_TESTING_NETWORK_HOSTS_H_
#define TESTS_TESTING_NETWORK_HOSTS_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace nacre::testing {

class NetworkHosts {
 public:
  // The cable between one host and the switch.
  struct Link {
    bool hears = true;   // what others send to the host reaches it
    bool speaks = true;  // what the host sends leaves it
    // Each frame, either way, takes `delay` give or take `jitter` longer; a
    // later one may overtake it.
    absl::Duration delay = absl::ZeroDuration();
    absl::Duration jitter = absl::ZeroDuration();
    double loss = 0.0;  // share of the frames, either way, that vanish
  };
  static Link Cut() { return {.hears = false, .speaks = false}; }

  // Hosts 0 to count - 1, count <= 200, all links sound. Errors:
  // PERMISSION_DENIED or UNAVAILABLE, with what this machine does not allow or
  // have.
  static absl::StatusOr<std::unique_ptr<NetworkHosts>> Create(int count);
  ~NetworkHosts();
  NetworkHosts(const NetworkHosts&) = delete;
  NetworkHosts& operator=(const NetworkHosts&) = delete;

  // An IPv4 address that every host reaches. All ports of a host are free.
  std::string address(int host) const;

  // For what is sent from now on.
  void SetLink(int host, const Link& link) ABSL_LOCKS_EXCLUDED(mu_);

  // While it lives, its thread is on a host: sockets, threads and processes
  // that it makes stay there. Scopes of a thread nest.
  class Visit {
   public:
    Visit(const NetworkHosts& network, int host);
    ~Visit();
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

   private:
    const int home_;  // namespace
  };

 private:
  using MacAddress = std::array<char, 6>;
  struct Host {
    int name_space = -1;
    int card = -1;  // frames written here arrive at the host
    Link link;
  };
  struct Frame {
    absl::Time due;
    uint64_t serial = 0;
    size_t to = 0;
    std::string bytes;
    // The next one is the top of a queue.
    bool operator<(const Frame& other) const {
      return due != other.due ? due > other.due : serial > other.serial;
    }
  };

  NetworkHosts() = default;
  absl::Status AddHost();
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  // All that `from` has sent.
  void Receive(size_t from, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Forward(size_t from, size_t to, const std::string& bytes, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  int wake_ = -1;  // an eventfd: the thread ends when it can be read
  mutable absl::Mutex mu_;
  std::vector<Host> hosts_ ABSL_GUARDED_BY(mu_);  // constant but for the links
  std::map<MacAddress, size_t> learned_ ABSL_GUARDED_BY(mu_);
  std::priority_queue<Frame> delayed_ ABSL_GUARDED_BY(mu_);
  uint64_t next_serial_ ABSL_GUARDED_BY(mu_) = 0;
  std::minstd_rand random_ ABSL_GUARDED_BY(mu_){1};
  std::thread thread_;
};

}  // namespace nacre::testing

#endif  // TESTS_TESTING_NETWORK_HOSTS_H_
