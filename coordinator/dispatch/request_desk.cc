#include "coordinator/dispatch/request_desk.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/refusal.h"
#include "coordinator/dispatch/policy_files.h"

namespace nacre::coordinator {
namespace {

// A target that could hold the request may come back.
bool IsOfTheMoment(const absl::Status& status) {
  return absl::IsResourceExhausted(status) && !IsRefusedFor(status, kNeverFits);
}

}  // namespace

absl::Status RequestDesk::CheckAdmissible(const RequestSpec& request,
                                          int64_t together,
                                          bool draining) const {
  if (draining) return absl::UnavailableError("the server is shutting down");
  absl::Status status = state_.placer.CheckServable(request, state_.now_ns());
  if (status.ok() && !state_.options.hold_without_target) {
    status = state_.placer.CheckReady(request);
  }
  if (status.ok()) {
    status = state_.placer.CheckTogether(
        request, together, state_.options.max_queue, state_.now_ns());
  }
  if (!status.ok()) return status;
  status = CheckPolicy(state_.fleet.drafts(), request);
  if (!status.ok()) return status;
  if (request.choice == request.first_choice &&
      state_.open.Has(request.request_id)) {
    return WithField(
        absl::AlreadyExistsError(absl::StrCat(
            "request_id \"", request.request_id, "\" is already running")),
        "request_id");
  }
  return absl::OkStatus();
}

absl::Status RequestDesk::WhyNotNow(const RequestSpec& request) const {
  absl::Status status = state_.placer.CheckServable(request, state_.now_ns());
  return status.ok() ? state_.placer.CheckReady(request) : status;
}

absl::StatusOr<uint64_t> RequestDesk::Admit(WaitingRequest waiting,
                                            int64_t together, bool draining) {
  const RequestSpec& request = waiting.request();
  absl::Status admissible = CheckAdmissible(request, together, draining);
  if (!admissible.ok()) return admissible;
  const uint64_t session_id = next_session_id_++;
  state_.open.Add(session_id, request);
  state_.WakeAt(request.deadline_ns);
  state_.board.AddSession(session_id, waiting.cell);
  const std::shared_ptr<Answer> answer = waiting.answer;
  const int64_t now_ns = waiting.since_ns;
  RequestQueue& queue = state_.queue;
  queue.Push(session_id, std::move(waiting));
  StartWaiting();
  if (!queue.contains(session_id)) return session_id;
  if (queue.size() == 1) pace_.Begin(now_ns);
  if (queue.size() > state_.options.max_queue) {
    const WaitingRequest left = Leave(session_id);
    const absl::Status status = WhyNotNow(left.request());
    if (!status.ok() && !IsOfTheMoment(status)) return status;
    return NoRoom(kQueueFull,
                  absl::StrCat("the queue is full: ", state_.options.max_queue,
                               " requests wait"));
  }
  state_.outbox.Later(
      answer, [answer = answer.get(), position = queue.PlaceOf(session_id)] {
        answer->OnQueued(position);
      });
  state_.WakeAt(After(now_ns, state_.options.queue_timeout_ns));
  return session_id;
}

void RequestDesk::StartWaiting() {
  // Sessions that run go on before others start there.
  RequestQueue::Pass pass(&state_.queue, state_.failover.KeptForHeld());
  while (absl::optional<RequestQueue::Start> start = pass.Next()) {
    pace_.NoteStart(state_.now_ns());
    Launch(*std::move(start));
  }
}

void RequestDesk::Launch(RequestQueue::Start start) {
  const WorkerInfo& target = state_.fleet.at(start.target_id).info;
  WaitingRequest& waiting = start.waiting;
  const RequestSpec& request = waiting.request();
  if (request.call != nullptr) request.call->numerics_id = target.numerics_id;
  state_.placer.OnPlaced(request, start.target_id);
  waiting.cell->running = true;
  auto owned = std::make_unique<Session>(
      start.session_id, std::move(waiting.cell), std::move(waiting.answer),
      waiting.channels, speculation::AcceptanceEstimator().alpha());
  Session& session = *owned;
  state_.sessions[start.session_id] = std::move(owned);
  session.failover.Bind(target);
  pairing_.TakeTarget(session, start.target_id);
  pairing_.Open(session);
  state_.outbox.Later(
      session.answer(),
      [answer = session.answer().get(), id = session.id(),
       placement = pairing_.PlacementOf(session),
       numerics_id = target.numerics_id, now_ns = state_.now_ns()] {
        answer->OnStarted(id, placement, numerics_id, now_ns);
      });
}

WaitingRequest RequestDesk::Leave(uint64_t session_id) {
  WaitingRequest waiting = state_.queue.Leave(session_id);
  Forget(session_id, waiting.request());
  // Targets may have been kept free for it.
  state_.room_changed = true;
  return waiting;
}

void RequestDesk::Refuse(uint64_t session_id, const absl::Status& status) {
  const std::shared_ptr<Answer> answer = Leave(session_id).answer;
  state_.outbox.LastWord(
      answer, [answer = answer.get(), status] { answer->Refuse(status); });
}

absl::Status RequestDesk::NoRoom(const char* reason,
                                 absl::string_view message) const {
  return WithRefusal(
      absl::ResourceExhaustedError(message),
      {reason, pace_.RetryAfterSeconds(state_.queue.size(), state_.now_ns())});
}

void RequestDesk::RefuseHopeless() {
  for (uint64_t id : state_.queue.ids()) {
    const absl::Status status =
        state_.placer.CheckServable(state_.queue.request(id), state_.now_ns());
    if (!status.ok()) Refuse(id, status);
  }
}

void RequestDesk::RefuseAll(const absl::Status& status) {
  for (uint64_t id : state_.queue.ids()) Refuse(id, status);
}

void RequestDesk::Cancel(uint64_t session_id, const absl::Status& status) {
  if (Session* session = state_.Find(session_id)) {
    Fail(*session, status);
  } else if (state_.queue.contains(session_id)) {
    Refuse(session_id, status);
  }
}

void RequestDesk::EndAll() {
  std::vector<uint64_t> ids;
  for (const auto& [id, session] : state_.sessions) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  for (uint64_t id : ids) {
    Session& session = *state_.sessions.at(id);
    Fail(session, absl::UnavailableError(
                      absl::StrCat("the server is shutting down after ",
                                   session.schedule().generated(), " tokens")));
  }
}

Answer::End RequestDesk::LastWords(Session& session) {
  Answer::End end;
  end.now_ns = state_.now_ns();
  end.cost_ratio = pairing_.Costs(session).CostRatio();
  if (!session.request().trace) return end;
  end.target = pairing_.LaneOf(session.target_worker).value_or(TraceLane());
  end.draft = pairing_.LaneOf(session.draft_worker);
  return end;
}

void RequestDesk::Complete(Session& session) {
  state_.outbox.LastWord(session.answer(),
                         [answer = session.answer().get(),
                          end = LastWords(session)] { answer->Complete(end); });
  End(session);
}

void RequestDesk::Fail(Session& session, const absl::Status& status) {
  state_.outbox.LastWord(session.answer(), [answer = session.answer().get(),
                                            status, end = LastWords(session)] {
    answer->Fail(status, end);
  });
  End(session);
}

void RequestDesk::End(Session& session) {
  const uint64_t session_id = session.id();
  pairing_.Close(session);
  state_.failover.Release(session_id);
  state_.stalls.End(session_id);
  Forget(session_id, session.request());
  state_.sessions.erase(session_id);
  // Its workers have yet to close it; but room may have been kept for it.
  state_.room_changed = true;
}

void RequestDesk::Forget(uint64_t session_id, const RequestSpec& request) {
  state_.board.RemoveSession(session_id);
  state_.open.Remove(session_id, request);
}

void RequestDesk::Acknowledge(Session& session) {
  if (session.target_worker == 0) return;
  if (const auto length = session.TakeAcknowledgement()) {
    pairing_.link(session.target_worker)
        .target()
        .Acknowledge(session.id(), *length);
  }
  if (!session.is_held_back()) {
    state_.stalls.End(session.id());
  } else {
    state_.WakeAt(state_.stalls.Begin(session.id(), state_.now_ns(),
                                      session.answer()->taken_chunks()));
  }
}

void RequestDesk::ExpireDeadlines(int64_t now_ns) {
  while (const auto overdue = state_.open.Overdue(now_ns)) {
    if (state_.queue.contains(*overdue)) {
      Refuse(*overdue,
             absl::DeadlineExceededError("the deadline passed in the queue"));
      continue;
    }
    Session& session = *state_.sessions.at(*overdue);
    Fail(session, absl::DeadlineExceededError(
                      absl::StrCat("the deadline passed after ",
                                   session.schedule().generated(), " tokens")));
  }
  state_.WakeAt(state_.open.next_deadline_ns());
}

void RequestDesk::ExpireQueue(int64_t now_ns) {
  while (const auto id = state_.queue.TimedOut(now_ns)) {
    const std::string timeout = absl::FormatDuration(
        absl::Nanoseconds(state_.options.queue_timeout_ns));
    const absl::Status status = WhyNotNow(state_.queue.request(*id));
    const std::string message =
        status.ok() ? absl::StrCat("no room within ", timeout, " in the queue")
                    : absl::StrCat("after ", timeout,
                                   " in the queue: ", status.message());
    Refuse(*id, status.ok() || IsOfTheMoment(status)
                    ? NoRoom(kQueueTimeout, message)
                    : Reworded(status, message));
  }
  state_.WakeAt(state_.queue.next_timeout_ns());
}

void RequestDesk::ExpireStalls(int64_t now_ns) {
  const Stalls::Due due = state_.stalls.At(now_ns, [this](uint64_t id) {
    return state_.sessions.at(id)->answer()->taken_chunks();
  });
  state_.WakeAt(due.next_ns);
  for (uint64_t session_id : due.sessions) {
    Session& session = *state_.sessions.at(session_id);
    state_.outbox.Later(session.answer(), [answer = session.answer().get()] {
      answer->Abandon();
    });
    Fail(session,
         absl::CancelledError(absl::StrCat(
             "the client took nothing for ",
             absl::FormatDuration(
                 absl::Nanoseconds(state_.options.client_timeout_ns)),
             "; ", session.schedule().generated(), " tokens were generated")));
  }
}

}  // namespace nacre::coordinator
