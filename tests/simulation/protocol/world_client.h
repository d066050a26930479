// The coordinator's end of a simulated connection. Only for the world's own
// sources.

#ifndef TESTS_SIMULATION_PROTOCOL_WORLD_CLIENT_H_
#define TESTS_SIMULATION_PROTOCOL_WORLD_CLIENT_H_

#include <cstdint>

#include "coordinator/worker_client.h"
#include "tests/simulation/protocol/world.h"

namespace nacre::protocol {

// Collects calls and sends them as one message, like GrpcWorkerClient.
class World::Client final : public coordinator::WorkerClient {
 public:
  Client(World* world, Link* link, bool is_target)
      : world_(world), link_(link), is_target_(is_target) {}

  void OpenTarget(const coordinator::TargetOpening& opening) override;
  void RelayTail(uint64_t session_id, const speculation::Tail& tail) override {
    Target().tails.push_back({session_id, tail});
  }
  void UpdateTarget(uint64_t session_id,
                    const speculation::TargetPlan& plan) override {
    Target().plans.push_back({session_id, plan});
  }
  void AttachDraft(uint64_t session_id, uint32_t epoch,
                   int opened_length) override {
    Target().draft_attached.push_back({session_id, epoch, opened_length});
  }
  void LoseDraft(uint64_t session_id) override {
    Target().draft_lost.push_back(session_id);
  }
  void Acknowledge(uint64_t session_id, int committed_length) override {
    Target().acknowledged.push_back({session_id, committed_length});
  }
  void OpenDraft(const coordinator::DraftOpening& opening) override;
  void RelayCommit(uint64_t session_id,
                   const speculation::Commit& commit) override {
    Draft().commits.push_back({session_id, commit});
  }
  void UpdateDraft(uint64_t session_id,
                   const speculation::DraftPlan& plan) override {
    Draft().plans.push_back({session_id, plan});
  }
  void Close(uint64_t session_id) override;
  void Keep(const std::vector<uint64_t>& session_ids) override {
    (is_target_ ? Target().kept : Draft().kept) = session_ids;
  }
  // There is one thread: what is cut goes out.
  void Cut() override;
  void Flush() override {}
  int64_t clock_offset_ns() const override {
    return world_->processes_[static_cast<size_t>(link_->worker)]
               .options->clock_offset_ns -
           world_->schedule_.coordinator_clock_ns;
  }
  int64_t round_trip_ns() const override { return world_->schedule_.hop_ns; }

 private:
  target_worker::TargetCommands& Target() {
    if (!is_target_) world_->checks_.Fail("a draft is told what is a target's");
    pending_ = true;
    return target_;
  }
  draft_worker::DraftCommands& Draft() {
    if (is_target_) world_->checks_.Fail("a target is told what is a draft's");
    pending_ = true;
    return draft_;
  }
  SessionOnWorker& Opened(uint64_t session_id,
                          const coordinator::RequestSpec& request, int length,
                          uint32_t epoch);

  World* const world_;
  Link* const link_;
  const bool is_target_;
  bool pending_ = false;
  target_worker::TargetCommands target_;
  draft_worker::DraftCommands draft_;
};

}  // namespace nacre::protocol

#endif  // TESTS_SIMULATION_PROTOCOL_WORLD_CLIENT_H_
