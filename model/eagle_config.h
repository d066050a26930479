// What the config.json of an EAGLE draft says that its tensors' names do not
// (eagle_files.h). It has shapes, the layers of the target that the draft
// reads, and the variant that it was trained as. Producers number the target's
// layers in two ways and differ in their defaults: both are resolved here.
//
// Pure.

#ifndef MODEL_EAGLE_CONFIG_H_
#define MODEL_EAGLE_CONFIG_H_

#include <vector>

#include "absl/status/statusor.h"
#include "common/json_fields.h"
#include "model/config.h"
#include "model/eagle_files.h"
#include "model/feature_tap.h"
#include "model/language_model.h"

namespace nacre::model {

struct EagleConfig {
  // Of its one layer and its head: a Llama's. vocab_size is the draft's own.
  ModelConfig llama;
  // What it reads of the target, each [hidden_size of the target].
  std::vector<FeatureTap> taps;
  int tap_size = 0;
  bool norm_before_residual = false;  // the residual is normed as well
  bool norm_output = false;           // what is fed back is normed
  bool norm_before_fc = false;        // all taps together, by input_norm
  bool norm_each_tap = false;         // by fc_norm
  bool norm_inputs = false;  // EAGLE-1: embedding and features, before fc
  // Tokens that it was trained to draft without features.
  int max_depth = 0;

  static constexpr int kMaxDepth = 16;
};

// INVALID_ARGUMENT: a field is missing, of the wrong type or out of range, or
// contradicts the tensors or the target, with the value. UNIMPLEMENTED: a
// variant that is not known here.
absl::StatusOr<EagleConfig> ParseEagleConfig(const Json& json,
                                             const EagleLayout& layout,
                                             const ModelInfo& target);

}  // namespace nacre::model

#endif  // MODEL_EAGLE_CONFIG_H_
