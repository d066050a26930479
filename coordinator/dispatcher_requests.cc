// Requests from their start to their end.

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "coordinator/dispatcher.h"
#include "coordinator/dispatcher_turn.h"
#include "coordinator/random_number.h"
#include "coordinator/session.h"

namespace nacre::coordinator {
namespace {

uint64_t NewHiddenChannel(const RequestSpec& request) {
  if (request.method == speculation::Method::kAr ||
      request.policy.kind() != speculation::PolicyKind::kCaliTs) {
    return 0;
  }
  return RandomNumber();
}

}  // namespace

absl::StatusOr<uint64_t> Dispatcher::Start(RequestSpec request,
                                           std::shared_ptr<ResponseSink> sink) {
  const int64_t now_ns = options_.now_ns();
  if (request.arrival_ns == 0) request.arrival_ns = now_ns;
  if (options_.max_request_ns != kNever) {
    request.deadline_ns =
        std::min(request.deadline_ns,
                 After(request.arrival_ns, options_.max_request_ns));
  }
  Waiting waiting;
  waiting.hidden_channel = NewHiddenChannel(request);
  waiting.since_ns = now_ns;
  waiting.cell = std::make_shared<SessionCell>();
  waiting.cell->request =
      std::make_shared<const RequestSpec>(std::move(request));
  const std::shared_ptr<const RequestSpec> shared = waiting.cell->request;
  waiting.answer = std::make_shared<Answer>(shared, options_.tokenizer,
                                            std::move(sink), &observer_);
  const absl::StatusOr<uint64_t> id = Admit(std::move(waiting));
  if (!id.ok()) observer_.OnRefused(*shared, id.status());
  return id;
}

absl::StatusOr<uint64_t> Dispatcher::Admit(Waiting waiting) {
  Turn turn(this);
  const RequestSpec& request = waiting.request();
  if (absl::Status status = CheckAdmissible(request); !status.ok()) {
    return status;
  }
  const uint64_t session_id = next_session_id_++;
  ++request_ids_[request.request_id];
  if (request.deadline_ns != kNever) {
    deadlines_.emplace(request.deadline_ns, session_id);
    WakeAt(request.deadline_ns);
  }
  admission_.Push(session_id, Placer::ClassOf(request));
  board_.AddSession(session_id, waiting.cell);
  const std::shared_ptr<Answer> answer = waiting.answer;
  const int64_t now_ns = waiting.since_ns;
  waiting_[session_id] = std::move(waiting);
  StartWaiting();
  if (waiting_.contains(session_id)) {
    if (admission_.waiting() > options_.max_queue) {
      const Waiting left = Leave(session_id);
      absl::Status status = placer_.CheckReady(left.request());
      if (!status.ok()) return status;
      return absl::ResourceExhaustedError(absl::StrCat(
          "the queue is full: ", options_.max_queue, " requests wait"));
    }
    outbox_.Later(answer,
                  [answer = answer.get(), position = admission_.waiting() - 1] {
                    answer->OnQueued(position);
                  });
    WakeAt(After(now_ns, options_.queue_timeout_ns));
  }
  Settle();
  return session_id;
}

void Dispatcher::Launch(uint64_t session_id, Waiting waiting,
                        uint64_t target_id) {
  const WorkerInfo& target = workers_.at(target_id).info;
  const RequestSpec& request = waiting.request();
  if (request.call != nullptr) request.call->numerics_id = target.numerics_id;
  placer_.OnPlaced(request, target_id);
  waiting.cell->running = true;
  auto owned = std::make_unique<Session>(
      session_id, std::move(waiting.cell), std::move(waiting.answer),
      waiting.hidden_channel, speculation::AcceptanceEstimator().alpha());
  Session& session = *owned;
  sessions_[session_id] = std::move(owned);
  session.failover.fingerprint = target.fingerprint;
  session.failover.eos_token_ids = target.eos_token_ids;
  session.failover.numerics_id = target.numerics_id;
  TakeTarget(session, target_id);
  Open(session);
  outbox_.Later(session.answer(),
                [answer = session.answer().get(), session_id,
                 placement = PlacementOf(session),
                 numerics_id = target.numerics_id, now_ns = options_.now_ns()] {
                  answer->OnStarted(session_id, placement, numerics_id, now_ns);
                });
}

void Dispatcher::Cancel(uint64_t session_id, absl::string_view reason) {
  Turn turn(this);
  // gRPC cancels what is past its deadline: that is no will of the client.
  ExpireDeadlines(options_.now_ns());
  const absl::Status status = absl::CancelledError(reason);
  if (const auto it = sessions_.find(session_id); it != sessions_.end()) {
    Fail(*it->second, status);
  } else if (waiting_.contains(session_id)) {
    Refuse(session_id, status);
  }
  Settle();
}

Answer::End Dispatcher::LastWords(Session& session) {
  Answer::End end;
  end.now_ns = options_.now_ns();
  end.cost_ratio = Costs(session).CostRatio();
  if (!session.request().trace) return end;
  if (const Worker* target = FindWorker(session.target_worker)) {
    end.target = target->lane();
  }
  if (const Worker* draft = FindWorker(session.draft_worker)) {
    end.draft = draft->lane();
  }
  return end;
}

void Dispatcher::Complete(Session& session) {
  outbox_.LastWord(session.answer(),
                   [answer = session.answer().get(), end = LastWords(session)] {
                     answer->Complete(end);
                   });
  End(session.id());
}

void Dispatcher::Fail(Session& session, const absl::Status& status) {
  outbox_.LastWord(session.answer(),
                   [answer = session.answer().get(), status,
                    end = LastWords(session)] { answer->Fail(status, end); });
  End(session.id());
}

void Dispatcher::End(uint64_t session_id) {
  const auto it = sessions_.find(session_id);
  Session& session = *it->second;
  for (uint64_t id :
       {session.target_worker.load(), session.draft_worker.load()}) {
    if (Worker* worker = FindWorker(id)) {
      worker->client->Close(session_id);
      worker->sessions.erase(session_id);
      if (id == session.target_worker && session.follows_load()) {
        --worker->async_sessions;
      }
    }
  }
  held_.erase(session_id);
  undrafted_.erase(session_id);
  stalls_.erase(session_id);
  Forget(session_id, session.request());
  sessions_.erase(it);
  admission_.OnEnded();
  room_changed_ = true;
}

void Dispatcher::Forget(uint64_t session_id, const RequestSpec& request) {
  board_.RemoveSession(session_id);
  deadlines_.erase({request.deadline_ns, session_id});
  const auto it = request_ids_.find(request.request_id);
  if (--it->second == 0) request_ids_.erase(it);
}

void Dispatcher::ExpireDeadlines(int64_t now_ns) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now_ns) {
    const uint64_t session_id = deadlines_.begin()->second;
    if (waiting_.contains(session_id)) {
      Refuse(session_id,
             absl::DeadlineExceededError("the deadline passed in the queue"));
      continue;
    }
    Session& session = *sessions_.at(session_id);
    Fail(session, absl::DeadlineExceededError(
                      absl::StrCat("the deadline passed after ",
                                   session.schedule().generated(), " tokens")));
  }
  if (!deadlines_.empty()) WakeAt(deadlines_.begin()->first);
}

