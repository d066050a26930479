// What an answer took: OpenAI's `usage` and vLLM's `metrics` from what the
// service counted.
//
// Pure functions.

#ifndef GATEWAY_USAGE_CONVERT_H_
#define GATEWAY_USAGE_CONVERT_H_

#include <vector>

#include "gateway/json_body.h"
#include "proto/inference.pb.h"

namespace nacre::gateway {

// The choices of one prompt.
using Choices = std::vector<v1::Complete>;

// Prompts are counted once each, completions summed over all choices.
// `detailed`: with the draft tokens that were right and those that were not, as
// predicted ones, which change no other count.
OrderedJson UsageOf(const std::vector<Choices>& prompts, bool detailed);
OrderedJson UsageOf(int64_t prompt_tokens, int64_t cached_tokens,
                    int64_t completion_tokens);

// Times in milliseconds: those of the choice that took longest. Under
// `speculative_decoding` sums over the choices, left out where none speculated;
// under `nacre` the report of the first choice that has one. `detailed`: with a
// value for each round.
OrderedJson MetricsOf(const std::vector<Choices>& prompts, bool detailed);

}  // namespace nacre::gateway

#endif  // GATEWAY_USAGE_CONVERT_H_
