// A target worker of a simulated fleet: the loop of target_worker/ around the
// real TargetSession, with fake models and given step times. No threads.

#ifndef SIMULATION_FLEET_TARGET_H_
#define SIMULATION_FLEET_TARGET_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "simulation/ablation.h"
#include "simulation/fleet_worker.h"
#include "speculation/target_session.h"

namespace nacre::simulation {

class FleetTarget : public FleetWorker {
 public:
  FleetTarget(FleetWorld* world, FleetEvents* events,
              const FleetOptions& options)
      : FleetWorker(world, events, options.target_hop), options_(options) {}

  // What the coordinator tells; unknown sessions are ignored.
  void Open(uint64_t session_id, speculation::TargetSession::Options options,
            speculation::PipelinePlan plan, std::vector<int32_t> committed,
            std::shared_ptr<const SessionModels> models);
  void OnTail(uint64_t session_id, const speculation::Tail& tail);
  void OnPlan(uint64_t session_id, const speculation::PipelinePlan& plan);
  void OnDraftAttached(uint64_t session_id, uint32_t epoch, int length);
  void OnDraftLost(uint64_t session_id);
  void OnAcknowledged(uint64_t session_id, int length);
  void Close(uint64_t session_id);

  int64_t gate_timeouts() const { return gate_timeouts_; }

 private:
  struct Seat {
    uint64_t id = 0;
    speculation::TargetSession machine;
    std::shared_ptr<const SessionModels> models;
    speculation::PipelinePlan plan;
    absl::optional<speculation::Verdict> last;  // of an ablation
    int kv_length = 0;
    int64_t timer_ns = -1;
    bool closing = false;
    // Of the running step.
    int prefill_rows = 0;
    bool verifies = false;
    std::vector<int32_t> tail;

    int unfed_rows() const { return machine.kv_length() - kv_length; }
    int rows() const {
      return prefill_rows + (verifies ? static_cast<int>(tail.size()) + 1 : 0);
    }
  };

  void Look() override;
  void LoseSessions() override;
  Seat* Find(uint64_t session_id);
  void ApplyPlan(Seat& seat);
  // Up to `max_rows` more rows; how many it added.
  int AddRows(Seat& seat, int max_rows);
  void Finish(const std::vector<Seat*>& batch, int batch_rows);
  void FinishVerify(Seat& seat, int other_rows);
  void RemoveClosed();

  const FleetOptions& options_;
  std::vector<std::unique_ptr<Seat>> seats_;
  size_t first_ = 0;  // whose turn it is when a step has no room for all
  int64_t gate_timeouts_ = 0;
};

}  // namespace nacre::simulation

#endif  // SIMULATION_FLEET_TARGET_H_
