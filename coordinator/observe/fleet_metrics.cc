#include "coordinator/observe/fleet_metrics.h"

#include <prometheus/metric_family.h>

#include <map>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"

namespace nacre::coordinator {
namespace {

using Labels = std::vector<prometheus::ClientMetric::Label>;

prometheus::MetricFamily Family(
    const char* name, const char* help,
    prometheus::MetricType type = prometheus::MetricType::Gauge) {
  return {name, help, type, {}};
}

void AddGauge(prometheus::MetricFamily* family, Labels labels, double value) {
  prometheus::ClientMetric metric;
  metric.label = std::move(labels);
  metric.gauge.value = value;
  family->metric.push_back(std::move(metric));
}

const char* NameOf(WorkerRole role) {
  return role == WorkerRole::kDraft ? "draft" : "target";
}

}  // namespace

void FleetMetrics::AddWorkers(
    std::vector<prometheus::MetricFamily>* families) const {
  prometheus::MetricFamily workers = Family(
      "nacre_workers",
      "Attached workers: ready takes new sessions, draining does not, hung has "
      "work and makes no progress.");
  prometheus::MetricFamily ages =
      Family("nacre_worker_heartbeat_age_seconds",
             "Since the worker was last heard; it sends once a second.");
  prometheus::MetricFamily capacities =
      Family("nacre_kv_capacity_tokens", "What a worker's KV cache holds.");
  prometheus::MetricFamily targets =
      Family("nacre_target_info",
             "1 for each target: a request goes on only where both are equal.");
  std::map<std::pair<std::string, std::string>, int> counts;
  const bool expects_draft = dispatcher_.demand().expects_draft;
  for (const char* role : {"draft", "target"}) {
    // Of a fleet that never had a draft none is missing.
    if (role == absl::string_view("draft") && !expects_draft) continue;
    for (const char* state : {"ready", "draining", "hung"}) {
      counts[{role, state}] = 0;
    }
  }
  for (const auto& worker : registry_->ListWorkers()) {
    const v1::Hello& hello = worker.hello();
    const bool is_target = hello.role() == v1::WORKER_ROLE_TARGET;
    const std::string role = is_target ? "target" : "draft";
    ++counts[{role, worker.heartbeat().hung() ? "hung"
                    : worker.ready()          ? "ready"
                                              : "draining"}];
    const Labels labels = {{"role", role}, {"worker", hello.address()}};
    AddGauge(&ages, labels,
             static_cast<double>(worker.heartbeat_age_ns()) * 1e-9);
    AddGauge(&capacities, labels,
             static_cast<double>(hello.kv_capacity_tokens()));
    if (!is_target) continue;
    AddGauge(&targets,
             {{"worker", hello.address()},
              {"numerics_id", hello.numerics_id()},
              {"fingerprint", hello.fingerprint()}},
             1);
  }
  for (const auto& [labels, count] : counts) {
    AddGauge(&workers, {{"role", labels.first}, {"state", labels.second}},
             count);
  }
  for (auto* family : {&workers, &ages, &capacities, &targets}) {
    families->push_back(std::move(*family));
  }
}

void FleetMetrics::AddDemand(
    std::vector<prometheus::MetricFamily>* families) const {
  prometheus::MetricFamily reserved = Family(
      "nacre_kv_reserved_tokens",
      "KV of a worker that is promised to sessions of this coordinator.");
  prometheus::MetricFamily sessions =
      Family("nacre_sessions", "Sessions of this coordinator on a worker.");
  prometheus::MetricFamily limits =
      Family("nacre_max_running_sessions",
             "Most of them at once on a target; 0: as many as its KV holds.");
  for (const WorkerStatus& worker : dispatcher_.workers()) {
    const Labels labels = {{"role", NameOf(worker.info.role)},
                           {"worker", worker.info.address}};
    AddGauge(&reserved, labels, static_cast<double>(worker.reserved_tokens));
    AddGauge(&sessions, labels, worker.sessions);
    if (worker.info.role == WorkerRole::kTarget) {
      AddGauge(&limits, {{"worker", worker.info.address}}, worker.max_sessions);
    }
  }
  const Demand demand = dispatcher_.demand();
  prometheus::MetricFamily wanted =
      Family("nacre_kv_wanted_tokens",
             "KV that requests without a target, and sessions without a draft "
             "that they ask for, wait for.");
  AddGauge(&wanted, {{"role", "target"}},
           static_cast<double>(demand.target_tokens));
  AddGauge(&wanted, {{"role", "draft"}},
           static_cast<double>(demand.draft_tokens));
  prometheus::MetricFamily undrafted =
      Family("nacre_num_requests_without_draft",
             "Requests that run on a target without the draft that they ask "
             "for.");
  AddGauge(&undrafted, {}, demand.without_draft);
  for (auto* family : {&reserved, &sessions, &limits, &wanted, &undrafted}) {
    families->push_back(std::move(*family));
  }
}

std::vector<prometheus::MetricFamily> FleetMetrics::Collect() const {
  std::vector<prometheus::MetricFamily> families;
  AddWorkers(&families);
  AddDemand(&families);
  prometheus::MetricFamily lost = Family(
      "nacre_workers_lost_total",
      "Workers in service that died, fell silent or lost a stream, and were "
      "not draining.",
      prometheus::MetricType::Counter);
  for (const WorkerRole role : {WorkerRole::kDraft, WorkerRole::kTarget}) {
    prometheus::ClientMetric metric;
    metric.label = {{"role", NameOf(role)}};
    metric.counter.value = static_cast<double>(registry_->num_lost(role));
    lost.metric.push_back(std::move(metric));
  }
  families.push_back(std::move(lost));
  return families;
}

}  // namespace nacre::coordinator
