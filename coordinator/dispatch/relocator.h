// Moves sessions off workers that are gone, failed or drain, and on where
// failover.h finds a place. Gives room that has become free to what waits for
// it.
//
// A part of the dispatcher, under its lock.

#ifndef COORDINATOR_DISPATCH_RELOCATOR_H_
#define COORDINATOR_DISPATCH_RELOCATOR_H_

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "coordinator/dispatch/dispatcher_state.h"
#include "coordinator/dispatch/kv_reporter.h"
#include "coordinator/dispatch/pairing.h"
#include "coordinator/dispatch/request_desk.h"
#include "coordinator/dispatch/session.h"

namespace nacre::coordinator {

class Relocator {
 public:
  Relocator(DispatcherState* state, Pairing* pairing, RequestDesk* desk,
            KvReporter* kv_reporter)
      : state_(*state),
        pairing_(*pairing),
        desk_(*desk),
        kv_reporter_(*kv_reporter) {}

  // The worker is gone, with all that was on it.
  void OnWorkerGone(uint64_t worker_id);
  // The session's target could not, or no longer, serve it.
  void OnTargetFailure(Session& session, const absl::Status& status);
  // Its draft could not, or no longer, serve it. The answer does not show that,
  // so the log says why: at a draft's first failure, its second, its fourth and
  // so on.
  void OnDraftFailure(Session& session, const absl::Status& status);

  // Moves sessions off draining workers as far as others have room for them:
  // one that would only wait goes on where it is.
  void MoveFromDraining();
  // Gives room that has become free to what waits for it: held sessions, those
  // of draining workers, the queue. Every change ends with it.
  void Settle();

 private:
  // Opens held sessions, oldest first, where there are targets for them, and
  // ends those that have waited too long.
  void ResumeHeld();
  // The session waits for ResumeHeld from now.
  void OnHeld(Session& session);

  // How often a draft that is there has failed a session.
  absl::flat_hash_map<uint64_t, int64_t> draft_failures_;
  DispatcherState& state_;
  Pairing& pairing_;
  RequestDesk& desk_;
  KvReporter& kv_reporter_;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_RELOCATOR_H_
