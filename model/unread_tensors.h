// Tensors of a checkpoint that a model of its config has no use for: biases
// that the config does not say, norms of another family. Hugging Face drops
// them with a warning.
//
// Pure functions.

#ifndef MODEL_UNREAD_TENSORS_H_
#define MODEL_UNREAD_TENSORS_H_

#include <string>

#include "model/checkpoint.h"
#include "model/config.h"

namespace nacre::model {

// One line with their number and the first names; empty: there are none. Not
// counted is what old versions of transformers saved beside the weights (masks,
// frequencies of rotary positions), what belongs to a quantized weight, and
// what else checks (a GliDe draft's reading of its target, a tied head).
std::string UnreadTensors(const Checkpoint& checkpoint,
                          const ModelConfig& config);

}  // namespace nacre::model

#endif  // MODEL_UNREAD_TENSORS_H_
