// Requests from their start to their end. It knows which may wait, which
// starts, what each client hears at the end, and which are out of time.
//
// A part of the dispatcher, under its lock.

#ifndef COORDINATOR_DISPATCH_REQUEST_DESK_H_
#define COORDINATOR_DISPATCH_REQUEST_DESK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/dispatch/answer.h"
#include "coordinator/dispatch/dispatcher_state.h"
#include "coordinator/dispatch/pairing.h"
#include "coordinator/dispatch/queue_pace.h"
#include "coordinator/dispatch/request.h"
#include "coordinator/dispatch/request_queue.h"
#include "coordinator/dispatch/session.h"

namespace nacre::coordinator {

class RequestDesk {
 public:
  RequestDesk(DispatcherState* state, Pairing* pairing)
      : state_(*state), pairing_(*pairing) {}

  // Starts it or lets it wait; its id. `together`: how many like it, with it,
  // come at once. Errors: as of Dispatcher::Start.
  absl::StatusOr<uint64_t> Admit(WaitingRequest waiting, int64_t together,
                                 bool draining);
  // Starts what waits and has room now.
  void StartWaiting();
  // Refuses what waits in vain since the fleet has changed; all that waits.
  void RefuseHopeless();
  void RefuseAll(const absl::Status& status);
  // Refuses it where it waits, and fails it where it runs. Unknown ids are
  // ignored.
  void Cancel(uint64_t session_id, const absl::Status& status);
  // Fails all that runs: the server goes.
  void EndAll();

  // Its answer has ended well: tells its client, and ends the session.
  void Complete(Session& session);
  // Tells the client and ends the session.
  void Fail(Session& session, const absl::Status& status);
  // Lets the target go on, as far as the client keeps up.
  void Acknowledge(Session& session);

  // End what is past its deadline, has waited too long for room, or has a
  // client that takes nothing; ask for the next Tick.
  void ExpireDeadlines(int64_t now_ns);
  void ExpireQueue(int64_t now_ns);
  void ExpireStalls(int64_t now_ns);

 private:
  // Why the request can run neither now nor later, if so.
  absl::Status CheckAdmissible(const RequestSpec& request, int64_t together,
                               bool draining) const;
  void Launch(RequestQueue::Start start);
  // Takes a request out of the queue; the sink has not been told.
  WaitingRequest Leave(uint64_t session_id);
  void Refuse(uint64_t session_id, const absl::Status& status);
  // Why no target that is ready could take it: for good (kNeverFits) or not.
  absl::Status WhyNotNow(const RequestSpec& request) const;
  // That the queue has no place, or had none in time.
  absl::Status NoRoom(const char* reason, absl::string_view message) const;
  // What its answer is told at its end.
  Answer::End LastWords(Session& session);
  // Closes the session on its workers and forgets it; its answer was told.
  void End(Session& session);
  void Forget(uint64_t session_id, const RequestSpec& request);

  DispatcherState& state_;
  Pairing& pairing_;
  QueuePace pace_;
  uint64_t next_session_id_ = 1;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_REQUEST_DESK_H_
