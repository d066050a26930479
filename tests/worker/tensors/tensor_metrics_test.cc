#include "worker/tensors/tensor_metrics.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/telemetry/samples.h"

namespace nacre::worker {
namespace {

using telemetry::Samples;

TensorMetrics OfTarget(TensorPublisher::Stats stats) {
  return TensorMetrics({.worker = "host:1", .sent = [stats] { return stats; }});
}

TensorMetrics OfDraft(TensorReader::Stats stats, TensorUse use) {
  return TensorMetrics({.worker = "host:1",
                        .received = [stats] { return stats; },
                        .use = [use] { return use; }});
}

TEST(TensorMetricsTest, WhatATargetSends) {
  TensorPublisher::Stats stats;
  stats.readers = 1;
  stats.subscriptions = 2;
  stats.sent = 3;
  stats.sent_bytes = 48;
  stats.replaced = 4;
  stats.links = 5;
  stats.link_failures = 6;
  stats.sent_over_links = 7;
  stats.sent_bytes_over_links = 32;
  stats.rows_sent_again = 8;
  const Samples samples = telemetry::Collect(OfTarget(stats));
  const std::string own = "{role=\"target\",worker=\"host:1\"}";
  const Samples expected = {
      {"nacre_target_tensor_channels" + own, 2},
      {"nacre_target_tensors_sent_total" + own, 3},
      {"nacre_target_tensor_bytes_sent_total" + own, 48},
      {"nacre_target_tensors_replaced_total" + own, 4},
      {"nacre_target_tensor_nccl_links" + own, 5},
      {"nacre_target_tensor_nccl_failures_total" + own, 6},
      {"nacre_target_tensors_sent_nccl_total" + own, 7},
      {"nacre_target_tensor_bytes_sent_nccl_total" + own, 32},
      {"nacre_target_rows_sent_again_total" + own, 8}};
  EXPECT_EQ(samples, expected);
}

TEST(TensorMetricsTest, WhatADraftMakesOfThem) {
  TensorReader::Stats stats;
  stats.received = 9;
  stats.received_bytes = 144;
  stats.malformed = 2;
  stats.lost_channels = 1;
  stats.links = 3;
  stats.link_failures = 6;
  stats.received_over_links = 7;
  stats.received_bytes_over_links = 112;
  stats.lost_with_links = 8;
  TensorUse use;
  use.used = 5;
  use.lag_ns = 1'500'000'000;
  use.stale = 4;
  use.rows = 10;
  use.row_commits = 11;
  use.missing_rows = 12;
  use.malformed_rows = 13;
  use.lost_rows = 14;
  use.given_up = 15;
  const Samples samples = telemetry::Collect(OfDraft(stats, use));
  const std::string labels = "{role=\"draft\",worker=\"host:1\"";
  const std::string own = labels + "}";
  const std::string dropped = "nacre_draft_tensors_dropped_total" + labels;
  const Samples expected = {
      {"nacre_draft_tensors_received_total" + own, 9},
      {"nacre_draft_tensor_bytes_received_total" + own, 144},
      {"nacre_draft_tensors_used_total" + own, 5},
      {"nacre_draft_tensor_lag_seconds_total" + own, 1.5},
      {"nacre_draft_target_rows_total" + own, 10},
      {"nacre_draft_target_row_commits_total" + own, 11},
      {"nacre_draft_target_rows_missing_total" + own, 12},
      {"nacre_draft_target_rows_lost_total" + own, 14},
      {dropped + ",reason=\"stale\"}", 4},
      {dropped + ",reason=\"malformed\"}", 2 + 13},
      {dropped + ",reason=\"nccl\"}", 8},
      {"nacre_draft_tensor_channels_lost_total" + own, 1 + 15},
      {"nacre_draft_tensor_nccl_links" + own, 3},
      {"nacre_draft_tensor_nccl_failures_total" + own, 6},
      {"nacre_draft_tensors_received_nccl_total" + own, 7},
      {"nacre_draft_tensor_bytes_received_nccl_total" + own, 112}};
  EXPECT_EQ(samples, expected);
}

TEST(TensorMetricsTest, WhatOnlyGrowsIsACounter) {
  for (const TensorMetrics& metrics : {OfTarget({}), OfDraft({}, {})}) {
    for (const prometheus::MetricFamily& family : metrics.Collect()) {
      const bool is_total =
          family.name.size() > 6 &&
          family.name.rfind("_total") == family.name.size() - 6;
      EXPECT_EQ(family.type, is_total ? prometheus::MetricType::Counter
                                      : prometheus::MetricType::Gauge)
          << family.name;
      EXPECT_FALSE(family.help.empty()) << family.name;
    }
  }
}

}  // namespace
}  // namespace nacre::worker
