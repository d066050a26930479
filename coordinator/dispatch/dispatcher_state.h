// What the parts of a dispatcher share: its pure values, and where what it
// decides goes. Private to it, under its lock. What a part leaves in the outbox
// runs without that lock, so it captures neither a part nor the state.

#ifndef COORDINATOR_DISPATCH_DISPATCHER_STATE_H_
#define COORDINATOR_DISPATCH_DISPATCHER_STATE_H_

#include <cstdint>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "coordinator/dispatch/clock.h"
#include "coordinator/dispatch/dispatcher_options.h"
#include "coordinator/dispatch/failover.h"
#include "coordinator/dispatch/open_requests.h"
#include "coordinator/dispatch/outbox.h"
#include "coordinator/dispatch/placer.h"
#include "coordinator/dispatch/request_queue.h"
#include "coordinator/dispatch/session.h"
#include "coordinator/dispatch/stalls.h"
#include "coordinator/dispatch/status_board.h"
#include "coordinator/fleet/fleet.h"

namespace nacre::coordinator {

struct DispatcherState {
  // All outlive it.
  DispatcherState(const DispatcherOptions* with, StatusBoard* shown_on,
                  Outbox* tells)
      : options(*with), board(*shown_on), outbox(*tells) {}
  DispatcherState(const DispatcherState&) = delete;
  DispatcherState& operator=(const DispatcherState&) = delete;

  int64_t now_ns() const { return options.now_ns(); }
  Session* Find(uint64_t session_id) const {
    const auto it = sessions.find(session_id);
    return it == sessions.end() ? nullptr : it->second.get();
  }
  // One of that worker's sessions; null else: late messages name closed ones.
  Session* FindOn(uint64_t session_id, uint64_t worker_id) const {
    Session* session = Find(session_id);
    return session != nullptr && (session->draft_worker == worker_id ||
                                  session->target_worker == worker_id)
               ? session
               : nullptr;
  }
  // Sees to a Tick at `at_ns` or before.
  void WakeAt(int64_t at_ns) {
    if (at_ns >= tick_at_ns) return;
    tick_at_ns = at_ns;
    outbox.WakeAt(at_ns);
  }
  // There may be room for another session on a worker of that role.
  void OnRoom(WorkerRole role) {
    (role == WorkerRole::kDraft ? draft_room_changed : room_changed) = true;
  }

  const DispatcherOptions& options;
  StatusBoard& board;
  Outbox& outbox;
  Fleet fleet{options.max_running};
  Placer placer{&fleet, options.queue_timeout_ns};
  RequestQueue queue{&fleet, &placer, options.queue_timeout_ns};
  Failover failover{&fleet, &placer, options.failover_timeout_ns};
  OpenRequests open;
  Stalls stalls{options.client_timeout_ns};
  absl::flat_hash_map<uint64_t, std::unique_ptr<Session>> sessions;
  bool room_changed = false;
  bool draft_room_changed = false;
  // A session was held, or the time of one that is may have come.
  bool held_changed = false;
  int64_t tick_at_ns = kNever;  // the next one asked for
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_DISPATCHER_STATE_H_
