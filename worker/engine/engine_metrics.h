// A worker's engine as metrics (docs/metrics.md), read at each scrape: how it
// spends its time, its KV cache, its steps.

#ifndef WORKER_ENGINE_ENGINE_METRICS_H_
#define WORKER_ENGINE_ENGINE_METRICS_H_

#include <prometheus/collectable.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/graph_counts.h"
#include "worker/engine/engine.h"

namespace nacre::worker {

enum class EngineRole { kDraft, kTarget };

// Thread-safe as what it is given.
class EngineMetrics final : public prometheus::Collectable {
 public:
  struct Options {
    EngineRole role = EngineRole::kTarget;
    std::string worker;  // the address that the coordinator dials
    int64_t kv_capacity_tokens = 0;
    std::function<EngineStats()> stats;
    // Of a device that can keep what steps queue, else null. Any thread.
    std::function<kernels::GraphCounts()> step_lists;
  };

  explicit EngineMetrics(Options options) : options_(std::move(options)) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const Options options_;
};

}  // namespace nacre::worker

#endif  // WORKER_ENGINE_ENGINE_METRICS_H_
