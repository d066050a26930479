// Sessions whose target is gone, or about to go. They are held, with all that
// is committed, and go on where the same bits are computed. Their clients
// notice a pause at most.
//
// Decides which may go on where, which wait and how long, and which end; the
// dispatcher does it. Pure: no I/O, no clock, no threads.

#ifndef COORDINATOR_DISPATCH_FAILOVER_H_
#define COORDINATOR_DISPATCH_FAILOVER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/dispatch/clock.h"
#include "coordinator/dispatch/placer.h"
#include "coordinator/dispatch/request.h"
#include "coordinator/fleet/fleet.h"

namespace nacre::coordinator {

// What one session asks of a target, and what became of those it had.
struct FailoverRecord {
  // Its first target, and so what the others must be.
  void Bind(const WorkerInfo& target) {
    fingerprint = target.fingerprint;
    eos_token_ids = target.eos_token_ids;
    numerics_id = target.numerics_id;
  }
  // A target has committed tokens of it.
  void OnProgress() {
    give_up_ns = kNever;
    num_losses = 0;
  }

  std::shared_ptr<const RequestSpec> request;
  std::string fingerprint;
  std::vector<int32_t> eos_token_ids;
  std::string numerics_id;
  int64_t give_up_ns = kNever;  // it ends if it is without a target then
  // When the targets that refused it are asked again.
  int64_t retry_ns = kNever;
  // Targets that it has lost since the last one that committed tokens of it.
  int num_losses = 0;
  // Why it lost the last one.
  std::string reason;
  WorkerIds refused_by;  // workers, drafts too, that could not open it
  WorkerIds failed_on;   // whose device failed it: they are never asked again
};

class Failover {
 public:
  // A session that loses more targets in a row, without one token between them,
  // ends. A request that kills its targets must not take the whole fleet.
  static constexpr int kMaxLossesInARow = 5;
  // Between two questions to a target that had no room.
  static constexpr int64_t kRetryNs = 1'000'000'000;

  // A session waits at most `timeout_ns` for a target. The others outlive it.
  Failover(const Fleet* fleet, const Placer* placer, int64_t timeout_ns)
      : fleet_(*fleet), placer_(*placer), timeout_ns_(timeout_ns) {}

  // A target to go on on: 0 when none is ready, equal and has room.
  uint64_t EqualTarget(const FailoverRecord& record,
                       const WorkerIds& except) const;
  // Notes that the target `refuser` could not, or no longer, serve the session,
  // and says whether another may, or this one, now or later.
  bool MayGoOn(FailoverRecord* record, uint64_t refuser,
               const absl::Status& status) const;

  // The session, which is on no target now, waits for one from `now_ns`.
  // `reason` is for its client, should it end. The record stays where it is
  // until Release.
  void Hold(uint64_t session_id, FailoverRecord* record, std::string reason,
            int64_t now_ns);
  // The same after MayGoOn. Being refused does not prolong the wait.
  void HoldRefused(uint64_t session_id, FailoverRecord* record,
                   uint64_t refuser, const absl::Status& status,
                   int64_t now_ns);
  // It goes on, or has ended. Others are ignored.
  void Release(uint64_t session_id) { held_.erase(session_id); }

  // The oldest first.
  std::vector<uint64_t> held() const;
  // What is to be done with a held session. It goes on on target_id. Where that
  // is 0 it ends with `end`, or, where that is OK, asks again at wake_ns.
  struct Decision {
    uint64_t target_id = 0;
    absl::Status end;
    int64_t wake_ns = kNever;
  };
  // `generated`: tokens so far, for its client.
  Decision Decide(uint64_t session_id, int generated, int64_t now_ns);
  // The targets on which a held session waits only for room: what becomes free
  // there is for it.
  WorkerIds KeptForHeld() const;

 private:
  // Whether it is a target on which the session could go on if nothing else was
  // there.
  bool CouldGoOn(const FailoverRecord& record, uint64_t id,
                 const FleetWorker& worker) const;
  // Whether there is one whose device has not failed it.
  bool HasSoundTarget(const FailoverRecord& record) const;

  const Fleet& fleet_;
  const Placer& placer_;
  const int64_t timeout_ns_;
  std::map<uint64_t, FailoverRecord*> held_;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_FAILOVER_H_
