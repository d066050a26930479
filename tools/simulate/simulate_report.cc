#include "tools/simulate/simulate_report.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "simulation/closed_law.h"
#include "tools/step_times_json.h"

namespace nacre::tools {
namespace {

using Json = nlohmann::ordered_json;
using simulation::FleetOptions;
using simulation::FleetResult;
using simulation::WorkerTime;
using speculation::Method;

absl::StatusOr<FleetResult> SimulateOne(const SimulatePlan& plan,
                                        const SimulatedMethod& method,
                                        FleetOptions* fleet) {
  *fleet = plan.fleet;
  fleet->method = method.method;
  if (plan.known_alpha && method.method.method != Method::kAr) {
    fleet->fixed_plan = simulation::LawPlan(*fleet);
  }
  FleetResult result = simulation::SimulateFleet(*fleet);
  if (!result.finished) {
    return absl::UnavailableError(absl::StrFormat(
        "%s: all targets died for good when %d of %d requests had ended",
        method.name, result.requests + result.failed_requests,
        int64_t{1} * fleet->streams * fleet->requests));
  }
  return result;
}

std::string Heading(const SimulatePlan& plan) {
  const FleetOptions& fleet = plan.fleet;
  std::string matches = absl::StrFormat("alpha %g", fleet.alpha);
  if (!fleet.recorded.empty()) {
    matches = absl::StrFormat("%d recorded sequences", fleet.recorded.size());
  }
  const std::string coordinators =
      fleet.coordinators == 1
          ? ""
          : absl::StrFormat(", coordinators %d", fleet.coordinators);
  return absl::StrFormat(
      "Virtual time: %s, c %.4g, target step %.4g ms, hops %g to %g us; "
      "streams "
      "%d, requests %d, tokens %d, drafts %d, targets %d%s.\n",
      matches, simulation::CostRatio(fleet),
      static_cast<double>(fleet.target_step.At(1)) * 1e-6,
      1e-3 * static_cast<double>(
                 std::min(fleet.target_hop.min_ns, fleet.draft_hop.min_ns)),
      1e-3 * static_cast<double>(
                 std::max(fleet.target_hop.max_ns, fleet.draft_hop.max_ns)),
      fleet.streams, fleet.requests, fleet.output_tokens, fleet.drafts,
      fleet.targets, coordinators);
}

Json OrNull(const std::optional<double>& value) {
  return value.has_value() ? Json(*value) : Json(nullptr);
}

Json TimeJson(const WorkerTime& time) {
  return {{"busy_s", 1e-9 * static_cast<double>(time.busy_ns)},
          {"wait_s", 1e-9 * static_cast<double>(time.wait_ns)},
          {"no_work_s", 1e-9 * static_cast<double>(time.no_work_ns)},
          {"down_s", 1e-9 * static_cast<double>(time.down_ns)},
          {"wait_share", time.wait_share()}};
}

Json RowJson(const SimulatedRow& row) {
  const FleetResult& result = row.result;
  return {{"name", row.method.name},
          {"method",
           std::string(speculation::MethodName(row.method.method.method))},
          {"window", result.window},
          {"tokens_per_second", result.tokens_per_second()},
          {"speedup", row.speedup},
          {"law_speedup", OrNull(row.law_speedup)},
          {"law_difference", OrNull(row.law_difference)},
          {"acceptance_rate", result.acceptance_rate()},
          {"mean_accepted_length", result.mean_accepted_length()},
          {"hit_rate", OrNull(result.hit_rate())},
          {"ranks", result.stats.ranks},
          {"target", TimeJson(result.target)},
          {"draft", TimeJson(result.draft)},
          {"seconds", 1e-9 * static_cast<double>(result.virtual_ns)},
          {"requests", result.requests},
          {"failed_requests", result.failed_requests},
          {"first_failure", result.first_failure.empty()
                                ? Json(nullptr)
                                : Json(result.first_failure)},
          {"output_tokens", result.output_tokens},
          {"rounds", result.stats.rounds},
          {"drafted", result.stats.drafted},
          {"verified", result.stats.verified},
          {"accepted", result.stats.accepted},
          {"degraded_rounds", result.stats.degraded_rounds},
          {"stale_messages", result.stats.stale_messages},
          {"gate_timeouts", result.gate_timeouts},
          {"lost_drafts", result.lost_drafts},
          {"lost_targets", result.lost_targets},
          {"events", result.events}};
}

}  // namespace

absl::StatusOr<std::vector<SimulatedRow>> Simulate(const SimulatePlan& plan) {
  FleetOptions fleet;
  NACRE_ASSIGN_OR_RETURN(const FleetResult ar,
                         SimulateOne(plan, {"ar", {Method::kAr}}, &fleet));
  std::vector<SimulatedRow> rows;
  for (const SimulatedMethod& method : plan.methods) {
    SimulatedRow row;
    row.method = method;
    NACRE_ASSIGN_OR_RETURN(row.result, SimulateOne(plan, method, &fleet));
    row.speedup = row.result.tokens_per_second() / ar.tokens_per_second();
    if (const auto law = simulation::ClosedLaw(fleet)) {
      row.law_speedup = *law;
      row.law_difference = row.speedup / *law - 1.0;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string SimulatedTable(const SimulatePlan& plan,
                           const std::vector<SimulatedRow>& rows) {
  size_t width = 6;
  for (const SimulatedRow& row : rows) {
    width = std::max(width, row.method.name.size());
  }
  std::string table = absl::StrFormat(
      "%s%-*s  window  tokens/s  speed-up  acceptance  accepted  target    "
      "draft    closed  differ-\n%-*s                    over ar   rate        "
      "length    waiting   waiting  law     ence\n",
      Heading(plan), width, "method", width, "");
  for (const SimulatedRow& row : rows) {
    const FleetResult& result = row.result;
    const bool ar = row.method.method.method == Method::kAr;
    absl::StrAppendFormat(
        &table,
        "%-*s  %6s  %8.1f  %8.2f  %10s  %8.2f  %7.1f%%  %7s  %6s  %7s\n", width,
        row.method.name, ar ? "-" : absl::StrCat(result.window),
        result.tokens_per_second(), row.speedup,
        ar ? "-" : absl::StrFormat("%.1f%%", 100.0 * result.acceptance_rate()),
        result.mean_accepted_length(), 100.0 * result.target.wait_share(),
        ar ? "-" : absl::StrFormat("%.1f%%", 100.0 * result.draft.wait_share()),
        row.law_speedup ? absl::StrFormat("%.2f", *row.law_speedup) : "-",
        row.law_difference
            ? absl::StrFormat("%+.1f%%", 100.0 * *row.law_difference)
            : "-");
  }
  for (const SimulatedRow& row : rows) {
    if (row.result.failed_requests == 0) continue;
    absl::StrAppendFormat(
        &table, "%s: %d requests failed and %d completed; the first: %s.\n",
        row.method.name, row.result.failed_requests, row.result.requests,
        row.result.first_failure);
  }
  return table;
}

Json SimulatedJson(const SimulatePlan& plan,
                   const std::vector<SimulatedRow>& rows) {
  const FleetOptions& fleet = plan.fleet;
  Json methods = Json::array();
  for (const SimulatedRow& row : rows) methods.push_back(RowJson(row));
  return {{"alpha", fleet.recorded.empty() ? Json(fleet.alpha) : Json(nullptr)},
          {"recorded_sequences", fleet.recorded.size()},
          {"known_alpha", plan.known_alpha},
          {"cost_ratio", simulation::CostRatio(fleet)},
          {"target_step", StepsJson(fleet.target_step)},
          {"draft_step", StepsJson(fleet.draft_step)},
          {"draft_rows", fleet.draft_rows},
          {"tree_rows", fleet.tree_rows},
          {"target_hop_us",
           {1e-3 * static_cast<double>(fleet.target_hop.min_ns),
            1e-3 * static_cast<double>(fleet.target_hop.max_ns)}},
          {"draft_hop_us",
           {1e-3 * static_cast<double>(fleet.draft_hop.min_ns),
            1e-3 * static_cast<double>(fleet.draft_hop.max_ns)}},
          {"streams", fleet.streams},
          {"drafts", fleet.drafts},
          {"targets", fleet.targets},
          {"coordinators", fleet.coordinators},
          {"requests_per_stream", fleet.requests},
          {"prompt_tokens", fleet.prompt_tokens},
          {"tokens", fleet.output_tokens},
          {"seed", fleet.seed},
          {"methods", methods}};
}

}  // namespace nacre::tools
