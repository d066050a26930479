// Takes connections in gRPC's place.
//
// gRPC 1.51 has no limit of connections. If its listener cannot accept one for
// want of a file descriptor, it never accepts again. A peer that has enough of
// them open would close the port for good.

#ifndef COMMON_RPC_ACCEPTOR_H_
#define COMMON_RPC_ACCEPTOR_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/callers.h"
#include "common/rpc/connections.h"

namespace nacre::rpc {

// Thread-safe. Owns one thread.
class Acceptor {
 public:
  struct Options {
    std::string listen;  // host:port, port 0 picks a free one
    // One more takes the place of one without a call (callers.h), or is closed
    // at once where each has one.
    int max_connections = 1;
    // A peer that acknowledges nothing for so long is gone.
    absl::Duration user_timeout = absl::Seconds(10);
    // How soon closed connections are forgotten.
    absl::Duration sweep_period = absl::Seconds(5);
    // Receives all of them; null: the acceptor has some of its own.
    std::shared_ptr<Connections> connections = nullptr;
    // Likewise, and is told of their calls.
    std::shared_ptr<Callers> callers = nullptr;
  };

  // Binds; connections wait until Start. UNAVAILABLE: no address of the host
  // can be bound.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Bind(const Options& options);
  ~Acceptor() { Stop(); }
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  int port() const { return port_; }
  // `on_connection` takes over each descriptor. It counts until it is closed.
  void Start(std::function<void(int listener_fd, int fd)> on_connection);
  // Returns when no connection comes any more; the port is free. Idempotent.
  void Stop();

 private:
  explicit Acceptor(const Options& options)
      : options_(options),
        connections_(options.connections != nullptr
                         ? options.connections
                         : std::make_shared<Connections>()),
        callers_(options.callers != nullptr ? options.callers
                                            : std::make_shared<Callers>()) {}

  bool Listen(const std::string& host, int port, bool dual_stack);
  void Run();
  // Whether `listener` may have another one.
  bool AcceptOne(int listener);
  // Whether one more fits, perhaps in the place of others.
  bool HasRoom();
  bool MakeRoom();
  // Forgets closed connections once a period. How long to wait for another one:
  // milliseconds, or -1 where there is none to be forgotten.
  int SweepMs();

  const Options options_;
  const std::shared_ptr<Connections> connections_;
  const std::shared_ptr<Callers> callers_;
  int port_ = 0;
  int wake_[2] = {-1, -1};  // a pipe: Stop closes its writing end
  std::vector<int> listeners_;
  std::function<void(int, int)> on_connection_;
  absl::Time next_count_ = absl::InfinitePast();
  absl::Time next_sweep_ = absl::InfinitePast();
  std::thread thread_;
};

// Raises this process' limit of open files as far as it may. The limit.
int RaiseFileLimit();

}  // namespace nacre::rpc

#endif  // COMMON_RPC_ACCEPTOR_H_
