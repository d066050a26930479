// Random options for the simulator, and their description.

#include "absl/strings/str_cat.h"
#include "tests/speculation/pipeline_simulator.h"

namespace nacre::speculation {
namespace {

// Between 1 us and `most` ns, small values as likely as large ones.
double LogUniform(simulation::Random& random, double least, double most) {
  double value = least;
  while (value * 2.0 <= most && random.Chance(0.8)) value *= 2.0;
  return value * (1.0 + random.Unit());
}

LinkDelay RandomDelay(simulation::Random& random, int64_t most_ns) {
  if (random.Chance(0.3)) return {0, 0};
  const int64_t max_ns = random.Between(0, most_ns);
  return {random.Between(0, max_ns), max_ns};
}

}  // namespace

namespace {

// Of a generator of its own: the rest of a seed's options do not depend on it.
std::string RandomPolicy(uint64_t seed) {
  constexpr const char* kPolicies[] = {"",
                                       "",
                                       "",
                                       "",
                                       "constant:n=1",
                                       "constant:n=3",
                                       "heuristic",
                                       "heuristic:start=1,max=4",
                                       "confidence",
                                       "svip",
                                       "beta-ts",
                                       "beta-ts:update=bernoulli,max=5",
                                       "cali-ts",
                                       "oracle",
                                       "oracle:max=2",
                                       "load"};
  simulation::Random random(seed * 0x9E3779B97F4A7C15 + 1);
  return kPolicies[random.Between(0, 15)];
}

}  // namespace

SimulatorOptions RandomOptions(uint64_t seed) {
  SimulatorOptions options;
  options.seed = seed;
  options.policy = RandomPolicy(seed);
  simulation::Random random(~seed);
  options.num_sessions =
      random.Chance(0.7) ? 1 : static_cast<int>(random.Between(2, 4));
  constexpr Method kMethods[] = {Method::kAr, Method::kSd, Method::kPearl,
                                 Method::kAsync, Method::kAsync};
  options.method = kMethods[random.Between(0, 4)];
  if (random.Chance(0.7)) {
    options.window = static_cast<int>(random.Between(1, 16));
  }
  options.prior_alpha = 0.05 + 0.9 * random.Unit();
  options.prompt_length = static_cast<int>(random.Between(1, 9));
  options.max_tokens =
      static_cast<int>(random.Between(1, random.Chance(0.5) ? 12 : 50));
  options.max_unacknowledged =
      random.Chance(0.5) ? 64 : static_cast<int>(random.Between(1, 20));
  options.vocabulary = static_cast<int>(random.Between(3, 200));
  options.alpha = random.Chance(0.2)   ? 1.0
                  : random.Chance(0.2) ? 0.0
                                       : random.Unit();
  options.has_eos = random.Chance(0.7);
  options.has_stop_id = random.Chance(0.3);
  options.target_step_ns = LogUniform(random, 0.2e6, 20e6);
  options.draft_step_ns = LogUniform(random, 0.05e6, 10e6);
  if (random.Chance(0.5)) {
    options.target_row_ns = options.target_step_ns * 0.5 * random.Unit();
    options.draft_row_ns = options.draft_step_ns * 0.5 * random.Unit();
  }
  options.step_jitter = random.Chance(0.5) ? 0.0 : 2.0 * random.Unit();
  options.target_prefill = RandomDelay(random, 50'000'000);
  options.draft_prefill = RandomDelay(random, 50'000'000);
  options.knows_costs = random.Chance(0.5);
  const int64_t longest = random.Between(0, 5'000'000);
  options.draft_to_coordinator = RandomDelay(random, longest);
  options.coordinator_to_target = RandomDelay(random, longest);
  options.target_to_coordinator = RandomDelay(random, longest);
  options.coordinator_to_draft = RandomDelay(random, longest);
  options.acknowledgement = RandomDelay(random, 4 * longest);
  if (random.Chance(0.3)) return options;  // no faults
  const auto rate = [&random](double most) {
    return random.Chance(0.5) ? 0.0 : most * random.Unit();
  };
  options.draft_death = rate(0.1);
  options.draft_exchange = rate(0.1);
  options.death_notice = RandomDelay(random, 10'000'000);
  options.reattach = RandomDelay(random, 10'000'000);
  options.repeated_message = rate(0.5);
  options.late_message = rate(0.5);
  options.malformed_message = rate(0.3);
  options.plan_change = rate(0.2);
  if (random.Chance(0.1)) {
    options.draft_hangs_at_ns = random.Between(0, 200'000'000);
  }
  if (random.Chance(0.1)) {
    options.cancelled_at_ns = random.Between(0, 200'000'000);
  }
  return options;
}

std::string Describe(const SimulatorOptions& o) {
  const auto delay = [](LinkDelay d) {
    return absl::StrCat(d.min_ns, "..", d.max_ns);
  };
  return absl::StrCat(
      "seed ", o.seed, ", ", o.num_sessions, " sessions, method ",
      static_cast<int>(o.method), ", policy ", o.policy, ", window ",
      o.window.value_or(0), ", prompt ", o.prompt_length, ", max_tokens ",
      o.max_tokens, ", unacknowledged ", o.max_unacknowledged, ", vocabulary ",
      o.vocabulary, ", alpha ", o.alpha, "\n  target ", o.target_step_ns, " + ",
      o.target_row_ns, " ns, draft ", o.draft_step_ns, " + ", o.draft_row_ns,
      " ns, jitter ", o.step_jitter, ", prefill ", delay(o.target_prefill),
      " and ", delay(o.draft_prefill), "\n  links d>c ",
      delay(o.draft_to_coordinator), ", c>t ", delay(o.coordinator_to_target),
      ", t>c ", delay(o.target_to_coordinator), ", c>d ",
      delay(o.coordinator_to_draft), ", ack ", delay(o.acknowledgement),
      "\n  death ", o.draft_death, ", exchange ", o.draft_exchange,
      ", repeated ", o.repeated_message, ", late ", o.late_message,
      ", malformed ", o.malformed_message, ", plan change ", o.plan_change,
      ", hangs at ", o.draft_hangs_at_ns.value_or(-1), ", cancelled at ",
      o.cancelled_at_ns.value_or(-1));
}

}  // namespace nacre::speculation
