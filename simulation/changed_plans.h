// Plans of a simulated fleet that are not the dispatcher's, which never knows
// them: one that is fixed, and those of ablations. They take the place of its
// own on their way to the workers.
//
// Pure; one thread. For fleet_world.cc.

#ifndef SIMULATION_CHANGED_PLANS_H_
#define SIMULATION_CHANGED_PLANS_H_

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/types/optional.h"
#include "simulation/fleet.h"
#include "wire/draft_messages.h"
#include "wire/target_messages.h"

namespace nacre::simulation {

class ChangedPlans {
 public:
  // `options` outlive it.
  explicit ChangedPlans(const FleetOptions& options) : options_(options) {}

  // Before the workers get what the dispatcher says.
  void Change(wire::TargetCommands* commands);
  void Change(wire::DraftCommands* commands);
  // What a target that says `events` is to hear before its next step: the plan
  // of an ablation depends on the step that has just ended. Empty: nothing.
  wire::TargetCommands After(const wire::TargetEvents& events) const;
  // The dispatcher hears them.
  void OnHeard(const wire::TargetEvents& events);

 private:
  // Of an ablation, by session: its plans without it, and its last verdict as
  // the dispatcher knows it.
  struct Ablated {
    speculation::TargetPlan target;
    speculation::DraftPlan draft;
    absl::optional<speculation::Verdict> last;

    const speculation::Verdict* verdict() const {
      return last.has_value() ? &*last : nullptr;
    }
  };

  bool ablates() const;
  bool changes() const { return ablates() || options_.fixed_plan.has_value(); }
  // Null: there is no ablation.
  Ablated* Keep(uint64_t session_id, const speculation::TargetPlan& plan);
  Ablated* Keep(uint64_t session_id, const speculation::DraftPlan& plan);
  template <typename Plan>
  void ChangeOne(uint64_t session_id, Plan* plan);
  template <typename Commands>
  void ChangeAll(Commands* commands);
  speculation::TargetPlan Changed(const speculation::TargetPlan& plan,
                                  const speculation::Verdict* last) const;
  speculation::DraftPlan Changed(const speculation::DraftPlan& plan,
                                 const speculation::Verdict* last) const;

  const FleetOptions& options_;
  absl::flat_hash_map<uint64_t, Ablated> ablated_;
};

}  // namespace nacre::simulation

#endif  // SIMULATION_CHANGED_PLANS_H_
