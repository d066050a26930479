// The attached workers, and what requests lack of them, as metrics
// (docs/metrics.md), asked for at each scrape.

#ifndef COORDINATOR_OBSERVE_FLEET_METRICS_H_
#define COORDINATOR_OBSERVE_FLEET_METRICS_H_

#include <prometheus/collectable.h>

#include <vector>

#include "coordinator/api/registry_service.h"
#include "coordinator/dispatch/dispatcher.h"

namespace nacre::coordinator {

// Thread-safe. The registry and the dispatcher must outlive it.
class FleetMetrics final : public prometheus::Collectable {
 public:
  FleetMetrics(RegistryService* registry, const Dispatcher* dispatcher)
      : registry_(registry), dispatcher_(*dispatcher) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  void AddWorkers(std::vector<prometheus::MetricFamily>* families) const;
  // What is promised of their KV, and what requests wait for.
  void AddDemand(std::vector<prometheus::MetricFamily>* families) const;

  RegistryService* const registry_;
  const Dispatcher& dispatcher_;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_OBSERVE_FLEET_METRICS_H_
