// What metrics, traces and logs may watch of the dispatcher: every request from
// its arrival to its end. Each choice of a call counts as a request. It is told
// exactly once, in this order:
//
//   OnQueued? (OnRefused | OnStarted (OnTail | OnSpan | OnRound | OnMoved |
//                                     OnOpened | OnCached)* OnFinished)
//
// Called without the dispatcher's lock, one at a time (OnAnswered: several at
// once), in the order of each request: must not call back into it.

#ifndef COORDINATOR_DISPATCH_OBSERVER_H_
#define COORDINATOR_DISPATCH_OBSERVER_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "coordinator/dispatch/request.h"
#include "coordinator/fleet/worker_info.h"
#include "speculation/pipeline.h"

namespace nacre::coordinator {

// Which workers serve a session; the draft's address is empty without one.
struct Placement {
  std::string target_address;
  std::string draft_address;
  // Of these processes: new at each start.
  std::string target_incarnation = {};
  std::string draft_incarnation = {};
};

class Observer {
 public:
  virtual ~Observer() = default;

  // It waits for room, `position` requests before it.
  virtual void OnQueued(const RequestSpec& request, int position) {
    (void)request, (void)position;
  }
  // It ends without having run: the queue is full, or it left the queue.
  virtual void OnRefused(const RequestSpec& request,
                         const absl::Status& status) {
    (void)request, (void)status;
  }
  // `queue_ns` after its arrival it runs.
  virtual void OnStarted(uint64_t session_id, const RequestSpec& request,
                         const Placement& placement, int64_t queue_ns) {
    (void)session_id, (void)request, (void)placement, (void)queue_ns;
  }
  // A target has opened it for the first time; its prefix cache had so many
  // tokens of the prompt. Once at most, before the first round.
  virtual void OnOpened(uint64_t session_id, int cached_tokens) {
    (void)session_id, (void)cached_tokens;
  }
  // So many more, which that target has computed for others meanwhile. After
  // OnOpened, before the first round.
  virtual void OnCached(uint64_t session_id, int tokens) {
    (void)session_id, (void)tokens;
  }
  // Draft tokens of it go to the target.
  virtual void OnTail(uint64_t session_id, const speculation::Tail& tail) {
    (void)session_id, (void)tail;
  }
  // A stretch of a worker's time, before the verdict that it led to. Its clock
  // is `clock_offset_ns` ahead of ours, estimated.
  virtual void OnSpan(uint64_t session_id, WorkerRole role,
                      const SpanRecord& span, int64_t clock_offset_ns) {
    (void)session_id, (void)role, (void)span, (void)clock_offset_ns;
  }
  // A target step of it has committed what it accepted, and holds its last row.
  // `num_shown` of these tokens are part of the answer: a stop string cuts off
  // the rest. OnRound follows.
  virtual void OnAccepted(uint64_t session_id, int num_shown) {
    (void)session_id, (void)num_shown;
  }
  // A target step of it has ended; the verdict is of all of it. `num_shown`
  // tokens that were not told by OnAccepted are part of the answer.
  virtual void OnRound(uint64_t session_id, const speculation::Verdict& verdict,
                       int num_shown) {
    (void)session_id, (void)verdict, (void)num_shown;
  }
  // A target's message with verdicts took this long from its arrival until all
  // that follows from it was on its way.
  virtual void OnVerdictsHandled(int64_t duration_ns) { (void)duration_ns; }
  // A worker of it was lost, replaced or found.
  virtual void OnMoved(uint64_t session_id, const Placement& placement) {
    (void)session_id, (void)placement;
  }
  // `completion` is null where the status is not OK.
  virtual void OnFinished(uint64_t session_id, const RequestSpec& request,
                          const absl::Status& status,
                          const Completion* completion) {
    (void)session_id, (void)request, (void)status, (void)completion;
  }

  // Called once when a Generate call ends, also if it never became a request.
  // `request_id` is empty where the client gave none; `finish` is set where the
  // status is OK: that of the first choice that it answers. Any thread may call
  // it, several at once.
  virtual void OnAnswered(absl::string_view request_id,
                          const absl::Status& status,
                          absl::optional<Finish> finish) {
    (void)request_id, (void)status, (void)finish;
  }
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_OBSERVER_H_
