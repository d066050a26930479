// Token ids from a peer are checked before they reach a model.
//
// Pure functions.

#ifndef WORKER_ENGINE_TOKEN_IDS_H_
#define WORKER_ENGINE_TOKEN_IDS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/sampling_params.h"

namespace nacre::worker {

// INVALID_ARGUMENT names the first id outside [0, vocab_size) and `field`.
absl::Status CheckTokenIds(absl::string_view field,
                           absl::Span<const int32_t> ids, int vocab_size);

// INVALID_ARGUMENT: the prompt is not the first 1 or more of `token_ids`, or
// CheckTokenIds.
absl::Status CheckPrompt(int prompt_length, absl::Span<const int32_t> token_ids,
                         int vocab_size);

// INVALID_ARGUMENT: a session cannot have so many slots for a tree.
absl::Status CheckNumSlots(int num_slots);

// ValidateSamplingParams, and the ids of logit_bias.
absl::Status CheckSampling(const SamplingParams& params, int vocab_size);

}  // namespace nacre::worker

#endif  // WORKER_ENGINE_TOKEN_IDS_H_
