// Which weights rows of prompts are multiplied with otherwise than other rows
// (kernels/prompt_products.h): those of the layers, but for experts. Experts,
// and the head, multiply rows of prompts as they do all others.
//
// Pure functions, but for what they ask of a backend, and under its threads.

#ifndef MODEL_PROMPT_WEIGHTS_H_
#define MODEL_PROMPT_WEIGHTS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "model/config.h"
#include "model/weights.h"

namespace nacre::model {

// Bytes that AddPromptWeights takes of the device.
int64_t PromptWeightBytes(const ModelConfig& config, kernels::Backend* backend);

// Errors of PromptProducts::Add. Nothing where the backend has none.
absl::Status AddPromptWeights(Weights* weights, kernels::Backend* backend);

}  // namespace nacre::model

#endif  // MODEL_PROMPT_WEIGHTS_H_
