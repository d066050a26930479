// The heart of the coordinator: which workers are there, which sessions run on
// them, and where every message goes. Pairs each session with a target and a
// draft (placer.h), relays tails and commits, keeps the plans current, lets a
// session go on without its draft, and on another target when its own is gone.
//
// Thread-safe; one lock, under which it only decides. The rest comes when it is
// free again, in the order of the decisions: writing to workers and clients,
// text, metrics and the search for plans (but a session's first). That is
// before the call returns, or on another thread that is at it. Lists and
// scrapes do not take the lock.

#ifndef COORDINATOR_DISPATCHER_H_
#define COORDINATOR_DISPATCHER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "coordinator/admission.h"
#include "coordinator/dispatcher_options.h"
#include "coordinator/dispatcher_records.h"
#include "coordinator/placer.h"
#include "coordinator/request.h"
#include "coordinator/serial_observer.h"
#include "coordinator/worker_link.h"
#include "wire/draft_messages.h"
#include "wire/target_messages.h"

namespace nacre::coordinator {

class Session;

// What needs the lock.
#define NACRE_LOCKED ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_)

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
  // No new sessions on it; those it has move to another as far as that has
  // room, at once or later, and else go on where they are. Resume: it had only
  // seemed to hang.
  void DrainWorker(uint64_t worker_id);
  void ResumeWorker(uint64_t worker_id);
  // It is gone: sessions go on without their draft. Those without their target
  // go on, token for token the same, on one with an equal fingerprint and
  // numerics_id, now or when it comes; after the failover timeout they end with
  // UNAVAILABLE. Unknown ids are ignored.
  void RemoveWorker(uint64_t worker_id);
  // Lets the worker close sessions whose close was lost: every few seconds.
  void StateKept(uint64_t worker_id);
  // Of a target, of a draft: others are not listened to.
  void OnEvents(uint64_t worker_id, wire::TargetEvents events);
  void OnEvents(uint64_t worker_id, wire::DraftEvents events);

  // ----------------------------------------------------------------- requests
  // The served model: that of the ready targets; nullopt without one.
  absl::optional<WorkerInfo> model() const { return board_.model(); }
  // What new requests are for: also, where they wait for a target, the model
  // that was served last.
  absl::optional<WorkerInfo> expected_model() const;

  // Starts a session, or lets it wait until a target has room for it; its
  // output goes to `sink`, which is told nothing when this fails. Errors:
  // UNAVAILABLE (there was no target yet, or none is ready and requests do not
  // wait for one; another model; draining), ALREADY_EXISTS (request_id is
  // running or waiting), FAILED_PRECONDITION (no target has the numerics_id
  // asked for), RESOURCE_EXHAUSTED (no target is large enough, or the queue is
  // full). Returns the session's id.
  absl::StatusOr<uint64_t> Start(RequestSpec request,
                                 std::shared_ptr<ResponseSink> sink);
  // It leaves the queue, or frees both workers. Unknown ids are ignored.
  void Cancel(uint64_t session_id,
              absl::string_view reason = "cancelled by the client");
  // The client has taken what was sent.
  void OnSinkDrained(uint64_t session_id);

  // Does what is due by now: ends requests whose deadline has passed, who have
  // waited too long for room, or that no target took over in time. Returns when
  // to call it next, kNever where nothing waits for a time; what comes up
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
  // KV that is promised to sessions on a worker, in tokens.
  int64_t reserved_kv_tokens(uint64_t worker_id) const;
  bool draining() const { return draining_; }
  int64_t now_ns() const { return options_.now_ns(); }
  int64_t locked_ns() const;  // how long its lock was held altogether

 private:
  using Waiting = WaitingRequest;
  using Worker = WorkerRecord;
  // Turns (dispatcher_turn.h):
  class Turn;
  void BeginTurn() ABSL_EXCLUSIVE_LOCK_FUNCTION(mu_);
  Leftovers EndTurn() ABSL_UNLOCK_FUNCTION(mu_);
  // Does all that the turn has left, and what comes of it.
  void Deliver(Leftovers left) ABSL_LOCKS_EXCLUDED(mu_);
  // The session's plan is to follow the costs of now.
  void PlanLater(const Session& session) NACRE_LOCKED;
  void Adopt(const PlanTask& task) NACRE_LOCKED;

