#include "telemetry/otlp_exporter.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/time/clock.h"
#include "telemetry/build_info.h"
#include "telemetry/metric_builder.h"
#include "telemetry/otlp_client.h"

namespace nacre::telemetry {
namespace {

constexpr char kDropped[] = "nacre_otlp_dropped_spans_total";
constexpr char kDroppedHelp[] =
    "Spans that no collector got: the queue was full, or the call failed.";

OtlpClient::Resource ResourceOf(const OtlpExporter::Options& options) {
  OtlpClient::Resource resource = {{"service.name", options.service_name},
                                   {"service.version", GetBuildInfo().version}};
  for (const auto& [key, value] : options.resource_attributes) {
    resource[key] = value;
  }
  return resource;
}

}  // namespace

struct OtlpExporter::Series {
  MetricBuilder builder{{}};
  prometheus::Counter& exported = builder.Counter(
      "nacre_otlp_exported_spans_total", "Spans that a collector has taken.");
  prometheus::Counter& queue_full =
      builder.Counter(kDropped, kDroppedHelp, {{"reason", "queue_full"}});
  prometheus::Counter& export_failed =
      builder.Counter(kDropped, kDroppedHelp, {{"reason", "export_failed"}});
};

OtlpExporter::OtlpExporter(Options options)
    : options_(std::move(options)),
      series_(std::make_unique<Series>()),
      client_(std::make_unique<OtlpClient>(options_.collector,
                                           ResourceOf(options_))) {
  thread_ = std::thread([this] { Run(); });
}

OtlpExporter::~OtlpExporter() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  thread_.join();
}

std::shared_ptr<prometheus::Collectable> OtlpExporter::collectable() const {
  return series_->builder.registry();
}

void OtlpExporter::Export(size_t count,
                          std::function<std::vector<Span>()> make_spans) {
  {
    absl::MutexLock lock(&mu_);
    if (!stopping_ && queued_spans_ + count <= options_.max_queued_spans) {
      queued_spans_ += count;
      queue_.push_back({count, std::move(make_spans)});
      return;
    }
  }
  CountDropped(count);
}

void OtlpExporter::CountDropped(size_t count) {
  series_->queue_full.Increment(static_cast<double>(count));
}

void OtlpExporter::Run() {
  std::vector<Span> spans;
  absl::Time stop_at = absl::InfiniteFuture();
  while (true) {
    std::deque<Batch> taken;
    bool stopping = false;
    {
      absl::MutexLock lock(&mu_);
      const auto due = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return stopping_ || queued_spans_ >= options_.max_batch_spans;
      };
      mu_.AwaitWithTimeout(absl::Condition(&due), options_.max_delay);
      taken.swap(queue_);
      queued_spans_ = 0;
      stopping = stopping_;
    }
    if (stopping && stop_at == absl::InfiniteFuture()) {
      stop_at = absl::Now() + options_.collector.timeout;
    }
    for (Batch& batch : taken) {
      std::vector<Span> made = batch.make_spans();
      std::move(made.begin(), made.end(), std::back_inserter(spans));
      while (spans.size() >= options_.max_batch_spans) {
        const auto end =
            spans.begin() + static_cast<ptrdiff_t>(options_.max_batch_spans);
        Send({std::make_move_iterator(spans.begin()),
              std::make_move_iterator(end)},
             stop_at);
        spans.erase(spans.begin(), end);
      }
    }
    if (!spans.empty()) Send(std::exchange(spans, {}), stop_at);
    if (stopping) return;
  }
}

void OtlpExporter::Send(const std::vector<Span>& spans, absl::Time stop_at) {
  const absl::Time deadline =
      std::min(stop_at, absl::Now() + options_.collector.timeout);
  const absl::StatusOr<int64_t> rejected = client_->Send(spans, deadline);
  if (rejected.ok() != reachable_) {
    reachable_ = rejected.ok();
    if (reachable_) {
      spdlog::info("traces reach {} again", options_.collector.endpoint);
    } else {
      spdlog::warn("traces do not reach {}: {}", options_.collector.endpoint,
                   std::string(rejected.status().message()));
    }
  }
  const auto count = static_cast<double>(spans.size());
  const double lost =
      rejected.ok() ? std::clamp(static_cast<double>(*rejected), 0.0, count)
                    : count;
  series_->export_failed.Increment(lost);
  series_->exported.Increment(count - lost);
}

}  // namespace nacre::telemetry
