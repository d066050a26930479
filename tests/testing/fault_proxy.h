// A TCP proxy between two processes of a test: the network that breaks. It
// forwards bytes until told otherwise.
//
// Thread-safe. Owns one thread.

#ifndef TESTS_TESTING_FAULT_PROXY_H_
#define TESTS_TESTING_FAULT_PROXY_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <list>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace nacre::testing {

class FaultProxy {
 public:
  enum class Mode {
    kForward,
    // Neither side notices more than silence: what is sent stays here, and new
    // connections are accepted and left alone. A cable that was pulled.
    kSilent,
    // Connections are reset, new ones too. A host that is up, without the
    // process.
    kReset,
  };

  // Listens on a free port of 127.0.0.1. `upstream` is asked for the host:port
  // to forward to at each connection; while it says "", connections are reset.
  explicit FaultProxy(std::function<std::string()> upstream);
  ~FaultProxy();
  FaultProxy(const FaultProxy&) = delete;
  FaultProxy& operator=(const FaultProxy&) = delete;

  // host:port to dial.
  const std::string& address() const { return address_; }

  void SetMode(Mode mode) ABSL_LOCKS_EXCLUDED(mu_);
  // Every byte arrives this much later than it was sent.
  void SetDelay(absl::Duration delay) ABSL_LOCKS_EXCLUDED(mu_);
  // Resets the connections of now; new ones are welcome.
  void Cut() ABSL_LOCKS_EXCLUDED(mu_);
  // Resets all connections but the oldest `limit`, and new ones beyond.
  void SetLimit(int limit) ABSL_LOCKS_EXCLUDED(mu_);

  int connections() const ABSL_LOCKS_EXCLUDED(mu_);
  // Of all connections, both ways.
  int64_t delivered_bytes() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Packet {
    std::string bytes;
    absl::Time due;
  };
  // One direction of a connection.
  struct Pipe {
    int from = -1;
    int to = -1;
    bool ended = false;   // `from` has said its last byte
    bool closed = false;  // ... and `to` was told
    std::deque<Packet> packets;
    size_t held_bytes = 0;
  };
  struct Connection {
    Pipe pipes[2];
    bool broken = false;
  };

  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  void Wake();
  void Accept() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Both return false when the connection is broken.
  bool Receive(Pipe& pipe, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Deliver(Pipe& pipe, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static void Reset(const Connection& connection);

  const std::function<std::string()> upstream_;
  std::string address_;
  int listener_ = -1;
  int wake_[2] = {-1, -1};  // a pipe: the thread polls its reading end

  mutable absl::Mutex mu_;
  Mode mode_ ABSL_GUARDED_BY(mu_) = Mode::kForward;
  absl::Duration delay_ ABSL_GUARDED_BY(mu_) = absl::ZeroDuration();
  int limit_ ABSL_GUARDED_BY(mu_) = std::numeric_limits<int>::max();
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  int64_t delivered_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::list<Connection> connections_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace nacre::testing

#endif  // TESTS_TESTING_FAULT_PROXY_H_
