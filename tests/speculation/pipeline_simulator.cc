#include "tests/speculation/pipeline_simulator.h"

#include <algorithm>

#include "tests/speculation/simulated_pipeline.h"

namespace nacre::speculation {
namespace {

constexpr int64_t kMaxEvents = 2'000'000;
constexpr int64_t kMaxVirtualNs = int64_t{3600} * 1'000'000'000;

}  // namespace

SimulatedPipeline::SimulatedPipeline(const SimulatorOptions& options)
    : options_(options),
      random_(options.seed),
      draft_to_coordinator_(&queue_, &random_, options.draft_to_coordinator),
      coordinator_to_target_(&queue_, &random_, options.coordinator_to_target),
      target_to_coordinator_(&queue_, &random_, options.target_to_coordinator),
      coordinator_to_draft_(&queue_, &random_, options.coordinator_to_draft) {
  if (options.knows_costs) {
    for (int rows = 1; rows <= kMaxWindow + 1; ++rows) {
      target_curve_.Add(rows, std::llround(options.target_step_ns +
                                           options.target_row_ns * (rows - 1)));
      draft_curve_.Add(rows, std::llround(options.draft_step_ns +
                                          options.draft_row_ns * (rows - 1)));
    }
  }
  for (int id = 0; id < options.num_sessions; ++id) {
    sessions_.push_back(std::make_unique<Session>(options, id));
  }
}

bool SimulatedPipeline::HasFaults() const {
  const SimulatorOptions& o = options_;
  return o.draft_death + o.draft_exchange + o.repeated_message +
                 o.late_message + o.malformed_message + o.plan_change >
             0.0 ||
         o.draft_hangs_at_ns.has_value() || o.cancelled_at_ns.has_value();
}

SimulatorResult SimulatedPipeline::Run() {
  for (auto& session : sessions_) Start(*session);
  const auto failed = [this] {
    for (const auto& session : sessions_) {
      if (!session->failure().empty()) return true;
    }
    return false;
  };
  while (!queue_.empty() && !failed()) {
    queue_.RunNext();
    for (auto& session : sessions_) session->CheckCommitted();
    ++result_.events;
    for (auto& session : sessions_) {
      session->Require(session->ended || (result_.events <= kMaxEvents &&
                                          queue_.now_ns() <= kMaxVirtualNs),
                       "no end in sight");
    }
    // Engines look at everything that has arrived by now.
    if (queue_.empty() || queue_.next_time_ns() > queue_.now_ns()) {
      StartTargetStep();
      StartDraftStep();
    }
  }
  for (auto& session : sessions_) {
    if (!failed()) session->CheckEnd(!HasFaults());
    if (result_.failure.empty()) result_.failure = session->failure();
    const SpeculationStats& stats = session->schedule.stats();
    result_.stats.rounds += stats.rounds;
    result_.stats.drafted += stats.drafted;
    result_.stats.verified += stats.verified;
    result_.stats.accepted += stats.accepted;
    result_.stats.committed += stats.committed;
    result_.stats.degraded_rounds += stats.degraded_rounds;
    result_.stats.stale_messages += stats.stale_messages;
    const std::vector<int32_t>& committed = session->schedule.committed();
    result_.streams.emplace_back(committed.begin() + session->prompt_length,
                                 committed.end());
  }
  result_.trace.assign(trace_.begin(), trace_.end());
  return result_;
}

SimulatorResult Simulate(const SimulatorOptions& options) {
  return SimulatedPipeline(options).Run();
}

}  // namespace nacre::speculation
