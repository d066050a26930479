#include "coordinator/dispatch/dispatcher.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "coordinator/dispatch/dispatcher_turn.h"
#include "coordinator/dispatch/random_number.h"

namespace nacre::coordinator {
namespace {

TensorChannels NewChannels(const RequestSpec& request) {
  TensorChannels channels;
  if (request.method == speculation::Method::kAr) return channels;
  channels.kv = RandomNumber();
  if (request.policy.kind() == speculation::PolicyKind::kCaliTs) {
    channels.hidden = RandomNumber();
  }
  return channels;
}

// What the desk admits: with its limits, and an answer that `observer` hears
// of.
WaitingRequest Prepare(Dispatcher::NewSession session,
                       const DispatcherOptions& options, Observer* observer,
                       bool expects_draft, int64_t now_ns) {
  RequestSpec& request = session.request;
  request.expects_draft = expects_draft;
  if (request.arrival_ns == 0) request.arrival_ns = now_ns;
  if (options.max_request_ns != kNever) {
    request.deadline_ns = std::min(
        request.deadline_ns, After(request.arrival_ns, options.max_request_ns));
  }
  request.draft_rows =
      request.tree == speculation::TreeShape::kChain ? 1 : options.draft_rows;
  request.tree_rows = options.tree_rows;
  WaitingRequest waiting;
  waiting.channels = NewChannels(request);
  waiting.since_ns = now_ns;
  waiting.cell = std::make_shared<SessionCell>();
  waiting.cell->request =
      std::make_shared<const RequestSpec>(std::move(request));
  waiting.answer =
      std::make_shared<Answer>(waiting.cell->request, options.tokenizer,
                               std::move(session.sink), observer);
  return waiting;
}

}  // namespace

Dispatcher::Dispatcher(Options options)
    : options_(std::move(options)),
      observer_(options_.observer),
      state_(&options_, &board_, &outbox_),
      pairing_(&state_),
      desk_(&state_, &pairing_),
      kv_reporter_(&state_, &pairing_),
      relocator_(&state_, &pairing_, &desk_, &kv_reporter_),
      router_(&state_, &pairing_, &desk_, &relocator_) {}

Dispatcher::~Dispatcher() = default;

// --------------------------------------------------------------------- workers

absl::StatusOr<uint64_t> Dispatcher::AddTarget(
    WorkerInfo info, std::shared_ptr<TargetLink> link) {
  return AddWorker(std::move(info), NotedLink(std::move(link), &outbox_));
}

absl::StatusOr<uint64_t> Dispatcher::AddDraft(WorkerInfo info,
                                              std::shared_ptr<DraftLink> link) {
  return AddWorker(std::move(info), NotedLink(std::move(link), &outbox_));
}

absl::StatusOr<uint64_t> Dispatcher::AddWorker(WorkerInfo info,
                                               NotedLink link) {
  NACRE_CHECK(info.role == link.role(), "a worker with a link of its kind");
  Turn turn(this);
  NACRE_ASSIGN_OR_RETURN(const uint64_t id, state_.fleet.Add(std::move(info)));
  const FleetWorker& worker = state_.fleet.at(id);
  pairing_.AddLink(id, std::move(link));
  board_.AddWorker(id, worker.cell);
  state_.OnRoom(worker.role);
  if (worker.role == WorkerRole::kTarget) {
    state_.placer.OnTargetAdded(worker.info);
    desk_.RefuseHopeless();
  }
  relocator_.Settle();
  return id;
}

void Dispatcher::DrainWorker(uint64_t worker_id) {
  Turn turn(this);
  FleetWorker* worker = state_.fleet.Find(worker_id);
  if (worker == nullptr) return;
  state_.fleet.SetReady(worker_id, false);
  relocator_.MoveFromDraining();
  desk_.RefuseHopeless();
  relocator_.Settle();
}

void Dispatcher::ResumeWorker(uint64_t worker_id) {
  Turn turn(this);
  FleetWorker* worker = state_.fleet.Find(worker_id);
  if (worker == nullptr || worker->ready) return;
  state_.fleet.SetReady(worker_id, true);
  state_.OnRoom(worker->role);
  relocator_.Settle();
}

void Dispatcher::RemoveWorker(uint64_t worker_id) {
  Turn turn(this);
  if (state_.fleet.Find(worker_id) == nullptr) return;
  relocator_.OnWorkerGone(worker_id);
  desk_.RefuseHopeless();
  relocator_.Settle();
}

void Dispatcher::StateKept(uint64_t worker_id,
                           const absl::optional<KvGrant>& grant) {
  Turn turn(this);
  const FleetWorker* worker = state_.fleet.Find(worker_id);
  if (worker == nullptr) return;
  if (grant.has_value() && worker->info.grants_kv) {
    if (state_.fleet.SetGrant(worker_id, grant->serial, grant->tokens,
                              grant->other_sessions)) {
      state_.OnRoom(worker->role);
    }
    relocator_.Settle();
    kv_reporter_.Report(worker_id);
  }
  pairing_.link(worker_id)->Keep(worker->sessions.InOrder());
}

void Dispatcher::OnEvents(uint64_t worker_id, wire::TargetEvents events) {
  const int64_t arrival_ns = options_.now_ns();  // waiting for the lock counts
  if (events.empty()) return;
  const auto shared =
      std::make_shared<const wire::TargetEvents>(std::move(events));
  {
    Turn turn(this);
    const FleetWorker* worker = state_.fleet.Find(worker_id);
    if (worker == nullptr || worker->role != WorkerRole::kTarget) return;
    router_.OnEvents(worker_id, shared);
  }
  if (!shared->verdicts.empty()) {
    observer_.OnVerdictsHandled(options_.now_ns() - arrival_ns);
  }
}

void Dispatcher::OnEvents(uint64_t worker_id, wire::DraftEvents events) {
  if (events.empty()) return;
  const auto shared =
      std::make_shared<const wire::DraftEvents>(std::move(events));
  Turn turn(this);
  const FleetWorker* worker = state_.fleet.Find(worker_id);
  if (worker == nullptr || worker->role != WorkerRole::kDraft) return;
  router_.OnEvents(worker_id, shared);
}

absl::optional<WorkerInfo> Dispatcher::expected_model() const {
  absl::optional<WorkerInfo> ready = model();
  if (ready.has_value() || !options_.hold_without_target) return ready;
  return board_.last_target();
}

// -------------------------------------------------------------------- requests

absl::StatusOr<uint64_t> Dispatcher::Start(RequestSpec request,
                                           std::shared_ptr<ResponseSink> sink) {
  std::vector<NewSession> sessions;
  sessions.push_back({std::move(request), std::move(sink)});
  Started started = StartAll(std::move(sessions));
  if (!started.status.ok()) return started.status;
  return started.session_ids.front();
}

Dispatcher::Started Dispatcher::StartAll(std::vector<NewSession> sessions) {
  const int64_t now_ns = options_.now_ns();
  std::vector<WaitingRequest> waiting;
  // What a refused request leaves ends here, without the lock.
  std::vector<std::shared_ptr<Answer>> answers;
  std::vector<std::shared_ptr<const RequestSpec>> requests;
  const bool expects_draft = board_.had_draft();
  for (NewSession& session : sessions) {
    waiting.push_back(Prepare(std::move(session), options_, &observer_,
                              expects_draft, now_ns));
    answers.push_back(waiting.back().answer);
    requests.push_back(waiting.back().cell->request);
  }
  Started started;
  {
    Turn turn(this);
    if (!requests.empty() && requests.front()->call != nullptr) {
      requests.front()->call->num_started = static_cast<int>(requests.size());
    }
    for (WaitingRequest& each : waiting) {
      // The others have been judged with the first one. Where that runs decides
      // where they may: whether they find room now is of the moment.
      const size_t together = started.session_ids.empty() ? waiting.size() : 1;
      const absl::StatusOr<uint64_t> id = desk_.Admit(
          std::move(each), static_cast<int64_t>(together), draining_);
      if (!id.ok()) {
        started.status = id.status();
        break;
      }
      started.session_ids.push_back(*id);
      relocator_.Settle();
    }
  }
  if (!started.status.ok()) {
    observer_.OnRefused(*requests[started.session_ids.size()], started.status);
  }
  return started;
}

void Dispatcher::Cancel(uint64_t session_id, absl::string_view reason) {
  Turn turn(this);
  // gRPC cancels what is past its deadline: that is no will of the client.
  desk_.ExpireDeadlines(options_.now_ns());
  desk_.Cancel(session_id, absl::CancelledError(reason));
  relocator_.Settle();
}

void Dispatcher::OnSinkDrained(uint64_t session_id) {
  Turn turn(this);
  // Frees no room: nothing to settle.
  if (Session* session = state_.Find(session_id)) desk_.Acknowledge(*session);
}

int64_t Dispatcher::Tick() {
  // Where an observer stands still, so does this.
  observer_.PassThrough();
  int64_t next_ns = kNever;
  {
    Turn turn(this);
    // What still waits asks again.
    state_.tick_at_ns = kNever;
    const int64_t now_ns = options_.now_ns();
    desk_.ExpireDeadlines(now_ns);
    desk_.ExpireQueue(now_ns);
    desk_.ExpireStalls(now_ns);
    state_.held_changed = true;
    relocator_.Settle();
    next_ns = state_.tick_at_ns;
  }
  return next_ns;
}

bool Dispatcher::Drain(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  {
    Turn turn(this);
    draining_ = true;
    desk_.RefuseAll(absl::UnavailableError("the server is shutting down"));
  }
  {
    absl::MutexLock lock(&mu_);
    const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return state_.sessions.empty();
    };
    if (!mu_.AwaitWithDeadline(absl::Condition(&idle), deadline)) return false;
  }
  return outbox_.AwaitLastWords(deadline);
}

void Dispatcher::EndAll() {
  {
    Turn turn(this);
    desk_.EndAll();
    relocator_.Settle();
  }
  // Another thread may be at some of the answers.
  outbox_.AwaitLastWords(absl::Now() + absl::Seconds(1));
}

}  // namespace nacre::coordinator
