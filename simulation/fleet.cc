#include "simulation/fleet.h"

#include "common/check.h"
#include "simulation/fleet_world.h"

namespace nacre::simulation {
namespace {

double Ratio(double a, double b) { return b == 0.0 ? 0.0 : a / b; }

void Check(const FleetOptions& options) {
  NACRE_CHECK(options.streams >= 1 && options.targets >= 1 &&
                  options.drafts >= 0 && options.requests >= 1,
              "a fleet needs a stream, a request and a target");
  NACRE_CHECK(options.coordinators >= 1, "a fleet needs a coordinator");
  NACRE_CHECK(options.prompt_tokens >= 1 && options.output_tokens >= 1 &&
                  options.budget.max_rows >= 1 &&
                  options.budget.prefill_chunk >= 1,
              "requests need a prompt token and an output token");
  NACRE_CHECK(options.alpha >= 0.0 && options.alpha <= 1.0, "alpha in [0, 1]");
  for (const ReplayedRequest& request : options.replay) {
    NACRE_CHECK(request.prompt_tokens >= 1 && request.output_tokens >= 1 &&
                    request.matches != nullptr && !request.matches->empty(),
                "a replayed request needs a prompt token, an output token and "
                "matches");
  }
  NACRE_CHECK(options.draft_rows >= 1 &&
                  options.draft_rows <= speculation::kMaxDraftRows &&
                  options.tree_rows >= 0 &&
                  options.tree_rows <= speculation::kMaxWindow,
              "rows as the coordinator's flags have them");
  NACRE_CHECK(options.method.ablation == speculation::Ablation::kNone ||
                  options.method.method == speculation::Method::kPearl,
              "only pearl can be ablated");
}

}  // namespace

double WorkerTime::wait_share() const {
  return Ratio(static_cast<double>(wait_ns),
               static_cast<double>(busy_ns + wait_ns));
}

WorkerTime& WorkerTime::operator+=(const WorkerTime& other) {
  busy_ns += other.busy_ns;
  wait_ns += other.wait_ns;
  no_work_ns += other.no_work_ns;
  down_ns += other.down_ns;
  return *this;
}

double FleetResult::tokens_per_second() const {
  return 1e9 * Ratio(static_cast<double>(output_tokens),
                     static_cast<double>(virtual_ns));
}

double FleetResult::mean_accepted_length() const {
  return Ratio(static_cast<double>(stats.committed),
               static_cast<double>(stats.rounds));
}

double FleetResult::acceptance_rate() const {
  return Ratio(static_cast<double>(stats.accepted),
               static_cast<double>(stats.verified));
}

std::optional<double> FleetResult::hit_rate() const {
  int64_t mismatches = 0;
  for (size_t rank = 1; rank < stats.ranks.size(); ++rank) {
    mismatches += stats.ranks[rank];
  }
  if (mismatches == 0) return std::nullopt;
  return Ratio(static_cast<double>(stats.prepared),
               static_cast<double>(mismatches));
}

FleetResult SimulateFleet(const FleetOptions& options) {
  Check(options);
  return FleetWorld(options).Run();
}

}  // namespace nacre::simulation
