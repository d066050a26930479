#include "coordinator/dispatcher.h"

#include <algorithm>
#include <utility>

#include "coordinator/dispatcher_turn.h"
#include "coordinator/session.h"

namespace nacre::coordinator {

Dispatcher::Dispatcher(Options options)
    : options_(std::move(options)),
      observer_(options_.observer),
      admission_(options_.max_running),
      placer_(&workers_, &ledger_, options_.queue_timeout_ns) {}

Dispatcher::~Dispatcher() = default;

int64_t Dispatcher::Tick() {
  // Where an observer stands still, so does this.
  observer_.PassThrough();
  int64_t next_ns = kNever;
  {
    Turn turn(this);
    // What still waits asks again.
    tick_at_ns_ = kNever;
    const int64_t now_ns = options_.now_ns();
    ExpireDeadlines(now_ns);
    ExpireQueue(now_ns);
    ExpireStalls(now_ns);
    held_changed_ = true;
    Settle();
    next_ns = tick_at_ns_;
  }
  return next_ns;
}

void Dispatcher::WakeAt(int64_t at_ns) {
  if (at_ns >= tick_at_ns_) return;
  tick_at_ns_ = at_ns;
  outbox_.WakeAt(at_ns);
}

Dispatcher::Worker* Dispatcher::FindWorker(uint64_t id) {
  const auto it = workers_.find(id);
  return it == workers_.end() ? nullptr : &it->second;
}

speculation::StepCosts Dispatcher::Costs(const Session& session) {
  speculation::StepCosts costs;
  const Worker* target = FindWorker(session.target_worker);
  Worker* draft = FindWorker(session.draft_worker);
  if (target != nullptr) {
    costs.target = target->step_times.get();
    costs.other_sessions = static_cast<int>(target->sessions.size()) - 1;
    costs.other_async_sessions =
        target->async_sessions - (session.follows_load() ? 1 : 0);
  }
  costs.own_rows = session.own_rows();
  costs.other_rows = session.other_rows().value_or(costs.other_sessions);
  if (draft != nullptr && !draft->step_times->empty()) {
    costs.draft_token_ns = draft->TokenNs();
  }
  // A step that serves others goes on for them.
  costs.abandons_steps = draft != nullptr && draft->info.abandons_steps &&
                         draft->sessions.size() == 1;
  if (target != nullptr && draft != nullptr) {
    const int64_t round_trips_ns =
        target->client->round_trip_ns() +
        std::as_const(*draft).client->round_trip_ns();
    // Half of each is one way from the draft to the target.
    if (round_trips_ns > 0) costs.hop_ns = 0.5 * round_trips_ns;
  }
  return costs;
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

void Dispatcher::TellMoved(Session& session) {
  outbox_.Later(session.answer(), [answer = session.answer().get(),
                                   placement = PlacementOf(session)] {
    answer->OnMoved(placement);
  });
}

void Dispatcher::Settle() {
  if (std::exchange(held_changed_, false) || room_changed_) ResumeHeld();
  if (room_changed_ || draft_room_changed_) MoveFromDraining();
  if (std::exchange(room_changed_, false)) StartWaiting();
  if (std::exchange(draft_room_changed_, false)) AttachDrafts();
}

}  // namespace nacre::coordinator