  absl::StatusOr<uint64_t> AddWorker(WorkerInfo info, NotedLink link)
      ABSL_LOCKS_EXCLUDED(mu_);
  Worker* FindWorker(uint64_t id) NACRE_LOCKED;
  // The session's KV on the worker is free.
  void ReleaseRoom(uint64_t worker_id, uint64_t session_id) NACRE_LOCKED;
  speculation::StepCosts Costs(const Session& session) NACRE_LOCKED;
  // Makes the worker its target, with room there.
  void TakeTarget(Session& session, uint64_t worker_id) NACRE_LOCKED;
  // Opens the session, with all that is committed, on its target and, if it
  // wants one and one is there, on a draft.
  void Open(Session& session) NACRE_LOCKED;
  void OpenDraft(Session& session, uint64_t worker_id) NACRE_LOCKED;
  // Pairs a running session with a draft if it wants one and one is there.
  void AttachDraft(Session& session) NACRE_LOCKED;
  // The same for all that lack one, the oldest first.
  void AttachDrafts() NACRE_LOCKED;
  // Makes the worker its draft, with room there.
  void TakeDraft(Session& session, uint64_t worker_id) NACRE_LOCKED;
  void LoseDraft(Session& session) NACRE_LOCKED;
  void WorkerLeft(Session& session, const Worker& worker) NACRE_LOCKED;
  void NoteDraft(const Session& session) NACRE_LOCKED;

  // Failover (dispatcher_failover.cc):
  // Whether that is a target which it could go on on if nothing else was there.
  bool CouldGoOn(const Session& session, uint64_t id,
                 const Worker& worker) const NACRE_LOCKED;
  // Whether there is one whose device has not failed it.
  bool HasSoundTarget(const Session& session) const NACRE_LOCKED;
  // A target to go on on: 0 when none is ready, equal and has room.
  uint64_t EqualTarget(const Session& session,
                       const WorkerIds& except) const NACRE_LOCKED;
  // Takes the session off both workers; its target knows or is gone.
  void TakeOff(Session& session) NACRE_LOCKED;
  // Takes it off; it waits for ResumeHeld, at most until the failover timeout
  // from now. `reason` is for its client, should it end.
  void Hold(Session& session, std::string reason) NACRE_LOCKED;
  // Its target could not, or no longer, serve it.
  void OnTargetFailure(Session& session,
                       const absl::Status& status) NACRE_LOCKED;
  // Opens held sessions, oldest first, where there are targets for them, and
  // ends those that have waited too long.
  void ResumeHeld() NACRE_LOCKED;
  // The targets on which a held session waits only for room: what becomes free
  // there is for it.
  WorkerIds KeptForHeld() const NACRE_LOCKED;
  // Moves sessions off draining workers as far as others have room for them:
  // one that would only wait goes on where it is.
  void MoveFromDraining() NACRE_LOCKED;
  // Events (dispatcher_events.cc):
  template <typename Events>
  using Shared = std::shared_ptr<const Events>;
  // Those of the worker's sessions; null else: late messages name closed ones.
  Session* FindSession(uint64_t session_id, uint64_t worker_id) NACRE_LOCKED;
  // Whether what the worker says of the session is of an earlier opening there:
  // a session may come back before the worker has heard that it had left. A
  // worker closes before it opens again, and says all that it has to say of an
  // opening before, or in the same message as, that it is closed.
  bool IsOfEarlierOpening(uint64_t session_id,
                          uint64_t worker_id) const NACRE_LOCKED {
    return ledger_.num_open(worker_id, session_id) > 1;
  }
  void OnSpans(uint64_t worker_id, Worker& worker,
               const Shared<wire::SessionEvents>& events) NACRE_LOCKED;
  void OnPrompts(uint64_t target_id,
                 const wire::SessionEvents& events) NACRE_LOCKED;
  void OnTails(uint64_t draft_id,
               const Shared<wire::DraftEvents>& events) NACRE_LOCKED;
  void OnNotes(uint64_t draft_id, const wire::DraftEvents& events) NACRE_LOCKED;
  void OnVerdicts(uint64_t target_id,
                  const Shared<wire::TargetEvents>& events) NACRE_LOCKED;
  // Sessions that are closed or have failed, and messages left out.
  void OnEnds(uint64_t worker_id, WorkerRole role,
              const wire::SessionEvents& events) NACRE_LOCKED;
  void Acknowledge(Session& session) NACRE_LOCKED;
  Placement PlacementOf(const Session& session) const NACRE_LOCKED;
  void TellMoved(Session& session) NACRE_LOCKED;
  // What its answer is told at its end.
  Answer::End LastWords(Session& session) NACRE_LOCKED;
  void Complete(Session& session) NACRE_LOCKED;
  // Tells the client and ends the session.
  void Fail(Session& session, const absl::Status& status) NACRE_LOCKED;
  // Closes the session on its workers and forgets it; its answer was told.
  void End(uint64_t session_id) NACRE_LOCKED;
  absl::StatusOr<uint64_t> Admit(Waiting waiting) ABSL_LOCKS_EXCLUDED(mu_);
  // Queue (dispatcher_queue.cc):
  // Why the request can run neither now nor later, if so.
  absl::Status CheckAdmissible(const RequestSpec& request) const NACRE_LOCKED;
  // Starts what waits and has room now.
  void StartWaiting() NACRE_LOCKED;
  void Launch(uint64_t session_id, Waiting waiting,
              uint64_t target_id) NACRE_LOCKED;
  // Takes a request out of the queue; the sink has not been told.
  Waiting Leave(uint64_t session_id) NACRE_LOCKED;
  void Refuse(uint64_t session_id, const absl::Status& status) NACRE_LOCKED;
  void RefuseHopeless() NACRE_LOCKED;
  void ExpireQueue(int64_t now_ns) NACRE_LOCKED;
  void Forget(uint64_t session_id, const RequestSpec& request) NACRE_LOCKED;
  // Sees to a Tick at `at_ns` or before.
  void WakeAt(int64_t at_ns) NACRE_LOCKED;
  void ExpireStalls(int64_t now_ns) NACRE_LOCKED;
  void ExpireDeadlines(int64_t now_ns) NACRE_LOCKED;
  // Gives room that has become free to what waits for it: held sessions, those
  // of draining workers, the queue. Every change ends with it.
  void Settle() NACRE_LOCKED;

