// The attached workers as metrics (docs/metrics.md), asked for at each scrape.

#ifndef COORDINATOR_OBSERVE_FLEET_METRICS_H_
#define COORDINATOR_OBSERVE_FLEET_METRICS_H_

#include <prometheus/collectable.h>

#include <vector>

#include "coordinator/api/registry_service.h"

namespace nacre::coordinator {

// Thread-safe. The registry must outlive it.
class FleetMetrics final : public prometheus::Collectable {
 public:
  explicit FleetMetrics(RegistryService* registry) : registry_(registry) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  RegistryService* const registry_;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_OBSERVE_FLEET_METRICS_H_
