#include "worker/engine/engine_metrics.h"

#include <utility>

#include "absl/types/span.h"
#include "telemetry/metric_families.h"

namespace nacre::worker {
namespace {

using telemetry::MetricFamilies;

struct NamedState {
  WorkerState state;
  const char* name;
};

constexpr NamedState kDraftPhases[] = {{WorkerState::kPrefill, "prefill"},
                                       {WorkerState::kDraft, "draft"}};
constexpr NamedState kTargetPhases[] = {{WorkerState::kPrefill, "prefill"},
                                        {WorkerState::kVerify, "verify"}};
constexpr NamedState kDraftWaits[] = {{WorkerState::kWaitVerdict, "verdict"},
                                      {WorkerState::kNoWork, "no_work"}};
constexpr NamedState kTargetWaits[] = {
    {WorkerState::kWaitDraftTokens, "draft_tokens"},
    {WorkerState::kWaitAcknowledge, "acknowledge"},
    {WorkerState::kNoWork, "no_work"}};

enum class Of { kBoth, kDraft, kTarget };

// A count that the engine keeps, as it is.
struct Count {
  Of workers;
  uint64_t EngineStats::*value;
  const char* name;
  const char* help;
};

// In the order in which they are given out.
constexpr Count kCounts[] = {
    {Of::kBoth, &EngineStats::steps, "nacre_worker_steps_total", "Forwards."},
    {Of::kDraft, &EngineStats::abandoned_steps,
     "nacre_draft_abandoned_steps_total",
     "Forwards that a verdict made pointless, cut short; not among "
     "nacre_worker_steps_total."},
    {Of::kDraft, &EngineStats::queued_steps_used,
     "nacre_draft_queued_steps_used_total",
     "Forwards that the device began before they were asked for."},
    {Of::kDraft, &EngineStats::queued_steps_dropped,
     "nacre_draft_queued_steps_dropped_total",
     "Forwards that the device began and no step used; not among "
     "nacre_worker_steps_total."},
    {Of::kTarget, &EngineStats::suffix_proposed,
     "nacre_target_suffix_proposed_tokens_total",
     "Tokens that the target proposed to itself, from suffixes or heads, and "
     "verified."},
    {Of::kTarget, &EngineStats::suffix_accepted,
     "nacre_target_suffix_accepted_tokens_total", "Of these, the right ones."},
    {Of::kBoth, &EngineStats::rejected_messages,
     "nacre_worker_rejected_messages_total",
     "Messages that were stale, repeated or malformed: they changed nothing."},
    {Of::kBoth, &EngineStats::rollback_tokens, "nacre_rollback_tokens_total",
     "Tokens cut from the KV cache after a mismatch."},
    {Of::kBoth, &EngineStats::prefix_queries,
     "nacre_worker_prefix_cache_queries_total",
     "Tokens of the sessions opened, looked up in the prefix cache."},
    {Of::kBoth, &EngineStats::prefix_hits,
     "nacre_worker_prefix_cache_hits_total",
     "Of these, the tokens that it had."},
    {Of::kBoth, &EngineStats::prefix_brought,
     "nacre_worker_prefix_cache_brought_tokens_total",
     "Of these, tokens that the KV cache had no longer: brought back from what "
     "--prefix-cache-size keeps."},
    {Of::kBoth, &EngineStats::reaped_sessions,
     "nacre_worker_reaped_sessions_total",
     "Sessions closed because the coordinator no longer named them."},
    {Of::kBoth, &EngineStats::nonfinite_logits, "nacre_nonfinite_logits_total",
     "Sessions given up because their logits were NaN or infinite: the device "
     "computes wrongly, or the weights are damaged."}};

void AddTimes(const TimePartition::Totals& time, bool draft,
              MetricFamilies* families) {
  const auto add = [&](const char* name, const char* help, const char* label,
                       const NamedState& state) {
    families->Count(name, help, static_cast<double>(time[state.state]) * 1e-9,
                    {{label, state.name}});
  };
  for (const NamedState& phase : draft ? absl::MakeConstSpan(kDraftPhases)
                                       : absl::MakeConstSpan(kTargetPhases)) {
    add("nacre_worker_busy_seconds_total",
        "Time in forwards, by what most of their rows were for.", "phase",
        phase);
  }
  for (const NamedState& wait : draft ? absl::MakeConstSpan(kDraftWaits)
                                      : absl::MakeConstSpan(kTargetWaits)) {
    add(draft ? "nacre_draft_wait_seconds_total"
              : "nacre_target_wait_seconds_total",
        "Time not in forwards, by what was missing; with the busy time it adds "
        "up to the worker's life.",
        "reason", wait);
  }
}

void AddStepLists(const kernels::GraphCounts& counts,
                  MetricFamilies* families) {
  const auto add = [&](const char* as, uint64_t count) {
    families->Count(
        "nacre_worker_step_lists_total",
        "Lists of kernels that steps of few rows gave the device, "
        "by what it was given: one kernel (--persistent-steps), a "
        "CUDA graph that it had, one made for them, or the kernels.",
        static_cast<double>(count), {{"as", as}});
  };
  add("persistent", counts.persistent);
  add("kept_graph", counts.replayed);
  add("new_graph", counts.captured);
  add("kernels", counts.plain);
}

}  // namespace

std::vector<prometheus::MetricFamily> EngineMetrics::Collect() const {
  const EngineStats stats = options_.stats();
  const bool draft = options_.role == EngineRole::kDraft;
  MetricFamilies families(
      {{"role", draft ? "draft" : "target"}, {"worker", options_.worker}});
  AddTimes(stats.time, draft, &families);
  for (const Count& count : kCounts) {
    if (count.workers == (draft ? Of::kTarget : Of::kDraft)) continue;
    families.Count(count.name, count.help,
                   static_cast<double>(stats.*count.value));
  }
  if (options_.step_lists) AddStepLists(options_.step_lists(), &families);
  families.Gauge("nacre_worker_sessions", "Open sessions.", stats.sessions);
  families.Gauge(
      "nacre_kv_cache_usage_ratio", "Used share of the KV cache.",
      options_.kv_capacity_tokens <= 0
          ? 0.0
          : 1.0 - static_cast<double>(stats.kv_free_tokens) /
                      static_cast<double>(options_.kv_capacity_tokens));
  return families.Take();
}

}  // namespace nacre::worker
