// The coordinator of a simulated fleet: pairs sessions with the least loaded
// workers, relays, plans and accounts as coordinator/dispatcher.h does, around
// the real SessionSchedule. No threads.

#ifndef SIMULATION_FLEET_COORDINATOR_H_
#define SIMULATION_FLEET_COORDINATOR_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "simulation/fleet_draft.h"
#include "simulation/fleet_target.h"
#include "simulation/fleet_worker.h"
#include "speculation/estimators.h"
#include "speculation/session_schedule.h"

namespace nacre::simulation {

class FleetCoordinator : public FleetEvents {
 public:
  FleetCoordinator(FleetWorld* world, const FleetOptions& options);

  // Before Start: whom it knows, all of them up. Borrowed.
  void Add(FleetTarget* target) { targets_.push_back(target); }
  void Add(FleetDraft* draft) { drafts_.push_back(draft); }
  void Start();

  bool finished() const { return running_streams_ == 0; }
  // Counts and the time of the last end; not the workers' times.
  const FleetResult& result() const { return result_; }

  void OnUp(FleetWorker* worker) override;
  void OnDown(FleetWorker* worker, int incarnation) override;
  void OnVerdict(FleetWorker* target, const FleetVerdict& verdict) override;
  void OnTail(FleetWorker* draft, uint64_t session_id,
              const speculation::Tail& tail) override;

 private:
  struct Session {
    uint64_t id = 0;
    int stream = 0;
    speculation::SessionSchedule schedule;
    std::shared_ptr<const SessionModels> models;
    FleetTarget* target = nullptr;  // null while all are down
    FleetDraft* draft = nullptr;
    int output_tokens = 0;
    double other_rows = 0.0;
    int acknowledged = 0;
  };
  struct Stream {
    std::shared_ptr<MatchSource> matches;
    int requests_left = 0;
    int64_t next_match = 0;
  };
  struct Request {
    int prompt_tokens = 0;
    int output_tokens = 0;
    std::shared_ptr<MatchSource> matches;
    int64_t first_match = 0;
  };

  // nullopt: the stream has had all of its own.
  absl::optional<Request> NextRequest(Stream& stream);

  void StartRequest(int stream);
  void OpenTarget(Session& session);
  void OpenDraft(Session& session);
  void AttachDraft(Session& session);
  void LoseDraft(Session& session);
  void Lose(FleetWorker* worker);
  void SendDraftPlan(Session& session, const speculation::Verdict* last);
  void End(Session& session);
  speculation::PipelinePlan BasePlan(const Session& session) const;
  speculation::StepCosts Costs(const Session& session) const;

  FleetWorld& world_;
  const FleetOptions& options_;
  std::vector<FleetTarget*> targets_;
  std::vector<FleetDraft*> drafts_;
  std::vector<Stream> streams_;
  std::map<uint64_t, Session> sessions_;
  speculation::StepTimeCurve target_step_;
  speculation::StepTimeCurve draft_step_;
  speculation::AcceptanceEstimator acceptance_;
  uint64_t next_id_ = 1;
  size_t next_replayed_ = 0;
  int running_streams_ = 0;
  FleetResult result_;
};

}  // namespace nacre::simulation

#endif  // SIMULATION_FLEET_COORDINATOR_H_
