#include "model/tensor_shard.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/quantization.h"
#include "model/families.h"

namespace nacre::model {
namespace {

absl::Status CheckDivides(const char* what, int value, int ranks) {
  if (value % ranks == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--tensor-parallel ", ranks, ": ", what, " is ", value,
                   ", which ", ranks, " ranks do not share evenly"));
}

// Of the inputs of a sum over all ranks.
absl::Status CheckShards(const char* what, int inputs, int group, int ranks) {
  const int unit = kernels::kInputShards * std::max(group, 1);
  if (inputs % unit == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--tensor-parallel ", ranks, ": ", what, " is ", inputs,
                   ", no multiple of ", unit, ": sums run over ",
                   kernels::kInputShards, " equal shards of their inputs",
                   group > 0 ? absl::StrCat(", each of whole groups of ", group,
                                            " quantized weights")
                             : ""));
}

// What the split does not know: tensors for several products, and what is added
// or capped beside them.
bool IsOfLlamasKind(const ModelConfig& config) {
  const TensorNames& names = FindFamily(config.architecture)->tensors;
  return names.query_key_value == nullptr && names.gate_up == nullptr &&
         config.blocks.has_gate && !config.blocks.is_parallel &&
         config.activation == Activation::kSilu &&
         !config.norms.is_layer_norm && !config.norms.after_both &&
         !config.embedding.has_positions && !config.embedding.is_scaled &&
         config.rope.share == 1 && config.soft_caps.attention == 0 &&
         config.soft_caps.final == 0 && config.experts.count == 0;
}

}  // namespace

bool IsRankCount(int ranks) {
  return ranks == 1 || ranks == 2 || ranks == 4 || ranks == 8;
}

bool HasSplitRows(TensorRole role) {
  switch (role) {
    case TensorRole::kQuery:
    case TensorRole::kQueryBias:
    case TensorRole::kKey:
    case TensorRole::kKeyBias:
    case TensorRole::kValue:
    case TensorRole::kValueBias:
    case TensorRole::kGate:
    case TensorRole::kGateBias:
    case TensorRole::kUp:
    case TensorRole::kUpBias:
      return true;
    default:
      return false;
  }
}

absl::Status CheckSplit(const ModelConfig& config, kernels::WeightType weights,
                        int ranks) {
  if (!IsOfLlamasKind(config)) {
    return absl::UnimplementedError(absl::StrCat(
        "--tensor-parallel runs models of Llama's kind (dense, RMSNorm, SiLU "
        "with a gate, a tensor for each projection), and not this ",
        config.architecture));
  }
  NACRE_RETURN_IF_ERROR(
      CheckDivides("num_attention_heads", config.num_attention_heads, ranks));
  NACRE_RETURN_IF_ERROR(
      CheckDivides("num_key_value_heads", config.num_key_value_heads, ranks));
  NACRE_RETURN_IF_ERROR(
      CheckDivides("intermediate_size", config.intermediate_size, ranks));
  NACRE_RETURN_IF_ERROR(CheckDivides("vocab_size", config.vocab_size, ranks));
  const int group = kernels::QuantizedGroupSize(weights);
  NACRE_RETURN_IF_ERROR(CheckShards("num_attention_heads * head_dim",
                                    config.q_size(), group, ranks));
  return CheckShards("intermediate_size", config.intermediate_size, group,
                     ranks);
}

ModelConfig ConfigOfRank(ModelConfig config, int ranks) {
  config.num_attention_heads /= ranks;
  config.num_key_value_heads /= ranks;
  config.intermediate_size /= ranks;
  return config;
}

}  // namespace nacre::model
