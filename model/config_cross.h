// What the config.json of a GliDe draft (arXiv:2402.02082) says beside a
// Llama's fields of the target that its layers look at:
//
//   large_num_attention_heads   of the target, that cross attention asks for
//   large_head_dim              likewise; absent: large_hidden_size over those
//   large_num_key_value_heads   that the target keeps; absent: as many
//   block_size                  tokens that it was trained to say after the
//                               target's newest keys; absent: 5
//
// Pure.

#ifndef MODEL_CONFIG_CROSS_H_
#define MODEL_CONFIG_CROSS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "common/json_fields.h"
#include "model/config.h"

namespace nacre::model {

inline constexpr int kMaxCrossDepth = 64;

// Whether it is of a GliDe draft: it has one of the target's fields, or the
// published name of their architecture.
bool HasCross(const Json& json);

// Whether a tensor of that name is of cross attention, as no other model has.
bool IsCrossTensor(const std::string& name);

// INVALID_ARGUMENT, with the value and the limit: a field is missing, of the
// wrong type or out of range. UNIMPLEMENTED: use_remap.
absl::StatusOr<CrossOptions> ParseCross(const Json& json);

// As a model's heads: how many ask, and how their queries turn.
ModelConfig CrossHeads(const CrossOptions& cross);

}  // namespace nacre::model

#endif  // MODEL_CONFIG_CROSS_H_
