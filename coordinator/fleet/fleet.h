// The workers in service: what each said of itself, and which sessions it has.
// Also how much of its KV is promised and how fast its steps are.
//
// Pure: no I/O, no clock, no threads. The dispatcher tells the workers.

#ifndef COORDINATOR_FLEET_FLEET_H_
#define COORDINATOR_FLEET_FLEET_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "coordinator/fleet/fleet_worker.h"
#include "coordinator/fleet/kv_ledger.h"
#include "coordinator/fleet/worker_info.h"
#include "speculation/plan.h"

namespace nacre::coordinator {

using WorkerIds = absl::flat_hash_set<uint64_t>;

class Fleet {
 public:
  using Workers = std::map<uint64_t, FleetWorker>;  // by id: the oldest first

  // At most `max_running` sessions at once on each target; 0: what its KV
  // holds.
  explicit Fleet(int max_running = 0) : max_running_(max_running) {}

  // Takes a worker into service and returns its id, which rises from 1.
  // FAILED_PRECONDITION if a target serves another model than those in service
  // (model_mismatch.h). A target of another model than the last one's forgets
  // what drafts' tokens were worth.
  absl::StatusOr<uint64_t> Add(WorkerInfo info);
  // With all that is promised there. Its sessions have left it.
  void Remove(uint64_t id);

  FleetWorker* Find(uint64_t id) {
    const auto it = workers_.find(id);
    return it == workers_.end() ? nullptr : &it->second;
  }
  const FleetWorker* Find(uint64_t id) const {
    const auto it = workers_.find(id);
    return it == workers_.end() ? nullptr : &it->second;
  }
  FleetWorker& at(uint64_t id) { return workers_.at(id); }
  const Workers& workers() const { return workers_; }
  // Of those that draft, the oldest first.
  const std::vector<const WorkerInfo*>& drafts() const { return drafts_; }
  // The load and the ids of a role's workers: those with the least first, of as
  // much the oldest.
  using ByLoad = absl::btree_set<std::pair<size_t, uint64_t>>;
  const ByLoad& by_load(WorkerRole role) const {
    return role == WorkerRole::kTarget ? targets_by_load_ : drafts_by_load_;
  }

  // Whether it takes sessions.
  void SetReady(uint64_t id, bool ready);
  // Changes as often as a worker comes, goes, or begins or ends to take
  // sessions.
  uint64_t version() const { return version_; }
  // The ids of those that do not.
  const std::set<uint64_t>& draining() const { return draining_; }

  // Of those that grant their KV: what may be promised there from now on, and
  // how many sessions they run for others. Whether there is more room.
  bool SetGrant(uint64_t id, uint64_t serial, int64_t tokens,
                int other_sessions);
  // Their ids.
  const std::set<uint64_t>& granting() const { return granting_; }

  // A session runs there and needs so much KV (KvLedger::Need). `follows_load`:
  // its window follows the load of its target.
  void Seat(uint64_t worker_id, uint64_t session_id, int64_t need,
            bool follows_load);
  // It runs there no more. Its KV stays promised until Release.
  void Unseat(uint64_t worker_id, uint64_t session_id, bool follows_load);
  // The worker has closed the session: its KV is free. The worker's role;
  // nullopt if nothing was promised.
  absl::optional<WorkerRole> Release(uint64_t worker_id, uint64_t session_id);
  const KvLedger& ledger() const { return ledger_; }

  // What a step of a session costs there, as far as its workers decide it:
  // without its own rows and without the way between them. 0: no worker.
  speculation::StepCosts CostsOn(uint64_t target_id, uint64_t draft_id,
                                 bool follows_load);

 private:
  ByLoad& LoadsOf(WorkerRole role) {
    return role == WorkerRole::kTarget ? targets_by_load_ : drafts_by_load_;
  }

  const int max_running_;
  Workers workers_;
  std::vector<const WorkerInfo*> drafts_;
  ByLoad targets_by_load_;
  ByLoad drafts_by_load_;
  std::set<uint64_t> draining_;
  std::set<uint64_t> granting_;
  KvLedger ledger_;
  std::string target_fingerprint_;  // of the last target that came
  uint64_t next_id_ = 1;
  uint64_t version_ = 0;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_FLEET_FLEET_H_
