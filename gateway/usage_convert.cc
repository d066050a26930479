#include "gateway/usage_convert.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "proto/names.h"

namespace nacre::gateway {
namespace {

double Milliseconds(const google::protobuf::Duration& duration) {
  return static_cast<double>(duration.seconds()) * 1e3 +
         static_cast<double>(duration.nanos()) * 1e-6;
}

std::vector<const v1::Complete*> AllOf(const std::vector<Choices>& prompts) {
  std::vector<const v1::Complete*> all;
  for (const Choices& choices : prompts) {
    for (const v1::Complete& choice : choices) all.push_back(&choice);
  }
  return all;
}

// aiperf drops a record whose numbers do not fit together: the histogram is the
// source of all that can be had from it.
OrderedJson SpeculationOf(const std::vector<const v1::Complete*>& choices,
                          bool detailed) {
  std::vector<int64_t> histogram;
  int64_t drafted = 0;
  int64_t window = 0;
  OrderedJson accepted_rounds = OrderedJson::array();
  OrderedJson drafted_rounds = OrderedJson::array();
  for (const v1::Complete* choice : choices) {
    const v1::SpeculationReport& report = choice->speculation();
    if (report.method() == v1::METHOD_AR) continue;
    const auto size = static_cast<size_t>(report.acceptance_histogram_size());
    if (histogram.size() < size) histogram.resize(size);
    for (size_t i = 0; i < size; ++i) {
      histogram[i] += static_cast<int64_t>(
          report.acceptance_histogram(static_cast<int>(i)));
    }
    drafted += static_cast<int64_t>(report.verified());
    window = std::max<int64_t>(window, report.window());
    for (int i = 0; i < report.per_round_accepted_size(); ++i) {
      const uint32_t accepted = report.per_round_accepted(i);
      accepted_rounds.push_back(accepted);
      drafted_rounds.push_back(std::max(report.per_round_drafted(i), accepted));
    }
  }
  if (histogram.empty()) return nullptr;
  // One that accepted all of its rows may have accepted one more.
  histogram.resize(std::max(histogram.size(), static_cast<size_t>(window) + 1));
  int64_t steps = 0;
  int64_t accepted = 0;
  for (size_t i = 0; i < histogram.size(); ++i) {
    steps += histogram[i];
    accepted += static_cast<int64_t>(i) * histogram[i];
  }
  drafted = std::max(drafted, accepted);
  const auto ratio = [](int64_t of, int64_t all) {
    return all == 0 ? 0.0 : static_cast<double>(of) / static_cast<double>(all);
  };
  OrderedJson json = {{"mean_acceptance_length", 1.0 + ratio(accepted, steps)},
                      {"draft_acceptance_rate", ratio(accepted, drafted)},
                      {"acceptance_histogram", histogram},
                      {"num_spec_steps", steps},
                      {"num_accepted_draft_tokens", accepted},
                      {"num_draft_tokens", drafted},
                      {"num_spec_tokens", histogram.size() - 1}};
  if (detailed) {
    json["per_step_accepted"] = std::move(accepted_rounds);
    json["per_step_drafted"] = std::move(drafted_rounds);
  }
  return json;
}

OrderedJson ReportOf(const v1::Complete& choice, bool detailed) {
  const v1::SpeculationReport& report = choice.speculation();
  const v1::Timing& timing = choice.timing();
  OrderedJson json = {{"method", std::string(MethodName(report.method()))},
                      {"window", report.window()},
                      {"policy", report.policy()},
                      {"rounds", report.rounds()},
                      {"committed", report.committed()},
                      {"degraded_rounds", report.degraded_rounds()},
                      {"suffix_proposed", report.suffix_proposed()},
                      {"suffix_accepted", report.suffix_accepted()},
                      // 64 bits, which a number of JavaScript does not hold.
                      {"seed", absl::StrCat(choice.seed())},
                      {"numerics_id", choice.numerics_id()},
                      {"draft_wait_ms", Milliseconds(timing.draft_wait())},
                      {"target_wait_ms", Milliseconds(timing.target_wait())},
                      {"target_wait_after_miss_ms",
                       Milliseconds(timing.target_wait_after_miss())}};
  if (detailed) {
    json["ranks"] = OrderedJson::array();
    for (const uint64_t count : report.ranks()) json["ranks"].push_back(count);
    json["prepared"] = report.prepared();
  }
  return json;
}

}  // namespace

OrderedJson UsageOf(int64_t prompt_tokens, int64_t cached_tokens,
                    int64_t completion_tokens) {
  return {{"prompt_tokens", prompt_tokens},
          {"completion_tokens", completion_tokens},
          {"total_tokens", prompt_tokens + completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", 0}}}};
}

OrderedJson UsageOf(const std::vector<Choices>& prompts, bool detailed) {
  int64_t prompt = 0;
  int64_t cached = 0;
  int64_t completion = 0;
  for (const Choices& choices : prompts) {
    if (choices.empty()) continue;
    prompt += choices.front().usage().prompt_tokens();
    cached += choices.front().usage().cached_tokens();
    for (const v1::Complete& choice : choices) {
      completion += choice.usage().completion_tokens();
    }
  }
  OrderedJson usage = UsageOf(prompt, cached, completion);
  if (!detailed) return usage;
  const OrderedJson speculation =
      SpeculationOf(AllOf(prompts), /*detailed=*/false);
  const auto count = [&](const char* name) -> int64_t {
    return speculation.is_null() ? 0 : speculation[name].get<int64_t>();
  };
  const int64_t accepted = count("num_accepted_draft_tokens");
  OrderedJson& details = usage["completion_tokens_details"];
  details["accepted_prediction_tokens"] = accepted;
  details["rejected_prediction_tokens"] = count("num_draft_tokens") - accepted;
  return usage;
}

OrderedJson MetricsOf(const std::vector<Choices>& prompts, bool detailed) {
  const std::vector<const v1::Complete*> all = AllOf(prompts);
  if (all.empty()) return nullptr;
  const v1::Complete& slowest = **std::max_element(
      all.begin(), all.end(), [](const auto* a, const auto* b) {
        return Milliseconds(a->timing().total()) <
               Milliseconds(b->timing().total());
      });
  const double first = Milliseconds(slowest.timing().time_to_first_token());
  const double generation = Milliseconds(slowest.timing().total()) - first;
  const double tokens = slowest.usage().completion_tokens();
  OrderedJson json = {
      {"time_to_first_token_ms", first},
      {"generation_time_ms", generation},
      {"queue_time_ms", Milliseconds(slowest.timing().queue())},
      {"mean_itl_ms", tokens > 1 ? generation / (tokens - 1) : 0.0},
      {"tokens_per_second",
       first + generation > 0 ? tokens * 1e3 / (first + generation) : 0.0}};
  OrderedJson speculation = SpeculationOf(all, detailed);
  if (!speculation.is_null()) {
    json["speculative_decoding"] = std::move(speculation);
  }
  // A choice that had ended before a resume has no report.
  const auto ran =
      std::find_if(all.begin(), all.end(), [](const v1::Complete* choice) {
        return !choice->numerics_id().empty();
      });
  json["nacre"] = ReportOf(ran == all.end() ? *all.front() : **ran, detailed);
  return json;
}

}  // namespace nacre::gateway
