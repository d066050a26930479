// What operators, scrapes and new requests ask of the dispatcher, kept so that
// they need not take its lock: it writes, they read.

#ifndef COORDINATOR_DISPATCH_STATUS_BOARD_H_
#define COORDINATOR_DISPATCH_STATUS_BOARD_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/optional.h"
#include "coordinator/dispatch/request.h"
#include "coordinator/dispatch/status_views.h"
#include "coordinator/fleet/fleet_worker.h"

namespace nacre::coordinator {

// A request as others see it, from its arrival to its end.
struct SessionCell {
  std::shared_ptr<const RequestSpec> request;  // constant
  std::atomic<bool> running{false};            // it has left the queue
  std::atomic<int> generated{0};
  // The workers that serve it (dispatcher's ids; 0: none).
  std::atomic<uint64_t> target_worker{0};
  std::atomic<uint64_t> draft_worker{0};
};

// Thread-safe. Its lock is held to copy pointers.
class StatusBoard {
 public:
  void AddWorker(uint64_t id, std::shared_ptr<WorkerCell> worker);
  void RemoveWorker(uint64_t id);
  void AddSession(uint64_t id, std::shared_ptr<SessionCell> session);
  void RemoveSession(uint64_t id);

  // By id.
  std::vector<WorkerStatus> workers() const;
  // The first ready target's; nullopt without one. Its kv_capacity_tokens are
  // the longest text that any ready target could hold; 0: one of them does not
  // say.
  absl::optional<WorkerInfo> model() const;
  // The last target that came, gone or not; nullopt before the first.
  absl::optional<WorkerInfo> last_target() const;
  // Whether a draft ever came, gone or not.
  bool had_draft() const;
  std::vector<SessionStatus> running() const;
  // In the queue's order (admission.h).
  std::vector<SessionStatus> waiting() const;
  Demand demand() const;

 private:
  using Sessions =
      std::vector<std::pair<uint64_t, std::shared_ptr<SessionCell>>>;
  using Workers = std::map<uint64_t, std::shared_ptr<WorkerCell>>;
  Sessions SessionsThat(bool run) const ABSL_LOCKS_EXCLUDED(mu_);
  Workers AllWorkers() const ABSL_LOCKS_EXCLUDED(mu_);

  mutable absl::Mutex mu_;
  Workers workers_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<const WorkerCell> last_target_ ABSL_GUARDED_BY(mu_);
  bool had_draft_ ABSL_GUARDED_BY(mu_) = false;
  absl::flat_hash_map<uint64_t, std::shared_ptr<SessionCell>> sessions_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_STATUS_BOARD_H_
