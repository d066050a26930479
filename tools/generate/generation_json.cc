#include "tools/generate/generation_json.h"

#include <utility>

#include "proto/names.h"

namespace nacre::tools {
namespace {

using Json = nlohmann::ordered_json;

template <typename Ids>
Json IdArray(const Ids& ids) {
  Json array = Json::array();
  for (const auto id : ids) array.push_back(id);
  return array;
}

std::string Text(absl::string_view text) { return std::string(text); }

Json LogprobsJson(const v1::Complete& complete) {
  Json array = Json::array();
  for (const v1::TokenLogprobs& token : complete.logprobs()) {
    Json top = Json::array();
    for (int i = 0; i < token.top_ids_size(); ++i) {
      top.push_back(
          {{"token_id", token.top_ids(i)}, {"logprob", token.top_logprobs(i)}});
    }
    array.push_back({{"token_id", token.token_id()},
                     {"logprob", token.logprob()},
                     {"top", std::move(top)}});
  }
  return array;
}

Json SpeculationJson(const v1::SpeculationReport& report) {
  Json json = {
      {"method", Text(MethodName(report.method()))},
      {"window", report.window()},
      {"policy", report.policy()},
      {"verification", Text(VerificationName(report.verification()))},
      {"rounds", report.rounds()},
      {"drafted", report.drafted()},
      {"verified", report.verified()},
      {"accepted", report.accepted()},
      {"acceptance_rate", AcceptanceRate(report)},
      {"mean_accepted_length", MeanAcceptedLength(report)},
      {"degraded_rounds", report.degraded_rounds()},
      {"suffix_proposed", report.suffix_proposed()},
      {"suffix_accepted", report.suffix_accepted()},
      {"acceptance_histogram", IdArray(report.acceptance_histogram())}};
  if (report.ranks_size() > 0) {
    json["ranks"] = IdArray(report.ranks());
    json["prepared"] = report.prepared();
  }
  if (report.per_round_drafted_size() > 0) {
    json["per_round_drafted"] = IdArray(report.per_round_drafted());
    json["per_round_accepted"] = IdArray(report.per_round_accepted());
  }
  return json;
}

Json TimingJson(const v1::Timing& timing, uint32_t completion_tokens) {
  const double total_s = Seconds(timing.total());
  return {
      {"total_s", total_s},
      {"queue_s", Seconds(timing.queue())},
      {"ttft_s", Seconds(timing.time_to_first_token())},
      {"tokens_per_second", Ratio(completion_tokens, total_s)},
      {"draft_busy_s", Seconds(timing.draft_busy())},
      {"draft_wait_s", Seconds(timing.draft_wait())},
      {"target_busy_s", Seconds(timing.target_busy())},
      {"target_wait_s", Seconds(timing.target_wait())},
      {"target_wait_after_miss_s", Seconds(timing.target_wait_after_miss())}};
}

}  // namespace

double Seconds(const google::protobuf::Duration& duration) {
  return static_cast<double>(duration.seconds()) + duration.nanos() * 1e-9;
}

double Ratio(double a, double b) { return b == 0.0 ? 0.0 : a / b; }

double AcceptanceRate(const v1::SpeculationReport& report) {
  return Ratio(static_cast<double>(report.accepted()),
               static_cast<double>(report.verified()));
}

double MeanAcceptedLength(const v1::SpeculationReport& report) {
  return Ratio(static_cast<double>(report.committed()),
               static_cast<double>(report.rounds()));
}

Json GenerationJson(const v1::Complete& complete) {
  Json json = {
      {"text", complete.text()},
      {"token_ids", IdArray(complete.token_ids())},
      {"prompt_token_ids", IdArray(complete.prompt_token_ids())},
      {"finish_reason", Text(FinishReasonName(complete.finish_reason()))},
      {"seed", complete.seed()},
      {"numerics_id", complete.numerics_id()},
      {"usage",
       {{"prompt_tokens", complete.usage().prompt_tokens()},
        {"completion_tokens", complete.usage().completion_tokens()},
        {"cached_tokens", complete.usage().cached_tokens()}}},
      {"speculation", SpeculationJson(complete.speculation())},
      {"timing",
       TimingJson(complete.timing(), complete.usage().completion_tokens())}};
  if (complete.logprobs_size() > 0) json["logprobs"] = LogprobsJson(complete);
  return json;
}

Json ChoicesJson(const std::vector<v1::Complete>& choices) {
  if (choices.size() == 1) return GenerationJson(choices[0]);
  Json array = Json::array();
  for (size_t i = 0; i < choices.size(); ++i) {
    Json choice = {{"index", i}};
    choice.update(GenerationJson(choices[i]));
    array.push_back(std::move(choice));
  }
  return {{"choices", std::move(array)}};
}

std::string JsonText(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace nacre::tools
