// Families of metrics in few words: a name, a help text, labels.
//
// Thread-safe as the library is.

#ifndef TELEMETRY_METRIC_BUILDER_H_
#define TELEMETRY_METRIC_BUILDER_H_

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <memory>
#include <string>
#include <utility>

namespace nacre::telemetry {

// Adds series to a registry; all of them carry `labels`.
class MetricBuilder {
 public:
  explicit MetricBuilder(prometheus::Labels labels)
      : registry_(std::make_shared<prometheus::Registry>()),
        labels_(std::move(labels)) {}

  const std::shared_ptr<prometheus::Registry>& registry() const {
    return registry_;
  }

  // Another series of the same family when called with the same name again.
  prometheus::Counter& Counter(const std::string& name, const std::string& help,
                               const prometheus::Labels& labels = {}) {
    return prometheus::BuildCounter()
        .Name(name)
        .Help(help)
        .Labels(labels_)
        .Register(*registry_)
        .Add(labels);
  }
  prometheus::Gauge& Gauge(const std::string& name, const std::string& help,
                           const prometheus::Labels& labels = {}) {
    return prometheus::BuildGauge()
        .Name(name)
        .Help(help)
        .Labels(labels_)
        .Register(*registry_)
        .Add(labels);
  }
  prometheus::Histogram& Histogram(
      const std::string& name, const std::string& help,
      const prometheus::Histogram::BucketBoundaries& buckets,
      const prometheus::Labels& labels = {}) {
    return prometheus::BuildHistogram()
        .Name(name)
        .Help(help)
        .Labels(labels_)
        .Register(*registry_)
        .Add(labels, buckets);
  }

 private:
  const std::shared_ptr<prometheus::Registry> registry_;
  const prometheus::Labels labels_;
};

}  // namespace nacre::telemetry

#endif  // TELEMETRY_METRIC_BUILDER_H_
