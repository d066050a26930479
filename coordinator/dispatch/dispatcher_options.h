// What a dispatcher works with and how much it takes on.

#ifndef COORDINATOR_DISPATCH_DISPATCHER_OPTIONS_H_
#define COORDINATOR_DISPATCH_DISPATCHER_OPTIONS_H_

#include <cstdint>
#include <functional>

#include "coordinator/dispatch/clock.h"
#include "coordinator/dispatch/observer.h"
#include "speculation/pipeline.h"
#include "tokenizer/tokenizer.h"

namespace nacre::coordinator {

struct DispatcherOptions {
  const tokenizer::Tokenizer* tokenizer = nullptr;  // required
  Observer* observer = nullptr;                     // may be missing
  Clock now_ns = MonotonicNs;
  // How long a session without a target waits for an equal one.
  int64_t failover_timeout_ns = 30'000'000'000;
  // Sessions of this coordinator at once on each target; 0: what its KV holds.
  int max_running = 0;
  int max_queue = 1024;  // that wait for room
  // How long a request may wait for room. This and the other timeouts: kNever
  // is no limit.
  int64_t queue_timeout_ns = int64_t{60} * 1000000000;
  // New requests wait like this also while no target is ready, if there has
  // been one; else they end with UNAVAILABLE.
  bool hold_without_target = true;
  // From its arrival; kNever: the client's deadline is the only one.
  int64_t max_request_ns = kNever;
  // A client that takes nothing for so long while its target waits for it loses
  // its session.
  int64_t client_timeout_ns = int64_t{60} * 1000000000;
  // Nodes of a session's tree that one step of its draft expands, 1 to
  // speculation::kMaxDraftRows. 1: drafts are chains.
  int draft_rows = 1;
  // Of these, most that one step of its target verifies, 0 to
  // speculation::kMaxWindow. 0: of a tree the best path alone.
  int tree_rows = 16;
  // Asks for a Tick at this time or before. Any thread calls it, without the
  // lock; it never blocks.
  std::function<void(int64_t at_ns)> wake_at;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_DISPATCHER_OPTIONS_H_
