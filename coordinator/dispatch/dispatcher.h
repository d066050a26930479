// The heart of the coordinator: which workers are there, which sessions run on
// them, and where every message goes. Pairs each session with a target and a
// draft, relays tails and commits, keeps the plans current. Lets a session go
// on without its draft, and on another target when its own is gone.
//
// What it knows are pure values (dispatcher_state.h): fleet.h and placer.h,
// request_queue.h, failover.h. Its parts change them and tell workers and
// clients: pairing.h, request_desk.h, relocator.h, event_router.h.
//
// Thread-safe. Under its one lock it only decides (and searches for the first
// plan of a session). After unlocking, this thread or one that is already
// delivering does the rest, in the order of the decisions. It writes to workers
// and clients, makes text and metrics, and searches for plans. Lists and
// scrapes do not take the lock.

#ifndef COORDINATOR_DISPATCH_DISPATCHER_H_
#define COORDINATOR_DISPATCH_DISPATCHER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "coordinator/dispatch/dispatcher_options.h"
#include "coordinator/dispatch/dispatcher_state.h"
#include "coordinator/dispatch/event_router.h"
#include "coordinator/dispatch/kv_reporter.h"
#include "coordinator/dispatch/pairing.h"
#include "coordinator/dispatch/relocator.h"
#include "coordinator/dispatch/request.h"
#include "coordinator/dispatch/request_desk.h"
#include "coordinator/dispatch/serial_observer.h"
#include "coordinator/dispatch/worker_link.h"
#include "wire/draft_messages.h"
#include "wire/target_messages.h"

namespace nacre::coordinator {

class Dispatcher {
 public:
  using Options = DispatcherOptions;

  // What the options point to must outlive the dispatcher.
  explicit Dispatcher(Options options);
  ~Dispatcher();

  // ------------------------------------------------------------------ workers
  // Takes a worker into service. FAILED_PRECONDITION if a target serves another
  // checkpoint than the targets that are there. Sessions without a draft or
  // without a target, and those of draining ones, get it.
  absl::StatusOr<uint64_t> AddTarget(WorkerInfo info,
                                     std::shared_ptr<TargetLink> link);
  absl::StatusOr<uint64_t> AddDraft(WorkerInfo info,
                                    std::shared_ptr<DraftLink> link);
  // No new sessions on it. Those it has move to another as far as that has
  // room, at once or later, and else go on where they are. Resume: it had only
  // seemed to hang.
  void DrainWorker(uint64_t worker_id);
  void ResumeWorker(uint64_t worker_id);
  // It is gone: sessions go on without their draft. Those without their target
  // go on, token for token the same, on one with an equal fingerprint and
  // numerics_id, now or when it comes. After the failover timeout they end with
  // UNAVAILABLE. Unknown ids are ignored.
  void RemoveWorker(uint64_t worker_id);
  // Lets the worker close sessions whose close was lost: every few seconds. A
  // worker that shares its KV sends a grant with it. Requests start as far as
  // the grant goes, and the worker is told what we have and want.
  void StateKept(uint64_t worker_id,
                 const absl::optional<KvGrant>& grant = absl::nullopt);
  // Of a target, of a draft: others are not listened to.
  void OnEvents(uint64_t worker_id, wire::TargetEvents events);
  void OnEvents(uint64_t worker_id, wire::DraftEvents events);

  // ----------------------------------------------------------------- requests
  // The served model: that of the ready targets, with the KV of the largest;
  // nullopt without one.
  absl::optional<WorkerInfo> model() const { return board_.model(); }
  // What new requests are for: also, where they wait for a target, the model
  // that was served last.
  absl::optional<WorkerInfo> expected_model() const;

  // Starts a session, or lets it wait until a target has room. Returns its id.
  // Its output goes to `sink`, which is told nothing when this fails. Errors:
  // - UNAVAILABLE: there was no target yet, or none is ready and requests do
  //   not wait for one; another model; draining.
  // - ALREADY_EXISTS: request_id is running or waiting.
  // - FAILED_PRECONDITION: no target has the numerics_id asked for.
  // - RESOURCE_EXHAUSTED: no target is large enough, or the queue is full.
  absl::StatusOr<uint64_t> Start(RequestSpec request,
                                 std::shared_ptr<ResponseSink> sink);
  // The choices of a call, in order, at once: none can end, and give up the
  // call's request_id, before the last of them has it. Stops at the first that
  // Start would refuse; those before it run, or wait, until they are cancelled.
  // None starts where there could never be a place for all at once
  // (RESOURCE_EXHAUSTED).
  struct NewSession {
    RequestSpec request;
    std::shared_ptr<ResponseSink> sink;
  };
  struct Started {
    std::vector<uint64_t> session_ids;  // of the first so many
    absl::Status status;                // why the next was refused
  };
  Started StartAll(std::vector<NewSession> sessions);
  // It leaves the queue, or frees both workers. Unknown ids are ignored.
  void Cancel(uint64_t session_id,
              absl::string_view reason = "cancelled by the client");
  // The client has taken what was sent.
  void OnSinkDrained(uint64_t session_id);

  // Does what is due by now. It ends requests whose deadline has passed, that
  // have waited too long for room, or that no target took over in time. Returns
  // when to call it next, kNever where nothing waits for a time; what comes up
  // earlier is announced with wake_at.
  int64_t Tick();

  // Refuses new and waiting requests and waits until the running ones have
  // ended, at most `timeout`; whether they did.
  bool Drain(absl::Duration timeout);
  // Ends what still runs with UNAVAILABLE.
  void EndAll();

  std::vector<WorkerStatus> workers() const { return board_.workers(); }
  // Those that run, and those that wait, in order.
  std::vector<SessionStatus> sessions() const { return board_.running(); }
  std::vector<SessionStatus> queued() const { return board_.waiting(); }
  Demand demand() const { return board_.demand(); }
  bool draining() const { return draining_; }
  int64_t now_ns() const { return options_.now_ns(); }
  int64_t locked_ns() const;  // how long its lock was held altogether

 private:
  // Turns (dispatcher_turn.h):
  class Turn;
  void BeginTurn() ABSL_EXCLUSIVE_LOCK_FUNCTION(mu_);
  Leftovers EndTurn() ABSL_UNLOCK_FUNCTION(mu_);
  // Does all that the turn has left, and what comes of it.
  void Deliver(Leftovers left) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<uint64_t> AddWorker(WorkerInfo info, NotedLink link)
      ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;
  SerialObserver observer_;
  StatusBoard board_;
  mutable absl::Mutex mu_;
  Outbox outbox_;  // under mu_, but for its last words
  int64_t turn_since_ns_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t locked_ns_ ABSL_GUARDED_BY(mu_) = 0;
  // What it knows, and its parts, each of which may call those before it.
  DispatcherState state_ ABSL_GUARDED_BY(mu_);
  Pairing pairing_ ABSL_GUARDED_BY(mu_);
  RequestDesk desk_ ABSL_GUARDED_BY(mu_);
  KvReporter kv_reporter_ ABSL_GUARDED_BY(mu_);
  Relocator relocator_ ABSL_GUARDED_BY(mu_);
  EventRouter router_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> draining_{false};
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_DISPATCHER_H_
