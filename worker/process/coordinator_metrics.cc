#include "worker/process/coordinator_metrics.h"

namespace nacre::worker {

std::vector<prometheus::MetricFamily> CoordinatorMetrics::Collect() const {
  std::vector<Coordinators::State> states;
  {
    absl::MutexLock lock(&mu_);
    if (states_) states = states_();
  }
  prometheus::MetricFamily registered{
      "nacre_worker_registered",
      "Whether the coordinator at this address has accepted the worker.",
      prometheus::MetricType::Gauge,
      {}};
  prometheus::MetricFamily granted{
      "nacre_worker_kv_granted_tokens",
      "KV, in tokens, that the coordinator may have promised to sessions.",
      prometheus::MetricType::Gauge,
      {}};
  for (const Coordinators::State& state : states) {
    prometheus::ClientMetric metric;
    metric.label = {
        {"role", role_}, {"worker", worker_}, {"coordinator", state.address}};
    metric.gauge.value = state.registered ? 1 : 0;
    registered.metric.push_back(metric);
    metric.gauge.value = static_cast<double>(state.kv_held_tokens);
    granted.metric.push_back(metric);
  }
  return {std::move(registered), std::move(granted)};
}

}  // namespace nacre::worker
