// A discrete-event simulator of the whole pipeline in virtual time: the real
// TargetSession, DraftSession and SessionSchedule between fake models, engines
// with given step times and links with random delays. One seed decides
// everything. Two uses: to check the invariants of the pipeline under faults
// (every run does), and to predict how long a method takes.

#ifndef TESTS_SPECULATION_PIPELINE_SIMULATOR_H_
#define TESTS_SPECULATION_PIPELINE_SIMULATOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "simulation/link.h"
#include "speculation/pipeline.h"
#include "speculation/session_schedule.h"
#include "tests/speculation/ratio_models.h"

namespace nacre::speculation {

using simulation::LinkDelay;

struct SimulatorOptions {
  uint64_t seed = 1;

  // Sessions; several share the two engines, whose steps are batches.
  int num_sessions = 1;
  Method method = Method::kAsync;
  absl::optional<int> window;
  double prior_alpha = 0.7;
  // Used as it is, never re-planned.
  absl::optional<PipelinePlan> fixed_plan;
  absl::optional<int64_t> gate_timeout_ns;  // instead of the planned one
  int prompt_length = 5;
  int max_tokens = 32;
  int max_unacknowledged = 64;
  // A length policy (policies/policy_spec.h); what it reads of a row is drawn
  // at random, but the oracle knows the stream.
  std::string policy;

  // The ratio test: the models of ratio_models.h instead of those below, and
  // the stream is whatever the target commits.
  Verification verification = Verification::kExact;
  DraftKind draft_kind = DraftKind::kOther;

  // Fake models. Token 0 ends a sequence, token 1 is a stop id, if wanted.
  int vocabulary = 64;
  double alpha = 0.8;
  bool has_eos = true;
  bool has_stop_id = false;

  // Engines: a step of n rows takes step + (n - 1) * row, stretched by up to
  // `step_jitter` of itself.
  double target_step_ns = 5e6;
  double target_row_ns = 0.0;
  double draft_step_ns = 1e6;
  double draft_row_ns = 0.0;
  double step_jitter = 0.0;
  LinkDelay target_prefill;
  LinkDelay draft_prefill;
  bool knows_costs = true;  // the step times are measured before the start

  LinkDelay draft_to_coordinator;
  LinkDelay coordinator_to_target;
  LinkDelay target_to_coordinator;
  LinkDelay coordinator_to_draft;
  LinkDelay acknowledgement;  // until the coordinator acknowledges a verdict

  // Faults: probabilities for each message that the coordinator receives.
  double draft_death = 0.0;
  double draft_exchange = 0.0;  // another draft is attached, none was lost
  LinkDelay death_notice;       // until the coordinator knows
  LinkDelay reattach;           // from then until a new draft is opened
  double repeated_message = 0.0;
  double late_message = 0.0;
  double malformed_message = 0.0;
  double plan_change = 0.0;  // to a random plan
  absl::optional<int64_t> draft_hangs_at_ns;
  absl::optional<int64_t> cancelled_at_ns;

  // A deliberate bug, to see that the checks find it.
  enum class Mutation {
    kNone,
    kRewriteBase,        // stale tails look fresh
    kSwapVerdictTokens,  // the first two of a verdict
    kDropStopNotices,
    kLoseCommit,    // the draft never hears of one verdict
    kKeepTargetKv,  // no roll-back after a mismatch
    kReuseNumbers   // the draft draws with those of the acceptance test
  };
  Mutation mutation = Mutation::kNone;

  bool keep_trace = false;
};

struct SimulatorResult {
  std::string failure;             // empty when every invariant held
  std::vector<std::string> trace;  // the last events, when kept
  int64_t virtual_ns = 0;          // until the last session had ended
  int64_t target_busy_ns = 0;
  int64_t draft_busy_ns = 0;
  int64_t gate_timeouts = 0;
  int64_t holds = 0;  // steps that waited with their last row
  std::vector<std::vector<int32_t>> streams;  // what each session emitted
  int64_t policy_stops = 0;  // chunks that a policy ended behind a token
  int64_t events = 0;
  SpeculationStats stats;  // sums over the sessions
};

SimulatorResult Simulate(const SimulatorOptions& options);

// Random but reproducible options with delays, faults and several sessions.
SimulatorOptions RandomOptions(uint64_t seed);

// All that matters of the options, on a few lines.
std::string Describe(const SimulatorOptions& options);

}  // namespace nacre::speculation

#endif  // TESTS_SPECULATION_PIPELINE_SIMULATOR_H_
