#include "worker/engine/engine_metrics.h"

#include <prometheus/metric_family.h>

#include <utility>

#include "absl/types/span.h"

namespace nacre::worker {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

class Families {
 public:
  // Another sample of the family of this name if it was the last one.
  void Add(const char* name, const char* help, MetricType type, double value,
           Labels labels) {
    if (families_.empty() || families_.back().name != name) {
      families_.push_back({name, help, type, {}});
    }
    ClientMetric metric;
    metric.label = std::move(labels);
    (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) =
        value;
    families_.back().metric.push_back(std::move(metric));
  }
  std::vector<MetricFamily> Take() { return std::move(families_); }

 private:
  std::vector<MetricFamily> families_;
};

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

}  // namespace

std::vector<MetricFamily> EngineMetrics::Collect() const {
  const EngineStats stats = options_.stats();
  const bool draft = options_.role == EngineRole::kDraft;
  const Labels own = {{"role", draft ? "draft" : "target"},
                      {"worker", options_.worker}};
  const auto with = [&own](const char* name, const char* value) {
    Labels labels = own;
    labels.push_back({name, value});
    return labels;
  };
  Families families;
  const auto counter = [&families](const char* name, const char* help,
                                   double value, Labels labels) {
    families.Add(name, help, MetricType::Counter, value, std::move(labels));
  };
  const auto seconds = [&stats](WorkerState state) {
    return static_cast<double>(stats.time[state]) * 1e-9;
  };

  for (const NamedState& phase : draft ? absl::MakeConstSpan(kDraftPhases)
                                       : absl::MakeConstSpan(kTargetPhases)) {
    counter("nacre_worker_busy_seconds_total",
            "Time in forwards, by what most of their rows were for.",
            seconds(phase.state), with("phase", phase.name));
  }
  for (const NamedState& wait : draft ? absl::MakeConstSpan(kDraftWaits)
                                      : absl::MakeConstSpan(kTargetWaits)) {
    counter(draft ? "nacre_draft_wait_seconds_total"
                  : "nacre_target_wait_seconds_total",
            "Time not in forwards, by what was missing; with the busy time it "
            "adds up to the worker's life.",
            seconds(wait.state), with("reason", wait.name));
  }
  counter("nacre_worker_steps_total", "Forwards.",
          static_cast<double>(stats.steps), own);
  if (draft) {
    counter("nacre_draft_abandoned_steps_total",
            "Forwards that a verdict made pointless, cut short; not among "
            "nacre_worker_steps_total.",
            static_cast<double>(stats.abandoned_steps), own);
    counter("nacre_draft_queued_steps_used_total",
            "Forwards that the device began before they were asked for.",
            static_cast<double>(stats.queued_steps_used), own);
    counter("nacre_draft_queued_steps_dropped_total",
            "Forwards that the device began and nobody asked for; not among "
            "nacre_worker_steps_total.",
            static_cast<double>(stats.queued_steps_dropped), own);
  } else {
    counter("nacre_target_suffix_proposed_tokens_total",
            "Tokens that the target proposed to itself from suffixes, and "
            "verified.",
            static_cast<double>(stats.suffix_proposed), own);
    counter("nacre_target_suffix_accepted_tokens_total",
            "Of these, the right ones.",
            static_cast<double>(stats.suffix_accepted), own);
  }
  counter("nacre_worker_rejected_messages_total",
          "Messages that were stale, repeated or malformed: they changed "
          "nothing.",
          static_cast<double>(stats.rejected_messages), own);
  counter("nacre_rollback_tokens_total",
          "Tokens cut from the KV cache after a mismatch.",
          static_cast<double>(stats.rollback_tokens), own);
  counter("nacre_worker_prefix_cache_queries_total",
          "Tokens of the sessions opened, looked up in the prefix cache.",
          static_cast<double>(stats.prefix_queries), own);
  counter("nacre_worker_prefix_cache_hits_total",
          "Of these, the tokens that it had.",
          static_cast<double>(stats.prefix_hits), own);
  counter("nacre_worker_reaped_sessions_total",
          "Sessions closed because the coordinator no longer named them.",
          static_cast<double>(stats.reaped_sessions), own);
  counter("nacre_nonfinite_logits_total",
          "Sessions given up because their logits were NaN or infinite: the "
          "device computes wrongly, or the weights are damaged.",
          static_cast<double>(stats.nonfinite_logits), own);
  families.Add("nacre_worker_sessions", "Open sessions.", MetricType::Gauge,
               stats.sessions, own);
  families.Add("nacre_kv_cache_usage_ratio", "Used share of the KV cache.",
               MetricType::Gauge,
               options_.kv_capacity_tokens <= 0
                   ? 0.0
                   : 1.0 - static_cast<double>(stats.kv_free_tokens) /
                               static_cast<double>(options_.kv_capacity_tokens),
               own);
  return families.Take();
}

}  // namespace nacre::worker
