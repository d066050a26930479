#include "model/glide_weights.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "model/draft_files.h"
#include "model/draft_tensors.h"
#include "model/expected_tensors.h"

namespace nacre::model {
namespace {

std::string CrossName(const ModelConfig& config, int layer, const char* what) {
  return absl::StrCat(LayerPrefix(config, layer), "cross_attn.", what,
                      "_proj.weight");
}

// Such as a bias, without which the draft would talk nonsense.
absl::Status CheckAllCrossKnown(const Checkpoint& checkpoint,
                                const DraftTensors::Names& known) {
  for (const std::string& name : checkpoint.Names()) {
    if (!absl::StrContains(name, "cross_attn.") ||
        known.find(name) != known.end() ||
        absl::EndsWith(name, ".rotary_emb.inv_freq")) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor ", ShownTensorName(name), " is none of a GliDe draft of ",
        known.size() / 2, " layers"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CrossLayers> LoadCrossLayers(const Checkpoint& checkpoint,
                                            const ModelConfig& config,
                                            const ModelConfig& cross,
                                            kernels::Backend* backend) {
  DraftTensors::Names names;
  for (int i = 0; i < config.num_hidden_layers; ++i) {
    for (const char* what : {"q", "o"}) {
      const std::string name = CrossName(config, i, what);
      names.emplace(name, name);
    }
  }
  NACRE_RETURN_IF_ERROR(CheckAllCrossKnown(checkpoint, names));
  DraftTensors tensors(checkpoint, names, backend);
  const int hidden = config.hidden_size;
  const int size = cross.q_size();
  CrossLayers loaded;
  for (int i = 0; i < config.num_hidden_layers; ++i) {
    CrossWeights& layer = loaded.layers.emplace_back();
    const std::string q = CrossName(config, i, "q");
    const std::string o = CrossName(config, i, "o");
    NACRE_ASSIGN_OR_RETURN(layer.q,
                           tensors.Packed({{q.c_str(), size}}, hidden));
    NACRE_ASSIGN_OR_RETURN(layer.o,
                           tensors.Packed({{o.c_str(), hidden}}, size));
  }
  loaded.num_parameters = tensors.num_parameters();
  loaded.size_bytes = tensors.size_bytes();
  return loaded;
}

absl::StatusOr<GlideWeights> LoadGlideWeights(const Checkpoint& checkpoint,
                                              const GlideConfig& config,
                                              kernels::Backend* backend) {
  GlideWeights weights;
  NACRE_ASSIGN_OR_RETURN(
      weights.llama,
      LoadWeights(checkpoint, config.llama, backend, ProgressCallback()));
  NACRE_ASSIGN_OR_RETURN(
      CrossLayers cross,
      LoadCrossLayers(checkpoint, config.llama, config.cross, backend));
  weights.cross = std::move(cross.layers);
  weights.num_parameters = weights.llama.num_parameters + cross.num_parameters;
  weights.size_bytes = weights.llama.size_bytes + cross.size_bytes;
  return weights;
}

}  // namespace nacre::model
