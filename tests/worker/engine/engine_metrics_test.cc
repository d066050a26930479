#include "worker/engine/engine_metrics.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/telemetry/samples.h"

namespace nacre::worker {
namespace {

using telemetry::Samples;

Samples Collect(EngineRole role, const EngineStats& stats,
                int64_t kv_capacity_tokens) {
  const EngineMetrics metrics(
      {role, "host:1", kv_capacity_tokens, [&stats] { return stats; }});
  return telemetry::Collect(metrics);
}

EngineStats Stats() {
  TimePartition time(/*start_ns=*/0);
  time.Enter(WorkerState::kPrefill, 1'000'000'000);
  time.Enter(WorkerState::kVerify, 3'000'000'000);
  time.Enter(WorkerState::kWaitDraftTokens, 6'000'000'000);
  time.Enter(WorkerState::kWaitAcknowledge, 10'000'000'000);
  EngineStats stats;
  stats.steps = 12;
  stats.abandoned_steps = 6;
  stats.queued_steps_used = 7;
  stats.queued_steps_dropped = 8;
  stats.suffix_proposed = 20;
  stats.suffix_accepted = 15;
  stats.sessions = 2;
  stats.kv_free_tokens = 30;
  stats.rejected_messages = 5;
  stats.rollback_tokens = 9;
  stats.reaped_sessions = 3;
  stats.prefix_queries = 80;
  stats.prefix_hits = 32;
  stats.prefix_brought = 16;
  stats.nonfinite_logits = 4;
  stats.time = time.At(15'000'000'000);
  return stats;
}

TEST(EngineMetricsTest, ATargetsLife) {
  const Samples samples = Collect(EngineRole::kTarget, Stats(), 40);
  const std::string own = "{role=\"target\",worker=\"host:1\"";
  const auto at = [&](const std::string& name, const std::string& label) {
    return samples.at(name + own + label + "}");
  };
  EXPECT_EQ(at("nacre_worker_busy_seconds_total", ",phase=\"prefill\""), 2);
  EXPECT_EQ(at("nacre_worker_busy_seconds_total", ",phase=\"verify\""), 3);
  EXPECT_EQ(at("nacre_target_wait_seconds_total", ",reason=\"draft_tokens\""),
            4);
  EXPECT_EQ(at("nacre_target_wait_seconds_total", ",reason=\"acknowledge\""),
            5);
  EXPECT_EQ(at("nacre_target_wait_seconds_total", ",reason=\"no_work\""), 1);
  EXPECT_EQ(at("nacre_worker_steps_total", ""), 12);
  EXPECT_EQ(at("nacre_worker_sessions", ""), 2);
  EXPECT_EQ(at("nacre_worker_rejected_messages_total", ""), 5);
  EXPECT_EQ(at("nacre_rollback_tokens_total", ""), 9);
  EXPECT_EQ(at("nacre_worker_reaped_sessions_total", ""), 3);
  EXPECT_EQ(at("nacre_worker_prefix_cache_queries_total", ""), 80);
  EXPECT_EQ(at("nacre_worker_prefix_cache_hits_total", ""), 32);
  EXPECT_EQ(at("nacre_worker_prefix_cache_brought_tokens_total", ""), 16);
  EXPECT_EQ(at("nacre_target_suffix_proposed_tokens_total", ""), 20);
  EXPECT_EQ(at("nacre_target_suffix_accepted_tokens_total", ""), 15);
  EXPECT_EQ(at("nacre_nonfinite_logits_total", ""), 4);
  EXPECT_EQ(at("nacre_kv_cache_usage_ratio", ""), 0.25);
}

TEST(EngineMetricsTest, StepsOfADraftThatWereForNothing) {
  const Samples samples = Collect(EngineRole::kDraft, Stats(), 40);
  const std::string own = "{role=\"draft\",worker=\"host:1\"}";
  EXPECT_EQ(samples.at("nacre_draft_abandoned_steps_total" + own), 6);
  EXPECT_EQ(samples.at("nacre_draft_queued_steps_used_total" + own), 7);
  EXPECT_EQ(samples.at("nacre_draft_queued_steps_dropped_total" + own), 8);
}

TEST(EngineMetricsTest, WhatStepsOfADeviceWereQueuedAs) {
  EngineMetrics::Options options = {EngineRole::kDraft, "host:1", 40,
                                    [] { return EngineStats(); }};
  const std::string series =
      "nacre_worker_step_lists_total{role=\"draft\",worker=\"host:1\",as=\"";
  EXPECT_FALSE(telemetry::Collect(EngineMetrics(options))
                   .contains(series + "persistent\"}"));
  options.step_lists = [] {
    return kernels::GraphCounts{
        .replayed = 3, .captured = 2, .plain = 1, .persistent = 4};
  };
  const Samples samples = telemetry::Collect(EngineMetrics(options));
  EXPECT_EQ(samples.at(series + "persistent\"}"), 4);
  EXPECT_EQ(samples.at(series + "kept_graph\"}"), 3);
  EXPECT_EQ(samples.at(series + "new_graph\"}"), 2);
  EXPECT_EQ(samples.at(series + "kernels\"}"), 1);
}

TEST(EngineMetricsTest, AFreshDraftHasEverySeriesAtZero) {
  EngineStats stats;
  stats.kv_free_tokens = 40;
  const Samples samples = Collect(EngineRole::kDraft, stats, 40);
  for (const auto& [sample, value] : samples) EXPECT_EQ(value, 0) << sample;
  for (const char* series :
       {"nacre_worker_busy_seconds_total{role=\"draft\",worker=\"host:1\","
        "phase=\"prefill\"}",
        "nacre_worker_busy_seconds_total{role=\"draft\",worker=\"host:1\","
        "phase=\"draft\"}",
        "nacre_draft_wait_seconds_total{role=\"draft\",worker=\"host:1\","
        "reason=\"verdict\"}",
        "nacre_draft_wait_seconds_total{role=\"draft\",worker=\"host:1\","
        "reason=\"no_work\"}",
        "nacre_rollback_tokens_total{role=\"draft\",worker=\"host:1\"}",
        "nacre_draft_abandoned_steps_total{role=\"draft\",worker=\"host:1\"}",
        "nacre_draft_queued_steps_used_total{role=\"draft\",worker=\"host:1\"}",
        "nacre_draft_queued_steps_dropped_total{role=\"draft\",worker=\"host:"
        "1\"}",
        "nacre_worker_prefix_cache_queries_total{role=\"draft\",worker=\"host:"
        "1\"}",
        "nacre_worker_prefix_cache_hits_total{role=\"draft\",worker=\"host:"
        "1\"}",
        "nacre_worker_reaped_sessions_total{role=\"draft\",worker=\"host:1\"}",
        "nacre_kv_cache_usage_ratio{role=\"draft\",worker=\"host:1\"}"}) {
    EXPECT_TRUE(samples.contains(series)) << series;
  }
}

TEST(EngineMetricsTest, EachRoleHasItsOwnSeriesOnly) {
  const auto count = [](EngineRole role, const std::string& part) {
    int found = 0;
    for (const auto& [sample, value] : Collect(role, Stats(), 40)) {
      if (sample.find(part) != std::string::npos) ++found;
    }
    return found;
  };
  EXPECT_EQ(count(EngineRole::kTarget, "nacre_draft_"), 0);
  EXPECT_EQ(count(EngineRole::kDraft, "nacre_target_"), 0);
  EXPECT_EQ(count(EngineRole::kTarget, "nacre_target_"), 3 + 2);
  EXPECT_EQ(count(EngineRole::kDraft, "nacre_draft_"), 2 + 3);
  EXPECT_EQ(count(EngineRole::kTarget, "phase=\"draft\""), 0);
  EXPECT_EQ(count(EngineRole::kDraft, "phase=\"verify\""), 0);
}

TEST(EngineMetricsTest, WhatOnlyGrowsIsACounter) {
  const EngineMetrics metrics(
      {EngineRole::kDraft, "host:1", 40, [] { return Stats(); }});
  for (const prometheus::MetricFamily& family : metrics.Collect()) {
    const bool is_total = family.name.size() > 6 &&
                          family.name.rfind("_total") == family.name.size() - 6;
    EXPECT_EQ(family.type, is_total ? prometheus::MetricType::Counter
                                    : prometheus::MetricType::Gauge)
        << family.name;
    EXPECT_FALSE(family.help.empty()) << family.name;
  }
}

TEST(EngineMetricsTest, ACacheOfUnknownSizeIsNotUsed) {
  EXPECT_EQ(Collect(EngineRole::kTarget, Stats(), 0)
                .at("nacre_kv_cache_usage_ratio{role=\"target\",worker=\"host:"
                    "1\"}"),
            0);
}

}  // namespace
}  // namespace nacre::worker