  const Options options_;
  SerialObserver observer_;
  StatusBoard board_;
  mutable absl::Mutex mu_;
  Outbox outbox_;  // under mu_, but for its last words
  int64_t turn_since_ns_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t locked_ns_ ABSL_GUARDED_BY(mu_) = 0;
  Workers workers_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint64_t, std::unique_ptr<Session>> sessions_
      ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint64_t, Waiting> waiting_ ABSL_GUARDED_BY(mu_);
  Admission admission_ ABSL_GUARDED_BY(mu_);
  KvLedger ledger_ ABSL_GUARDED_BY(mu_);
  Placer placer_ ABSL_GUARDED_BY(mu_);
  bool room_changed_ ABSL_GUARDED_BY(mu_) = false;
  bool draft_room_changed_ ABSL_GUARDED_BY(mu_) = false;
  // A session was held, or the time of one that is may have come.
  bool held_changed_ ABSL_GUARDED_BY(mu_) = false;
  // (deadline, session) of those that have one, running or waiting.
  std::set<std::pair<int64_t, uint64_t>> deadlines_ ABSL_GUARDED_BY(mu_);
  std::set<uint64_t> held_ ABSL_GUARDED_BY(mu_);  // sessions without a target
  // Sessions on a target that want a draft and have none.
  std::set<uint64_t> undrafted_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint64_t, Stall> stalls_ ABSL_GUARDED_BY(mu_);
  int64_t tick_at_ns_ ABSL_GUARDED_BY(mu_) = kNever;  // the next one asked for
  absl::flat_hash_map<std::string, int> request_ids_ ABSL_GUARDED_BY(mu_);
  uint64_t next_worker_id_ ABSL_GUARDED_BY(mu_) = 1;
  uint64_t next_session_id_ ABSL_GUARDED_BY(mu_) = 1;
  std::atomic<bool> draining_{false};
};

#undef NACRE_LOCKED

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCHER_H_
