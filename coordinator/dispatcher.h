// The heart of the coordinator: which workers are there, which sessions run on
// them, and where every message goes. Pairs each session with the least loaded
// target and draft, relays tails and commits, keeps the plans current, lets a
// session go on without its draft, and on another target when its own is gone.
//
// Thread-safe; one lock. Nothing here blocks: the callers are gRPC reactions.

#ifndef COORDINATOR_DISPATCHER_H_
#define COORDINATOR_DISPATCHER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "coordinator/admission.h"
#include "coordinator/dispatcher_options.h"
#include "coordinator/dispatcher_records.h"
#include "coordinator/kv_ledger.h"
#include "coordinator/observer.h"
#include "coordinator/request.h"
#include "coordinator/status_views.h"
#include "coordinator/worker_client.h"
#include "coordinator/worker_info.h"
#include "speculation/estimators.h"
#include "speculation/plan.h"
#include "tokenizer/tokenizer.h"

namespace nacre::coordinator {

class Session;

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
  absl::StatusOr<uint64_t> AddWorker(WorkerInfo info,
                                     std::shared_ptr<WorkerClient> client);
  // No new sessions on it; those it has move to another where there is one.
  // Resume: it had only seemed to hang.
  void DrainWorker(uint64_t worker_id);
  void ResumeWorker(uint64_t worker_id);
  // It is gone: sessions go on without their draft. Those without their target
  // go on, token for token the same, on one with an equal fingerprint and
  // numerics_id, now or when it comes; after the failover timeout they end with
  // UNAVAILABLE. Unknown ids are ignored.
  void RemoveWorker(uint64_t worker_id);
  // Lets the worker close sessions whose close was lost: every few seconds.
  void StateKept(uint64_t worker_id);
  void OnEvents(uint64_t worker_id, const WorkerEvents& events);

  // ----------------------------------------------------------------- requests
  // The served model: that of the attached targets; nullopt without one.
  absl::optional<WorkerInfo> model() const;

  // Starts a session, or lets it wait until a target has room for it; its
  // output goes to `sink`, which is told nothing when this fails. Errors:
  // UNAVAILABLE (no target is ready, or draining), ALREADY_EXISTS (request_id
  // is running or waiting), RESOURCE_EXHAUSTED (no target is large enough, or
  // the queue is full). Returns the session's id.
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

  std::vector<WorkerStatus> workers() const;
  std::vector<SessionStatus> sessions() const;  // that run
  std::vector<SessionStatus> queued() const;    // that wait, in order
  // KV that is promised to sessions on a worker, in tokens.
  int64_t reserved_kv_tokens(uint64_t worker_id) const;
  bool draining() const;
  int64_t now_ns() const { return options_.now_ns(); }

