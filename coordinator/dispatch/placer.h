// Which worker takes which request, now or later. It is one of those that are
// there and have room, of a kind that the request may run on. It also remembers
// what is not there. These are the worker that had the beginning of a prompt,
// and targets that have just left: they may come back.
//
// Pure: no I/O, no clock, no threads.

#ifndef COORDINATOR_DISPATCH_PLACER_H_
#define COORDINATOR_DISPATCH_PLACER_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "coordinator/dispatch/clock.h"
#include "coordinator/dispatch/request.h"
#include "coordinator/fleet/fleet.h"
#include "coordinator/fleet/prompt_prefixes.h"
#include "coordinator/fleet/worker_info.h"

namespace nacre::coordinator {

class Placer {
 public:
  // The fleet outlives it. A target that has left is waited for until
  // `patience_ns` later.
  Placer(const Fleet* fleet, int64_t patience_ns)
      : fleet_(*fleet), patience_ns_(patience_ns) {}

  // The numerics_id of the targets that the request may run on. It is what its
  // client asked for, or where the first choice of its call runs; empty: any.
  static const std::string& KindOf(const RequestSpec& request);
  // Equal for requests that find room on the same targets, whatever happens
  // while they wait.
  static std::string ClassOf(const RequestSpec& request);
  // KV that the text of the request takes on a target.
  static int64_t TargetNeed(const RequestSpec& request);
  // Of it, what the worker holds.
  static int64_t TextNeed(const WorkerInfo& worker, const RequestSpec& request);
  // What the request takes of a worker that CanTake it.
  struct Share {
    // Of nodes of a tree: for the branches of a draft, for the rows of a
    // target's steps. As many as the worker's sessions let it use when it is
    // placed. None where less than a quarter of the KV would be left: no other
    // request is to wait for them.
    int num_slots = 0;
    int64_t kv_tokens = 0;    // text and slots
    int64_t text_tokens = 0;  // of a draft without room for all, half of it
  };
  Share ShareOf(uint64_t worker_id, const RequestSpec& request,
                int64_t length = 0) const;

  void OnTargetAdded(const WorkerInfo& target);
  void OnTargetGone(const WorkerInfo& target, int64_t now_ns);

  // Of the ready workers with room for the request; 0 when there is none.
  uint64_t LeastLoaded(WorkerRole role, const RequestSpec& request,
                       const WorkerIds& except, int64_t length = 0) const;
  // The least loaded target. Where another has little more to do and had the
  // longest beginning of the prompt, that one. 0 when none has room. None that
  // is TooNarrow.
  uint64_t TargetFor(const RequestSpec& request, const WorkerIds& except) const;
  // Of a call that has not been placed: how many choices run where this one
  // does. Else 1.
  static int NumToPlace(const RequestSpec& request);
  // Ready targets whose kind cannot hold all these choices at once, where
  // another kind can. If none can: those of all kinds but the ones that hold
  // the most. There the other choices would wait for each other, or be refused.
  WorkerIds TooNarrow(const RequestSpec& request) const;
  // The kinds of which the request takes ready targets, "" for any: all but
  // those that are TooNarrow, for a call that has not been placed. Valid
  // until the request or the fleet changes, or the next call.
  absl::Span<const std::string> KindsFor(const RequestSpec& request) const;
  // Of the targets of a kind ("": of all) but those of `except`. The largest
  // need for which a ready one has room. And the largest for which one, ready
  // or not, would have room if it had nothing else. -1 where there is none.
  int64_t MostRoom(const std::string& kind, const WorkerIds& except) const;
  int64_t MostCapacity(const std::string& kind, const WorkerIds& except) const;
  // How often it has looked through the workers: the work that it has done.
  int64_t scans() const { return scans_; }
  // It runs there.
  void OnPlaced(const RequestSpec& request, uint64_t target_id) {
    holders_.Note(request.prefixes, target_id);
  }
  // Whether the worker is a target that could take it, if it had nothing else.
  bool CouldTake(uint64_t worker_id, const FleetWorker& worker,
                 const RequestSpec& request) const;

  // Why no target that is ready could ever take the request, if so.
  absl::Status CheckReady(const RequestSpec& request) const;
  // The same of those, too, that drain, hang or have just left. Without any
  // ready target, of the next one, of which nothing is known but its model.
  // RESOURCE_EXHAUSTED has the reason kNeverFits.
  absl::Status CheckServable(const RequestSpec& request, int64_t now_ns) const;
  // kNeverFits, and why, where `count` such requests at once could never all
  // find a place on those targets or among the `max_queue` that wait. They are
  // the choices of a call, which run on targets of one kind.
  absl::Status CheckTogether(const RequestSpec& request, int64_t count,
                             int max_queue, int64_t now_ns) const;

 private:
  struct Gone {
    std::string numerics_id;
    int64_t kv_capacity_tokens = 0;
    int64_t until_ns = 0;
  };

  // By numerics_id: sessions like it that the targets could hold at once.
  using Places = std::map<std::string, int64_t>;
  Places PlacesFor(const RequestSpec& request, bool only_ready) const;
  static int64_t MostOf(const Places& places);
  // The kinds that are not TooNarrow for so many choices. Worked out once for
  // each need until the fleet changes.
  const std::vector<std::string>& WideKinds(int choices,
                                            const RequestSpec& request) const;
  uint64_t BestTarget(const RequestSpec& request,
                      const WorkerIds& except) const;
  bool CanTake(uint64_t worker_id, WorkerRole role, const RequestSpec& request,
               const WorkerIds& except, int64_t length) const;
  bool MayComeBack(const RequestSpec& request, int64_t now_ns) const;
  // Whether a target that could take it has just left.
  bool HasJustLeft(const RequestSpec& request, int64_t now_ns) const;

  const Fleet& fleet_;
  const int64_t patience_ns_;
  PrefixHolders holders_;
  absl::optional<WorkerInfo> last_target_;
  std::vector<Gone> gone_;  // of the same model
  // By choices and what each needs, of this version of the fleet.
  mutable absl::flat_hash_map<std::pair<int, int64_t>, std::vector<std::string>>
      wide_kinds_;
  mutable uint64_t wide_version_ = 0;
  mutable int64_t scans_ = 0;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_PLACER_H_
