// What a config.json says of rotary position embedding.
//
// Pure functions.

#ifndef MODEL_CONFIG_ROPE_H_
#define MODEL_CONFIG_ROPE_H_

#include "absl/status/status.h"
#include "common/json_fields.h"
#include "model/config.h"
#include "model/families.h"

namespace nacre::model {

// Reads rope_theta and partial_rotary_factor by the family's names, and
// "rope_scaling" or "rope_parameters" of newer folders, which hold them, too,
// by these. Nothing turns where positions are learned. `config` has its shapes.
// `max_position_embeddings` becomes the context that the scaling makes room
// for, as vLLM counts it: times the factor if linear, original_... times the
// factor for yarn if that is more. "nacre_context_length" says it in place of
// these, as GGUF files do. Errors as of ParseConfig.
absl::Status ParseRope(const Family& family, const Json& json,
                       ModelConfig* config);

}  // namespace nacre::model

#endif  // MODEL_CONFIG_ROPE_H_
