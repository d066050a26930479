// Log-probabilities of the model itself, for output: no token depends on them.
//
// Thread-compatible: `scratch` is the only state.

#ifndef MODEL_LOGPROBS_H_
#define MODEL_LOGPROBS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "common/token_logprobs.h"
#include "model/sampling_scratch.h"

namespace nacre::model {

// log softmax of `logits` [vocab_size] at `token_id` and at the `num_top`
// likeliest ids, to 1e-5. NaN counts as -inf; where no logit is finite, or one
// is infinite, every log-probability is -inf. Allocates nothing but the result.
TokenLogprobs ComputeLogprobs(absl::Span<const float> logits, int32_t token_id,
                              int num_top, SamplingScratch* scratch);

}  // namespace nacre::model

#endif  // MODEL_LOGPROBS_H_
