// Log-probabilities of the model itself, for output: no token depends on them.
//
// Pure function.

#ifndef MODEL_LOGPROBS_H_
#define MODEL_LOGPROBS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "common/token_logprobs.h"

namespace nacre::model {

// log softmax of `logits` [vocab_size] at `token_id` and at the `num_top`
// likeliest ids. NaN counts as -inf; where no logit is finite every
// log-probability is -inf.
TokenLogprobs ComputeLogprobs(absl::Span<const float> logits, int32_t token_id,
                              int num_top);

}  // namespace nacre::model

#endif  // MODEL_LOGPROBS_H_
