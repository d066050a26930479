// A draft worker of a simulated fleet: the loop of draft_worker/ around the
// real DraftSession, with fake models and given step times. No threads.

#ifndef SIMULATION_FLEET_DRAFT_H_
#define SIMULATION_FLEET_DRAFT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "simulation/fleet_worker.h"
#include "speculation/draft_session.h"

namespace nacre::simulation {

class FleetDraft : public FleetWorker {
 public:
  FleetDraft(FleetWorld* world, FleetEvents* events,
             const FleetOptions& options)
      : FleetWorker(world, events, options.draft_hop), options_(options) {}

  // What the coordinator tells; unknown sessions are ignored. Open replaces a
  // session of that id.
  void Open(uint64_t session_id, speculation::DraftSession::Options options,
            std::vector<int32_t> committed,
            std::shared_ptr<const SessionModels> models);
  void OnCommit(uint64_t session_id, const speculation::Commit& commit);
  void OnPlan(uint64_t session_id, const speculation::DraftPlan& plan);
  void Close(uint64_t session_id);

 private:
  struct Seat {
    uint64_t id = 0;
    speculation::DraftSession machine;
    std::shared_ptr<const SessionModels> models;
    int kv_length = 0;
    bool prefilled = false;
    bool closing = false;
    // Of the running step.
    bool drafts = false;
    bool cut = false;  // a commit has made its token pointless
    int kv_length_before = 0;

    // Rows before the one that drafts.
    int unfed_rows() const { return machine.kv_limit() - kv_length; }
  };

  void Look() override;
  void LoseSessions() override;
  Seat* Find(uint64_t session_id);
  void Finish();
  // The running step, if nobody needs what it computes.
  void AbandonStep();
  void SendTail(uint64_t session_id, const speculation::Tail& tail);
  void SendStopNotice(Seat& seat);
  void RemoveClosed();

  const FleetOptions& options_;
  std::vector<std::unique_ptr<Seat>> seats_;
  std::vector<Seat*> batch_;  // of the running step
  size_t first_ = 0;  // whose turn it is when a step has no room for all
};

}  // namespace nacre::simulation

#endif  // SIMULATION_FLEET_DRAFT_H_
