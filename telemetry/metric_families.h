// Families of metrics that are read anew at each scrape, one sample after the
// other.
//
// Thread-compatible: made and taken within one Collect.

#ifndef TELEMETRY_METRIC_FAMILIES_H_
#define TELEMETRY_METRIC_FAMILIES_H_

#include <prometheus/client_metric.h>
#include <prometheus/metric_family.h>

#include <utility>
#include <vector>

namespace nacre::telemetry {

class MetricFamilies {
 public:
  using Labels = std::vector<prometheus::ClientMetric::Label>;

  // `own` are on every sample.
  explicit MetricFamilies(Labels own) : own_(std::move(own)) {}

  // Both: another sample of the family of this name if it was the last one.
  void Count(const char* name, const char* help, double value,
             const Labels& more = {}) {
    Sample(name, help, prometheus::MetricType::Counter, more).counter.value =
        value;
  }
  void Gauge(const char* name, const char* help, double value,
             const Labels& more = {}) {
    Sample(name, help, prometheus::MetricType::Gauge, more).gauge.value = value;
  }

  std::vector<prometheus::MetricFamily> Take() { return std::move(families_); }

 private:
  prometheus::ClientMetric& Sample(const char* name, const char* help,
                                   prometheus::MetricType type,
                                   const Labels& more) {
    if (families_.empty() || families_.back().name != name) {
      families_.push_back({name, help, type, {}});
    }
    prometheus::ClientMetric& metric = families_.back().metric.emplace_back();
    metric.label = own_;
    metric.label.insert(metric.label.end(), more.begin(), more.end());
    return metric;
  }

  const Labels own_;
  std::vector<prometheus::MetricFamily> families_;
};

}  // namespace nacre::telemetry

#endif  // TELEMETRY_METRIC_FAMILIES_H_
