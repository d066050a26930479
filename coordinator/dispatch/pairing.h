// Which session runs on which workers: opens it there, closes it, tells its
// workers of each other and keeps its plan current.
//
// A part of the dispatcher, under its lock.

#ifndef COORDINATOR_DISPATCH_PAIRING_H_
#define COORDINATOR_DISPATCH_PAIRING_H_

#include <cstdint>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/types/optional.h"
#include "coordinator/dispatch/dispatcher_state.h"
#include "coordinator/dispatch/observer.h"
#include "coordinator/dispatch/outbox.h"
#include "coordinator/dispatch/session.h"

namespace nacre::coordinator {

class Pairing {
 public:
  explicit Pairing(DispatcherState* state) : state_(*state) {}

  // The link of a worker in service.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): it is moved from.
  void AddLink(uint64_t worker_id, NotedLink link) {
    links_.try_emplace(worker_id, std::move(link));
  }
  void RemoveLink(uint64_t worker_id) { links_.erase(worker_id); }
  // Valid until another one comes or goes. Requires: it is in service.
  NotedLink& link(uint64_t worker_id) { return links_.at(worker_id); }

  // Where it runs now.
  Placement PlacementOf(const Session& session) const;
  // The observers hear of that.
  void TellMoved(Session& session);
  // A worker's lane of a trace, without the spans; nullopt for worker 0.
  absl::optional<TraceLane> LaneOf(uint64_t worker_id) const;

  speculation::StepCosts Costs(const Session& session);
  // The session's plan is to follow the costs of now.
  void PlanLater(const Session& session);
  // What the search has found.
  void Adopt(const PlanTask& task);

  // Makes the worker its target, with room there.
  void TakeTarget(Session& session, uint64_t worker_id);
  // Opens the session, with all that is committed, on its target and, if it
  // wants one and one is there, on a draft.
  void Open(Session& session);
  // Pairs a running session with a draft if it wants one and one is there.
  void AttachDraft(Session& session);
  // The same for all that lack one, the oldest first.
  void AttachDrafts();
  // Its draft knows or is gone.
  void LoseDraft(Session& session);
  // Takes the session off both workers; its target knows or is gone.
  void TakeOff(Session& session);
  // Closes it on its workers: it has ended.
  void Close(Session& session);
  // Sessions on a target that want a draft and have none, the oldest first.
  const std::set<uint64_t>& undrafted() const { return undrafted_; }

 private:
  // What a plan for the session follows, now.
  speculation::PlanInputs PlanInputsOf(const Session& session);
  void OpenDraft(Session& session, uint64_t worker_id);
  // Makes the worker its draft, with room there.
  void TakeDraft(Session& session, uint64_t worker_id);
  void WorkerLeft(Session& session, uint64_t worker_id, WorkerRole role);
  // Whether it lacks a draft has changed.
  void NoteDraft(const Session& session);

  DispatcherState& state_;
  absl::flat_hash_map<uint64_t, NotedLink> links_;
  std::set<uint64_t> undrafted_;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_PAIRING_H_
