// What operators, scrapes and new requests ask of the dispatcher, kept so that
// they need not take its lock: it writes, they read.

#ifndef COORDINATOR_STATUS_BOARD_H_
#define COORDINATOR_STATUS_BOARD_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/optional.h"
#include "coordinator/request.h"
#include "coordinator/status_views.h"
#include "coordinator/worker_info.h"

namespace nacre::coordinator {

// A worker as others see it.
struct WorkerCell {
  explicit WorkerCell(WorkerInfo worker_info) : info(std::move(worker_info)) {}

  const WorkerInfo info;
  std::atomic<bool> ready{true};
  std::atomic<int> sessions{0};
};

// A request as others see it, from its arrival to its end.
struct SessionCell {
  std::shared_ptr<const RequestSpec> request;  // constant
  std::atomic<bool> running{false};            // it has left the queue
  std::atomic<int> generated{0};
  // The workers that serve it (dispatcher's ids; 0: none).
  std::atomic<uint64_t> target_worker{0};
  std::atomic<uint64_t> draft_worker{0};
};

// Sessions on a worker, whose number its cell shows.
class SessionSet {
 public:
  explicit SessionSet(std::shared_ptr<WorkerCell> cell)
      : cell_(std::move(cell)) {}

  void insert(uint64_t id) {
    ids_.insert(id);
    cell_->sessions = static_cast<int>(ids_.size());
  }
  void erase(uint64_t id) {
    ids_.erase(id);
    cell_->sessions = static_cast<int>(ids_.size());
  }
  bool contains(uint64_t id) const { return ids_.contains(id); }
  size_t size() const { return ids_.size(); }
  bool empty() const { return ids_.empty(); }
  // The oldest first; some may leave it meanwhile.
  std::vector<uint64_t> InOrder() const {
    std::vector<uint64_t> ids(ids_.begin(), ids_.end());
    std::sort(ids.begin(), ids.end());
    return ids;
  }

 private:
  absl::flat_hash_set<uint64_t> ids_;
  std::shared_ptr<WorkerCell> cell_;
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
  // The first ready target's; nullopt without one.
  absl::optional<WorkerInfo> model() const;
  // The last target that came, gone or not; nullopt before the first.
  absl::optional<WorkerInfo> last_target() const;
  std::vector<SessionStatus> running() const;
  // In the order of their arrival, which is that of their ids.
  std::vector<SessionStatus> waiting() const;

 private:
  using Sessions =
      std::vector<std::pair<uint64_t, std::shared_ptr<SessionCell>>>;
  using Workers = std::map<uint64_t, std::shared_ptr<WorkerCell>>;
  Sessions SessionsThat(bool run) const ABSL_LOCKS_EXCLUDED(mu_);
  Workers AllWorkers() const ABSL_LOCKS_EXCLUDED(mu_);

  mutable absl::Mutex mu_;
  Workers workers_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<const WorkerCell> last_target_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint64_t, std::shared_ptr<SessionCell>> sessions_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_STATUS_BOARD_H_
