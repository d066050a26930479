// `nacre simulate`: how fast a fleet would be. It is the world (world.h), which
// runs the real dispatcher and engines. Steps of workers take given times,
// links have given delays, and models answer from a list of matches. One seed
// decides everything, a second of traffic takes milliseconds.
//
// What it leaves out: the CPU time of coordinator and workers outside of their
// steps, and KV memory. Pure functions, no threads.

#ifndef SIMULATION_FLEET_H_
#define SIMULATION_FLEET_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "common/step_times.h"
#include "simulation/link.h"
#include "simulation/match_source.h"
#include "speculation/pipeline.h"
#include "speculation/policies/policy_spec.h"
#include "speculation/ranks.h"
#include "speculation/session_schedule.h"
#include "worker/engine/step_budget.h"

namespace nacre::simulation {

struct FleetMethod {
  speculation::Method method = speculation::Method::kAsync;
  absl::optional<int> window;  // as of PlanInputs
  speculation::Ablation ablation = speculation::Ablation::kNone;  // of kPearl
  bool operator==(const FleetMethod&) const = default;
};

enum class Role { kDraft, kTarget };

// A worker stops, and loses all sessions, once or again and again.
struct Failure {
  Role role = Role::kDraft;
  absl::optional<int> worker;  // each of the role when absent
  // The time of the first, or the mean of the (exponential) times between the
  // return, or the start, and the next when `repeats`.
  int64_t after_ns = 0;
  bool repeats = false;
  absl::optional<int64_t> back_after_ns;  // never when absent
  // Stays connected and does nothing; drafts only.
  bool hangs = false;
};

// A request as it was measured: its lengths (both >= 1), and the matches of its
// generated tokens from the first on (not empty).
struct ReplayedRequest {
  int prompt_tokens = 1;
  int output_tokens = 1;
  std::shared_ptr<const MatchTrace> matches;
};

struct FleetOptions {
  uint64_t seed = 1;
  FleetMethod method;

  // Each stream runs `requests` of `output_tokens` (>= 1) one after another,
  // with prompts of `prompt_tokens` (>= 1). The last prompt token is a row of
  // the first step, so 1 means no prefill.
  int streams = 1;
  int drafts = 1;
  int targets = 1;
  // Each worker is attached to all of them and divides its KV among them;
  // requests go to them in turn, as clients do. They do not fail.
  int coordinators = 1;
  int requests = 1;
  int prompt_tokens = 1;
  int output_tokens = 1000;

  // Matches: recorded ones, one trace a stream in turn, or else independent
  // with probability alpha, and mismatches of ranks with these shares.
  double alpha = 0.7;
  speculation::MismatchShares rank_shares = speculation::kMismatchShares;
  std::vector<std::shared_ptr<const MatchTrace>> recorded;
  // As of coordinator::DispatcherOptions. Nodes that a step of a draft expands
  // for a session of async, and rows of its tree in a step of a target. 1: a
  // chain.
  int draft_rows = 1;
  int tree_rows = 16;
  // Where not empty, these are the requests, whatever is said above of their
  // number, lengths and matches: a stream that is free takes the next.
  std::vector<ReplayedRequest> replay;

  // By rows of a step. A target step has one row a session and one a verified
  // tail token. A draft step has one a node that it expands and one a committed
  // token that it had not drafted. Prompt rows count in both.
  StepTimes target_step = StepTimes::Flat(10e6);
  StepTimes draft_step = StepTimes::Flat(2e6);
  // A draft ends a step early when a verdict has made it pointless, as the
  // workers do whose devices can (draft_worker/draft_engine.h).
  bool abandons_steps = false;
  worker::StepBudget budget;  // of the steps of both roles
  // Between the coordinator and a worker of the role, each way. A tail takes a
  // draft hop and a target hop, so does a commit.
  LinkDelay target_hop;
  LinkDelay draft_hop;

  std::vector<Failure> failures;

  // Of all requests, which no draft needs a file or logits for: a script has
  // none (script.h). The oracle is told the whole answer.
  speculation::PolicySpec policy;

  // Instead of what the schedule plans: it neither estimates alpha nor replans.
  absl::optional<speculation::PipelinePlan> fixed_plan;
};

// Sums over the workers of a role, without gap: workers x virtual time.
struct WorkerTime {
  int64_t busy_ns = 0;
  int64_t wait_ns = 0;     // target: draft tokens; draft: a verdict
  int64_t no_work_ns = 0;  // no session, or only such as wait for the client
  int64_t down_ns = 0;

  // wait / (busy + wait), as everywhere; 0 where it did nothing.
  double wait_share() const;
  WorkerTime& operator+=(const WorkerTime& other);
};

struct FleetResult {
  // False when sessions were left that no target will ever serve.
  bool finished = false;
  int64_t requests = 0;  // that have completed
  // That the service gave up, as it does after so many lost targets, and what
  // it said of the first.
  int64_t failed_requests = 0;
  std::string first_failure;
  int64_t virtual_ns = 0;  // until the last request had ended
  int64_t output_tokens = 0;
  speculation::SpeculationStats stats;  // sums over the sessions
  WorkerTime target;
  WorkerTime draft;
  int window = 0;  // of the last plan
  int64_t gate_timeouts = 0;
  int64_t lost_drafts = 0;   // sessions x times
  int64_t lost_targets = 0;  // sessions x times
  int64_t events = 0;

  double tokens_per_second() const;
  double mean_accepted_length() const;  // committed / target steps
  double acceptance_rate() const;       // accepted / verified
  // Of the mismatches that drafts told of: after how many the next position
  // was prepared, on a branch. Absent: they told of none.
  std::optional<double> hit_rate() const;
};

// The options must hold what is said of them (NACRE_CHECK).
FleetResult SimulateFleet(const FleetOptions& options);

}  // namespace nacre::simulation

#endif  // SIMULATION_FLEET_H_
