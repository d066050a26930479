#include "model/prompt_weights.h"

#include "common/status_macros.h"
#include "kernels/prompt_products.h"

namespace nacre::model {

int64_t PromptWeightBytes(const ModelConfig& config,
                          kernels::Backend* backend) {
  const kernels::PromptProducts* const products = backend->prompt_products();
  if (products == nullptr) return 0;
  const int hidden = config.hidden_size;
  const int inter = config.intermediate_size;
  int64_t bytes = 0;
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    bytes +=
        products->AddedBytes(config.q_size() + 2 * config.kv_size(), hidden) +
        products->AddedBytes(hidden, config.q_size());
    if (config.has_experts(layer)) continue;
    bytes += products->AddedBytes(config.blocks.has_gate ? 2 * inter : inter,
                                  hidden) +
             products->AddedBytes(hidden, inter);
  }
  return bytes;
}

absl::Status AddPromptWeights(Weights* weights, kernels::Backend* backend) {
  kernels::PromptProducts* const products = backend->prompt_products();
  if (products == nullptr) return absl::OkStatus();
  for (LayerWeights& layer : weights->layers) {
    for (kernels::PackedMatrix* const matrix :
         {layer.qkv.get(), layer.o.get(), layer.gate_up.get(),
          layer.down.get()}) {
      if (matrix == nullptr) continue;
      NACRE_RETURN_IF_ERROR(products->Add(matrix));
    }
  }
  return absl::OkStatus();
}

}  // namespace nacre::model
