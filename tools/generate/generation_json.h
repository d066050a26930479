// The object that `nacre generate --json` prints.

#ifndef TOOLS_GENERATE_GENERATION_JSON_H_
#define TOOLS_GENERATE_GENERATION_JSON_H_

#include <string>
#include <vector>

#include "common/json.h"
#include "proto/inference.pb.h"

namespace nacre::tools {

// text, token_ids, prompt_token_ids, finish_reason, seed, usage{},
// speculation{}, timing{} with times in seconds. tokens_per_second counts from
// the arrival of the request, prefill included.
nlohmann::ordered_json GenerationJson(const v1::Complete& complete);

// Of one choice that object; of several {"choices": [...]}, each the object
// with its `index` in front.
nlohmann::ordered_json ChoicesJson(const std::vector<v1::Complete>& choices);

// `json` as text; bytes that are not UTF-8 become U+FFFD.
std::string JsonText(const nlohmann::ordered_json& json, int indent);

double Seconds(const google::protobuf::Duration& duration);

// a / b; 0 where b is 0.
double Ratio(double a, double b);

// accepted / verified, 0 where nothing was verified.
double AcceptanceRate(const v1::SpeculationReport& report);

// committed / target steps, the target's own token included.
double MeanAcceptedLength(const v1::SpeculationReport& report);

}  // namespace nacre::tools

#endif  // TOOLS_GENERATE_GENERATION_JSON_H_
