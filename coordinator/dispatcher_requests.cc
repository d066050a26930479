// Requests from their start to their end.

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "coordinator/dispatcher.h"
#include "coordinator/session.h"

namespace nacre::coordinator {

absl::StatusOr<uint64_t> Dispatcher::Start(RequestSpec request,
                                           std::shared_ptr<ResponseSink> sink) {
  absl::MutexLock lock(&mu_);
  const int64_t now_ns = options_.now_ns();
  if (request.arrival_ns == 0) request.arrival_ns = now_ns;
  if (options_.max_request_ns != kNever) {
    request.deadline_ns = std::min(
        request.deadline_ns, request.arrival_ns + options_.max_request_ns);
  }
  if (absl::Status status = CheckAdmissible(request); !status.ok()) {
    observer_.OnRefused(request, status);
    return status;
  }
  const uint64_t session_id = next_session_id_++;
  ++request_ids_[request.request_id];
  if (request.deadline_ns != kNever) {
    deadlines_.emplace(request.deadline_ns, session_id);
    WakeAt(request.deadline_ns);
  }
  admission_.Push(session_id, TargetNeed(request));
  waiting_[session_id] = {std::move(request), std::move(sink), now_ns};
  StartWaiting();
  if (const auto it = waiting_.find(session_id); it != waiting_.end()) {
    if (admission_.waiting() > options_.max_queue) {
      const Waiting left = Leave(session_id);
      const absl::Status status = absl::ResourceExhaustedError(absl::StrCat(
          "the queue is full: ", options_.max_queue, " requests wait"));
      observer_.OnRefused(left.request, status);
      return status;
    }
    observer_.OnQueued(it->second.request, admission_.waiting() - 1);
    WakeAt(now_ns + options_.queue_timeout_ns);
  }
  Settle();
  return session_id;
}

void Dispatcher::Launch(uint64_t session_id, Waiting waiting) {
  auto owned = std::make_unique<Session>(
      session_id, std::move(waiting.request), acceptance_.alpha(),
      options_.tokenizer, std::move(waiting.sink), options_.now_ns());
  Session& session = *owned;
  sessions_[session_id] = std::move(owned);
  const uint64_t target_id =
      LeastLoaded(WorkerRole::kTarget, session.request(), /*except=*/{});
  const WorkerInfo& target = workers_.at(target_id).info;
  session.failover.fingerprint = target.fingerprint;
  session.failover.numerics_id = target.numerics_id;
  Open(session, target_id);
  observer_.OnStarted(session_id, session.request(), PlacementOf(session),
                      session.queue_ns());
}

void Dispatcher::Cancel(uint64_t session_id, absl::string_view reason) {
  absl::MutexLock lock(&mu_);
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

void Dispatcher::Fail(Session& session, const absl::Status& status) {
  session.sink().OnError(status);
  observer_.OnFinished(session.id(), session.request(), status,
                       /*completion=*/nullptr);
  End(session.id());
}

void Dispatcher::End(uint64_t session_id) {
  const auto it = sessions_.find(session_id);
  Session& session = *it->second;
  for (uint64_t id : {session.target_worker, session.draft_worker}) {
    if (Worker* worker = FindWorker(id)) {
      worker->client->Close(session_id);
      worker->sessions.erase(session_id);
      if (id == session.target_worker && session.follows_load()) {
        --worker->async_sessions;
      }
    }
  }
  held_.erase(session_id);
  stalls_.erase(session_id);
  Forget(session_id, session.request());
  sessions_.erase(it);
  admission_.OnEnded();
  room_changed_ = true;
}

void Dispatcher::Forget(uint64_t session_id, const RequestSpec& request) {
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
    const int64_t taken = sessions_.at(session_id)->sink().taken_chunks();
    if (taken > stall.taken) {
      stall = {now_ns, taken};  // slow, but it reads
    } else if (stall.since_ns + options_.client_timeout_ns <= now_ns) {
      stalled.push_back(session_id);
      continue;
    }
    WakeAt(stall.since_ns + options_.client_timeout_ns);
  }
  std::sort(stalled.begin(), stalled.end());
  for (uint64_t session_id : stalled) {
    Session& session = *sessions_.at(session_id);
    session.sink().Abandon();
    Fail(
        session,
        absl::CancelledError(absl::StrCat(
            "the client took nothing for ",
            absl::FormatDuration(absl::Nanoseconds(options_.client_timeout_ns)),
            "; ", session.schedule().generated(), " tokens were generated")));
  }
}

bool Dispatcher::Drain(absl::Duration timeout) {
  absl::MutexLock lock(&mu_);
  draining_ = true;
  for (uint64_t id : admission_.queue()) {
    Refuse(id, absl::UnavailableError("the server is shutting down"));
  }
  const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return sessions_.empty();
  };
  return mu_.AwaitWithTimeout(absl::Condition(&idle), timeout);
}

void Dispatcher::EndAll() {
  absl::MutexLock lock(&mu_);
  std::vector<uint64_t> ids;
  for (const auto& [id, session] : sessions_) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  for (uint64_t id : ids) {
    Session& session = *sessions_.at(id);
    Fail(session, absl::UnavailableError(
                      absl::StrCat("the server is shutting down after ",
                                   session.schedule().generated(), " tokens")));
  }
  Settle();
}

}  // namespace nacre::coordinator
