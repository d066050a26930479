// Workers that lie to a coordinator. Each function is one round of it, bounded
// in time, and ends soon after `over`.
//
// Thread-safe.

#ifndef TESTS_INTEGRATION_HOSTILE_WORKERS_H_
#define TESTS_INTEGRATION_HOSTILE_WORKERS_H_

#include <string>

#include "absl/synchronization/notification.h"
#include "proto/worker.pb.h"
#include "tests/integration/hostile_clients.h"

namespace nacre::integration {

// What the true workers have said of themselves, and what proves that a worker
// has their vocabulary.
struct TrueWorkers {
  v1::Hello target;
  v1::Hello draft;
  std::string vocabulary_proof;
};

// Attaches with the Hello of a true worker, its address or another one, its
// incarnation or another one, and answers what it is asked.
void AttachWithCopiedHello(const Prey& prey, const TrueWorkers& workers,
                           int round, const absl::Notification& over);

// A target for small requests, as a stranger may add it, and clients that send
// some. It answers with verdicts whose counts, lengths and tokens cannot be, of
// its own sessions and of others. Returns how many it had.
int TellAbsurdVerdicts(const Prey& prey, const TrueWorkers& workers, int round,
                       const absl::Notification& over);

// A draft whose tails cannot be, and clients that want one. Returns how many
// sessions it had.
int TellAbsurdTails(const Prey& prey, const TrueWorkers& workers, int round,
                    const absl::Notification& over);

}  // namespace nacre::integration

#endif  // TESTS_INTEGRATION_HOSTILE_WORKERS_H_
