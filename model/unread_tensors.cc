#include "model/unread_tensors.h"

#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "model/config_cross.h"
#include "model/expected_tensors.h"

namespace nacre::model {
namespace {

constexpr size_t kShownNames = 3;

// Buffers of old versions of transformers, and of GPT-2's and NeoX's own code,
// and scales that a KV cache in FP8 would have elsewhere.
bool IsBuffer(const Checkpoint& checkpoint, absl::string_view name) {
  for (const absl::string_view end :
       {".rotary_emb.inv_freq", ".rotary_emb.cos_cached",
        ".rotary_emb.sin_cached", ".attn.masked_bias", ".attention.masked_bias",
        ".self_attn.k_scale", ".self_attn.v_scale"}) {
    if (absl::EndsWith(name, end)) return true;
  }
  if (!absl::EndsWith(name, ".attn.bias") &&
      !absl::EndsWith(name, ".attention.bias")) {
    return false;
  }
  // A mask, not a vector that is added.
  const auto tensor = checkpoint.FindRaw(name);
  return tensor.ok() && tensor->shape.size() != 1;
}

// All but what follows the last dot.
absl::string_view Module(absl::string_view name) {
  return name.substr(0, name.rfind('.'));
}

}  // namespace

std::string UnreadTensors(const Checkpoint& checkpoint,
                          const ModelConfig& config) {
  absl::flat_hash_set<std::string> known;
  absl::flat_hash_set<std::string> products;  // which may be quantized
  const auto add = [&](const ExpectedTensors& tensors) {
    for (const ExpectedTensor& tensor : tensors) {
      known.insert(tensor.name);
      if (tensor.shape.size() == 2) {
        products.insert(std::string(Module(tensor.name)));
      }
    }
  };
  add(ExpectedTensors::OutsideLayers(config));
  known.insert(ExpectedTensors::UntiedHead(config).name);
  for (int i = 0; i < config.num_hidden_layers; ++i) {
    add(ExpectedTensors::OfLayer(config, i));
  }
  const bool is_quantized = checkpoint.quantization().has_value();
  std::vector<std::string> unread;
  for (const std::string& name : checkpoint.Names()) {
    if (known.contains(name) || IsBuffer(checkpoint, name) ||
        (is_quantized && products.contains(Module(name))) ||
        (config.cross.has_value() && IsCrossTensor(name))) {
      continue;
    }
    unread.push_back(name);
  }
  if (unread.empty()) return "";
  const size_t count = unread.size();
  if (count > kShownNames) unread.resize(kShownNames);
  return absl::StrCat(count, count == 1 ? " tensor" : " tensors",
                      " of the checkpoint that the config has no use for: ",
                      absl::StrJoin(unread, ", "),
                      count > kShownNames ? ", ..." : "");
}

}  // namespace nacre::model