void Dispatcher::ExpireStalls(int64_t now_ns) {
  std::vector<uint64_t> stalled;
  for (auto& [session_id, stall] : stalls_) {
    const int64_t taken = sessions_.at(session_id)->answer()->taken_chunks();
    if (taken > stall.taken) {
      stall = {now_ns, taken};  // slow, but it reads
    } else if (After(stall.since_ns, options_.client_timeout_ns) <= now_ns) {
      stalled.push_back(session_id);
      continue;
    }
    WakeAt(After(stall.since_ns, options_.client_timeout_ns));
  }
  std::sort(stalled.begin(), stalled.end());
  for (uint64_t session_id : stalled) {
    Session& session = *sessions_.at(session_id);
    outbox_.Later(session.answer(),
                  [answer = session.answer().get()] { answer->Abandon(); });
    Fail(
        session,
        absl::CancelledError(absl::StrCat(
            "the client took nothing for ",
            absl::FormatDuration(absl::Nanoseconds(options_.client_timeout_ns)),
            "; ", session.schedule().generated(), " tokens were generated")));
  }
}

bool Dispatcher::Drain(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  {
    Turn turn(this);
    draining_ = true;
    for (uint64_t id : admission_.queue()) {
      Refuse(id, absl::UnavailableError("the server is shutting down"));
    }
  }
  {
    absl::MutexLock lock(&mu_);
    const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return sessions_.empty();
    };
    if (!mu_.AwaitWithDeadline(absl::Condition(&idle), deadline)) return false;
  }
  return outbox_.AwaitLastWords(deadline);
}

void Dispatcher::EndAll() {
  {
    Turn turn(this);
    std::vector<uint64_t> ids;
    for (const auto& [id, session] : sessions_) ids.push_back(id);
    std::sort(ids.begin(), ids.end());
    for (uint64_t id : ids) {
      Session& session = *sessions_.at(id);
      Fail(session, absl::UnavailableError(absl::StrCat(
                        "the server is shutting down after ",
                        session.schedule().generated(), " tokens")));
    }
    Settle();
  }
  // Another thread may be at some of the answers.
  outbox_.AwaitLastWords(absl::Now() + absl::Seconds(1));
}

}  // namespace nacre::coordinator