 private:
  using Waiting = WaitingRequest;
  using Worker = WorkerRecord;
  Worker* FindWorker(uint64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Of the ready workers with room for the request; 0 when there is none.
  uint64_t LeastLoaded(WorkerRole role, const RequestSpec& request,
                       const absl::flat_hash_set<uint64_t>& except) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // KV that the request takes on the worker.
  static int64_t Need(const Worker& worker, const RequestSpec& request);
  // The session's KV on the worker is free.
  void ReleaseRoom(uint64_t worker_id, uint64_t session_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  speculation::StepCosts Costs(const Session& session)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Opens the session, with all that is committed, on that target and, if it
  // wants one and one is there, on a draft.
  void Open(Session& session, uint64_t target_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OpenDraft(Session& session, uint64_t worker_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Pairs a running session with a draft if it wants one and one is there.
  void AttachDraft(Session& session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The same for all, the oldest first.
  void AttachDrafts() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Makes the worker its draft, with room there.
  void TakeDraft(Session& session, uint64_t worker_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void LoseDraft(Session& session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The sessions of `worker`, oldest first: the worker may lose them meanwhile.
  std::vector<uint64_t> SessionsOf(const Worker& worker) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Failover (dispatcher_failover.cc):
  // Whether it computes the same bits as the session's first target.
  static bool IsEqualTarget(const Worker& worker, const Session& session);
  // A target to go on on: 0 when none is ready, equal and has room.
  uint64_t EqualTarget(const Session& session) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes the session off both workers; it waits for ResumeHeld, at most until
  // the failover timeout from now. `reason` is for its client, should it end.
  void Hold(Session& session, std::string reason)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Its target could not, or no longer, serve it.
  void OnTargetFailure(Session& session, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Opens held sessions, oldest first, where there are targets for them, and
  // ends those that have waited too long.
  void ResumeHeld() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether a held session waits only for room on a target that is there.
  bool HeldNeedRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Moves sessions off draining workers as far as others can take them.
  void MoveFromDraining() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Events (dispatcher_events.cc):
  // Those of the worker's sessions; null else: late messages name closed ones.
  Session* FindSession(uint64_t session_id, uint64_t worker_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnSpans(uint64_t worker_id, Worker& worker, const WorkerEvents& events)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnPrompts(uint64_t target_id, const WorkerEvents&)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<bool> RelayTails(uint64_t draft_id, const WorkerEvents& events)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Tells the other worker; which were applied. At most one of a session.
  std::vector<bool> RelayVerdicts(
      uint64_t target_id,
      absl::Span<const WorkerEvents::SessionVerdict> verdicts)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnVerdict(Session& session, const WorkerEvents::SessionVerdict& event)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnFailures(uint64_t worker_id, WorkerRole role,
                  const WorkerEvents& events)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Acknowledge(Session& session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A worker's lane of a trace; the session fills in its spans.
  static TraceLane LaneOf(const Worker& worker);
  Placement PlacementOf(const Session& session) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Tells the sink and ends the session.
  void Fail(Session& session, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Closes the session on its workers and forgets it; the sink has been told.
  void End(uint64_t session_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Queue (dispatcher_queue.cc):
  // Why the request can run neither now nor later, if so.
  absl::Status CheckAdmissible(const RequestSpec& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The same of the targets that are there.
  absl::Status CheckServable(const RequestSpec& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static int64_t TargetNeed(const RequestSpec& request);
  // Starts what waits and has room now.
  void StartWaiting() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Launch(uint64_t session_id, Waiting waiting)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes a request out of the queue; the sink has not been told.
  Waiting Leave(uint64_t session_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Refuse(uint64_t session_id, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RefuseHopeless() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ExpireQueue(int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Forget(uint64_t session_id, const RequestSpec& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Sees to a Tick at `at_ns` or before.
  void WakeAt(int64_t at_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ExpireStalls(int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ExpireDeadlines(int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Sends what was queued for any worker.
  void Flush() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Gives room that has become free to who waits for it, held sessions first,
  // and sends what was queued for any worker. Every change ends with it.
  void Settle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  Observer unobserved_;
  Observer& observer_;
  mutable absl::Mutex mu_;
  std::map<uint64_t, Worker> workers_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint64_t, std::unique_ptr<Session>> sessions_
      ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint64_t, Waiting> waiting_ ABSL_GUARDED_BY(mu_);
  Admission admission_ ABSL_GUARDED_BY(mu_);
  KvLedger ledger_ ABSL_GUARDED_BY(mu_);
  bool room_changed_ ABSL_GUARDED_BY(mu_) = false;
  bool draft_room_changed_ ABSL_GUARDED_BY(mu_) = false;
  // (deadline, session) of those that have one, running or waiting.
  std::set<std::pair<int64_t, uint64_t>> deadlines_ ABSL_GUARDED_BY(mu_);
  std::set<uint64_t> held_ ABSL_GUARDED_BY(mu_);  // sessions without a target
  absl::flat_hash_map<uint64_t, Stall> stalls_ ABSL_GUARDED_BY(mu_);
  int64_t tick_at_ns_ ABSL_GUARDED_BY(mu_) = kNever;  // the next one asked for
  absl::flat_hash_map<std::string, int> request_ids_ ABSL_GUARDED_BY(mu_);
  speculation::AcceptanceEstimator acceptance_ ABSL_GUARDED_BY(mu_);
  uint64_t next_worker_id_ ABSL_GUARDED_BY(mu_) = 1;
  uint64_t next_session_id_ ABSL_GUARDED_BY(mu_) = 1;
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCHER_H_
