// The series that MetricsObserver counts into. Part of metrics_observer.

#ifndef COORDINATOR_OBSERVE_METRICS_SERIES_H_
#define COORDINATOR_OBSERVE_METRICS_SERIES_H_

#include <array>
#include <string>
#include <vector>

#include "coordinator/dispatch/round_mode.h"
#include "coordinator/observe/metrics_observer.h"
#include "speculation/ranks.h"
#include "telemetry/metric_builder.h"

namespace nacre::coordinator {

// Of requests as a whole.
struct RequestSeries {
  explicit RequestSeries(telemetry::MetricBuilder& builder);

  prometheus::Gauge& running;
  prometheus::Gauge& waiting;
  prometheus::Counter& prompt_tokens;
  prometheus::Counter& generation_tokens;
  prometheus::Counter& prefix_queries;
  prometheus::Counter& prefix_hits;
  prometheus::Histogram& time_to_first_token;
  prometheus::Histogram& inter_token_latency;
  prometheus::Histogram& request_latency;
  prometheus::Histogram& queue_time;
};

// Of their rounds.
struct RoundSeries {
  explicit RoundSeries(telemetry::MetricBuilder& builder);

  prometheus::Counter& drafts;
  prometheus::Counter& draft_tokens;
  prometheus::Counter& verified_tokens;
  prometheus::Counter& accepted_tokens;
  prometheus::Counter& wasted_rejected;
  prometheus::Counter& wasted_branch;
  prometheus::Counter& wasted_stale;
  prometheus::Counter& wasted_cancelled;
  prometheus::Histogram& draft_length;
  prometheus::Counter& degraded_none;
  prometheus::Counter& degraded_lost;
  prometheus::Histogram& round_duration;
  prometheus::Histogram& draft_round_wait;
  prometheus::Histogram& target_round_wait;
  prometheus::Counter& wait_after_hit;
  prometheus::Counter& wait_after_miss;
  prometheus::Histogram& round_overhead;
  prometheus::Counter& hidden_bytes;
  prometheus::Counter& hidden_seconds;
  std::array<prometheus::Counter*, speculation::kBeyond> target_ranks;
};

struct SeriesBuilder {
  telemetry::MetricBuilder builder;
};

struct MetricsObserver::Series : SeriesBuilder, RequestSeries, RoundSeries {
  // Positions 0 to 15, and all beyond.
  static constexpr int kNumPositions = 17;
  static constexpr int kNumStatusCodes = 17;

  explicit Series(const std::string& model);

  prometheus::Counter& requests(const absl::Status& status,
                                absl::optional<Finish> finish);

  std::array<prometheus::Counter*, kNumPositions> accepted_per_position;
  std::array<prometheus::Counter*, kNumRoundModes> mode_rounds;
  std::vector<prometheus::Counter*> policy_stops;  // by PolicyKind
  // By finish reason where the status is OK, else by code.
  std::array<prometheus::Counter*, 3> finished;
  std::array<prometheus::Counter*, kNumStatusCodes> failed;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_OBSERVE_METRICS_SERIES_H_
