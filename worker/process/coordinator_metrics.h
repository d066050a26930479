// What a worker's /metrics say of its coordinators. Thread-safe.

#ifndef WORKER_PROCESS_COORDINATOR_METRICS_H_
#define WORKER_PROCESS_COORDINATOR_METRICS_H_

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "worker/process/coordinators.h"

namespace nacre::worker {

class CoordinatorMetrics final : public prometheus::Collectable {
 public:
  using States = std::function<std::vector<Coordinators::State>()>;

  // `role`: draft or target; `worker`: the address that coordinators dial.
  CoordinatorMetrics(std::string role, std::string worker)
      : role_(std::move(role)), worker_(std::move(worker)) {}

  // What knows them from now on; null: none. A scrape that asks the old one has
  // ended when it returns.
  void SetStates(States states) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    states_ = std::move(states);
  }

  std::vector<prometheus::MetricFamily> Collect() const override
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const std::string role_;
  const std::string worker_;
  mutable absl::Mutex mu_;
  States states_ ABSL_GUARDED_BY(mu_);
};

}  // namespace nacre::worker

#endif  // WORKER_PROCESS_COORDINATOR_METRICS_H_
