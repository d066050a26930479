// Clients that do to a coordinator what none should. Each function is one
// round of it, bounded in time and bytes, and ends soon after `over`.
//
// Thread-safe.

#ifndef TESTS_INTEGRATION_HOSTILE_CLIENTS_H_
#define TESTS_INTEGRATION_HOSTILE_CLIENTS_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "tests/testing/loopback.h"

namespace nacre::integration {

// The coordinator that they attack.
struct Prey {
  std::string clients;  // host:port of each port
  std::string registry;
  std::string operators;
  std::string metrics;
  std::string token;  // of a client that is let in
};

// A prompt of almost 16 MiB of words of two bytes, to Generate and to Tokenize.
void SendOversizedPrompts(const Prey& prey, int round);

// As large, from clients without a token and with a wrong one; they must be
// told so.
void SendWithoutToken(const Prey& prey, int round);

// Messages of 15 MiB whose repeated fields have millions of entries, with a
// token and without.
void SendBombs(const Prey& prey, int round);

// Calls whose answers are complete and are not read, for longer than the server
// bears it.
void LeaveAnswersUnread(const Prey& prey, const absl::Notification& over);

// A stream that is read slower than it comes.
void ReadSlowly(const Prey& prey, const absl::Notification& over);

// Connections that end in the middle of HTTP/2 or gRPC, some by a reset.
void SendHalfMessages(const Prey& prey, const absl::Notification& over);

// Many calls at once whose messages of 15 MiB are sent but for their last byte,
// as fast as the server lets them come.
void SendLargeHalves(const Prey& prey, const absl::Notification& over);

// Keeps so many connections that say nothing, or only that they speak HTTP/2.
// Not thread-safe.
class IdleConnections {
 public:
  IdleConnections(Prey prey, size_t count)
      : prey_(std::move(prey)), count_(count) {}

  // Opens again what the server has closed, then waits a second.
  void Round(const absl::Notification& over);
  void CloseAll() { connections_.clear(); }

 private:
  nacre::testing::LoopbackConnection Open(size_t i) const;

  const Prey prey_;
  const size_t count_;
  std::vector<nacre::testing::LoopbackConnection> connections_;
};

}  // namespace nacre::integration

#endif  // TESTS_INTEGRATION_HOSTILE_CLIENTS_H_
