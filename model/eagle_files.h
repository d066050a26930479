// Which tensors of a published file are an EAGLE draft, by their names alone:
// EAGLE-3 (arXiv:2503.01840) as SafeAILab, SpecForge, ModelOpt and
// vLLM-speculators save it, and EAGLE-1, whose weights are EAGLE-2's, too, as
// SafeAILab, HASS (arXiv:2408.15766) and vLLM-speculators save it. The decoder
// layer is "midlayer.", "layers.0." or "transformer.", its projection "fc." or
// "fusion_fc.", and names may begin with "model.".
//
// Pure.

#ifndef MODEL_EAGLE_FILES_H_
#define MODEL_EAGLE_FILES_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace nacre::model {

struct EagleLayout {
  static constexpr int kMaxTaps = 16;

  bool is_third = false;  // EAGLE-3; else EAGLE-1
  int num_fc_norms = 0;   // fc_norm.0.weight and on
  // Names as in the file, by what they are: "fc.weight", "layer.mlp.up_proj.
  // weight" and so on, without prefixes. What every draft of its kind needs is
  // there.
  std::map<std::string, std::string, std::less<>> names;

  bool Has(absl::string_view part) const {
    return names.find(part) != names.end();
  }
};

// `names`: of all tensors of the file. INVALID_ARGUMENT with the name for one
// that is none of an EAGLE draft, is there twice, or is missing.
absl::StatusOr<EagleLayout> FindEagleLayout(
    absl::Span<const std::string> names);

}  // namespace nacre::model

#endif  // MODEL_EAGLE_FILES_H_
