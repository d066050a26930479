// What the config.json of a GliDe draft (config_cross.h) says, held against the
// target that it runs beside. A draft of m layers reads the target's last m,
// each the one of its place.
//
// Pure.

#ifndef MODEL_GLIDE_CONFIG_H_
#define MODEL_GLIDE_CONFIG_H_

#include <vector>

#include "absl/status/statusor.h"
#include "common/json_fields.h"
#include "model/config.h"
#include "model/feature_tap.h"
#include "model/language_model.h"

namespace nacre::model {

struct GlideConfig {
  ModelConfig llama;  // all but its cross attention
  // Of its cross attention only the heads and how their queries turn.
  ModelConfig cross;
  std::vector<FeatureTap> taps;  // of each of its layers
  int max_depth = 0;             // tokens
};

// INVALID_ARGUMENT, with the value and the limit: a field is missing, of the
// wrong type, out of range, or unlike the target's. UNIMPLEMENTED: a variant
// that is not known here.
absl::StatusOr<GlideConfig> ParseGlideConfig(const Json& json,
                                             const ModelInfo& target,
                                             const KeptKv& kv);

}  // namespace nacre::model

#endif  // MODEL_GLIDE_CONFIG_H_
