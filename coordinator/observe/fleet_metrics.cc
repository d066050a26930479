#include "coordinator/observe/fleet_metrics.h"

#include <prometheus/metric_family.h>

#include <map>
#include <string>
#include <utility>

namespace nacre::coordinator {
namespace {

prometheus::ClientMetric CapacityOf(const v1::Hello& hello,
                                    const std::string& role) {
  prometheus::ClientMetric metric;
  metric.label = {{"role", role}, {"worker", hello.address()}};
  metric.gauge.value = static_cast<double>(hello.kv_capacity_tokens());
  return metric;
}

prometheus::ClientMetric InfoOf(const v1::Hello& hello) {
  prometheus::ClientMetric metric;
  metric.label = {{"worker", hello.address()},
                  {"numerics_id", hello.numerics_id()},
                  {"fingerprint", hello.fingerprint()}};
  metric.gauge.value = 1;
  return metric;
}

}  // namespace

std::vector<prometheus::MetricFamily> FleetMetrics::Collect() const {
  prometheus::MetricFamily workers{
      "nacre_workers",
      "Attached workers: ready takes new sessions, draining does not, hung has "
      "work and makes no progress.",
      prometheus::MetricType::Gauge,
      {}};
  prometheus::MetricFamily ages{
      "nacre_worker_heartbeat_age_seconds",
      "Since the worker was last heard; it sends once a second.",
      prometheus::MetricType::Gauge,
      {}};
  prometheus::MetricFamily lost{
      "nacre_workers_lost_total",
      "Workers in service that died, fell silent or lost a stream, and were "
      "not draining.",
      prometheus::MetricType::Counter,
      {}};
  prometheus::MetricFamily capacities{"nacre_kv_capacity_tokens",
                                      "What a worker's KV cache holds.",
                                      prometheus::MetricType::Gauge,
                                      {}};
  prometheus::MetricFamily targets{
      "nacre_target_info",
      "1 for each target: a request goes on only where both are equal.",
      prometheus::MetricType::Gauge,
      {}};
  for (const WorkerRole role : {WorkerRole::kDraft, WorkerRole::kTarget}) {
    prometheus::ClientMetric metric;
    metric.label = {{"role", role == WorkerRole::kDraft ? "draft" : "target"}};
    metric.counter.value = static_cast<double>(registry_->num_lost(role));
    lost.metric.push_back(std::move(metric));
  }
  std::map<std::pair<std::string, std::string>, int> counts;
  for (const char* role : {"draft", "target"}) {
    for (const char* state : {"ready", "draining", "hung"}) {
      counts[{role, state}] = 0;
    }
  }
  for (const auto& worker : registry_->ListWorkers()) {
    const std::string role =
        worker.hello().role() == v1::WORKER_ROLE_DRAFT ? "draft" : "target";
    ++counts[{role, worker.heartbeat().hung() ? "hung"
                    : worker.ready()          ? "ready"
                                              : "draining"}];
    prometheus::ClientMetric age;
    age.label = {{"role", role}, {"worker", worker.hello().address()}};
    age.gauge.value = static_cast<double>(worker.heartbeat_age_ns()) * 1e-9;
    ages.metric.push_back(std::move(age));
    capacities.metric.push_back(CapacityOf(worker.hello(), role));
    if (worker.hello().role() == v1::WORKER_ROLE_TARGET) {
      targets.metric.push_back(InfoOf(worker.hello()));
    }
  }
  for (const auto& [labels, count] : counts) {
    prometheus::ClientMetric metric;
    metric.label = {{"role", labels.first}, {"state", labels.second}};
    metric.gauge.value = count;
    workers.metric.push_back(std::move(metric));
  }
  return {std::move(workers), std::move(ages), std::move(lost),
          std::move(capacities), std::move(targets)};
}

}  // namespace nacre::coordinator
