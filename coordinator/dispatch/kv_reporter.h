// What this coordinator tells workers that it shares with others (KvReport in
// proto/worker.proto): what of their KV it has promised, and what requests wait
// for.
//
// A part of the dispatcher, under its lock.

#ifndef COORDINATOR_DISPATCH_KV_REPORTER_H_
#define COORDINATOR_DISPATCH_KV_REPORTER_H_

#include <cstdint>
#include <vector>

#include "coordinator/dispatch/dispatcher_state.h"
#include "coordinator/dispatch/pairing.h"
#include "wire/kv_report.h"

namespace nacre::coordinator {

// How much of a worker's KV may be promised from now on, and how many sessions
// it runs for other coordinators.
struct KvGrant {
  uint64_t serial = 0;
  int64_t tokens = 0;
  int other_sessions = 0;
};

class KvReporter {
 public:
  KvReporter(DispatcherState* state, Pairing* pairing)
      : state_(*state), pairing_(*pairing) {}

  // Answers a grant. Requires: the worker is in service.
  void Report(uint64_t worker_id);
  // Tells each worker that grants KV what it must hear before its next grant.
  // Another request waits first, more is wanted, or promises beyond a smaller
  // grant have ended.
  void ReportNews();

 private:
  // `held_ids`: Failover::held().
  wire::KvReport ReportFor(uint64_t worker_id,
                           const std::vector<uint64_t>& held_ids) const;
  // What waits for room on a target.
  void AddTargetNeeds(uint64_t worker_id, const std::vector<uint64_t>& held_ids,
                      wire::KvReport* report) const;
  // What sessions want of a draft. None is the first: a draft takes any that
  // fits, so room that is saved for one might never be its own.
  void AddDraftNeeds(uint64_t worker_id, wire::KvReport* report) const;

  DispatcherState& state_;
  Pairing& pairing_;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_KV_REPORTER_H_
