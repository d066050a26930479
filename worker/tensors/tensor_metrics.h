// The tensors that a worker sends or reads as metrics (docs/metrics.md), read
// at each scrape: how many bytes, how late, how many are lost.

#ifndef WORKER_TENSORS_TENSOR_METRICS_H_
#define WORKER_TENSORS_TENSOR_METRICS_H_

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "worker/tensors/tensor_publisher.h"
#include "worker/tensors/tensor_reader.h"

namespace nacre::worker {

// Thread-safe as what it asks is.
class TensorMetrics final : public prometheus::Collectable {
 public:
  struct Options {
    std::string worker;  // the address that the coordinator dials
    // Of a target. Null: it is a draft.
    std::function<TensorPublisher::Stats()> sent;
    // Of a draft. Null: it is a target.
    std::function<TensorReader::Stats()> received;
    std::function<TensorUse()> use;  // of those
  };

  explicit TensorMetrics(Options options) : options_(std::move(options)) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const Options options_;
};

}  // namespace nacre::worker

#endif  // WORKER_TENSORS_TENSOR_METRICS_H_
