#include "coordinator/dispatcher.h"

#include <utility>

#include "coordinator/session.h"

namespace nacre::coordinator {

Dispatcher::Dispatcher(Options options)
    : options_(std::move(options)),
      observer_(options_.observer != nullptr ? *options_.observer
                                             : unobserved_),
      admission_(options_.max_running) {}

Dispatcher::~Dispatcher() = default;

int64_t Dispatcher::Tick() {
  absl::MutexLock lock(&mu_);
  // What still waits asks again.
  tick_at_ns_ = kNever;
  const int64_t now_ns = options_.now_ns();
  ExpireDeadlines(now_ns);
  ExpireQueue(now_ns);
  ExpireStalls(now_ns);
  Settle();
  return tick_at_ns_;
}

void Dispatcher::WakeAt(int64_t at_ns) {
  if (at_ns >= tick_at_ns_) return;
  tick_at_ns_ = at_ns;
  if (options_.wake_at) options_.wake_at(at_ns);
}

Dispatcher::Worker* Dispatcher::FindWorker(uint64_t id) {
  const auto it = workers_.find(id);
  return it == workers_.end() ? nullptr : &it->second;
}

speculation::StepCosts Dispatcher::Costs(const Session& session) {
  speculation::StepCosts costs;
  const Worker* target = FindWorker(session.target_worker);
  const Worker* draft = FindWorker(session.draft_worker);
  if (target != nullptr) costs.target = &target->step_times;
  if (target != nullptr) {
    costs.other_sessions = static_cast<int>(target->sessions.size()) - 1;
    costs.other_async_sessions =
        target->async_sessions - (session.follows_load() ? 1 : 0);
  }
  costs.own_rows = session.own_rows();
  costs.other_rows = session.other_rows().value_or(costs.other_sessions);
  if (draft != nullptr && !draft->step_times.empty()) {
    costs.draft_token_ns =
        draft->step_times.At(static_cast<int>(draft->sessions.size()));
  }
  // A step that serves others goes on for them.
  costs.abandons_steps = draft != nullptr && draft->info.abandons_steps &&
                         draft->sessions.size() == 1;
  if (target != nullptr && draft != nullptr) {
    const int64_t round_trips_ns =
        target->client->round_trip_ns() + draft->client->round_trip_ns();
    // Half of each is one way from the draft to the target.
    if (round_trips_ns > 0) costs.hop_ns = 0.5 * round_trips_ns;
  }
  return costs;
}

TraceLane Dispatcher::LaneOf(const Worker& worker) {
  TraceLane lane;
  lane.role = worker.info.role;
  lane.address = worker.info.address;
  lane.clock_offset_ns = worker.client->clock_offset_ns();
  return lane;
}

Placement Dispatcher::PlacementOf(const Session& session) const {
  Placement placement;
  if (const auto it = workers_.find(session.target_worker);
      it != workers_.end()) {
    placement.target_address = it->second.info.address;
    placement.target_incarnation = it->second.info.incarnation;
  }
  if (const auto it = workers_.find(session.draft_worker);
      it != workers_.end()) {
    placement.draft_address = it->second.info.address;
    placement.draft_incarnation = it->second.info.incarnation;
  }
  return placement;
}

void Dispatcher::Settle() {
  ResumeHeld();
  if (std::exchange(room_changed_, false)) StartWaiting();
  if (std::exchange(draft_room_changed_, false)) AttachDrafts();
  Flush();
}

void Dispatcher::Flush() {
  for (auto& [id, worker] : workers_) worker.client->Flush();
}

std::vector<WorkerStatus> Dispatcher::workers() const {
  absl::MutexLock lock(&mu_);
  std::vector<WorkerStatus> result;
  for (const auto& [id, worker] : workers_) {
    result.push_back({id, worker.info, worker.ready,
                      static_cast<int>(worker.sessions.size())});
  }
  return result;
}

std::vector<SessionStatus> Dispatcher::sessions() const {
  absl::MutexLock lock(&mu_);
  std::vector<SessionStatus> result;
  for (const auto& [id, session] : sessions_) {
    Placement placement = PlacementOf(*session);
    result.push_back(
        {id, session->request().request_id, session->request().choice,
         session->request().method, session->schedule().prompt_length(),
         session->schedule().generated(), std::move(placement.target_address),
         std::move(placement.draft_address), absl::nullopt});
  }
  return result;
}

bool Dispatcher::draining() const {
  absl::MutexLock lock(&mu_);
  return draining_;
}

}  // namespace nacre::coordinator
