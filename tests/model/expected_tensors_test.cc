#include "model/expected_tensors.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nacre::model {
namespace {

using ::testing::ElementsAre;
using Shape = std::vector<int64_t>;

ModelConfig Config(const std::string& architecture) {
  ModelConfig config;
  config.architecture = architecture;
  config.hidden_size = 8;
  config.intermediate_size = 12;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 3;
  config.num_key_value_heads = 1;
  config.head_dim = 4;
  config.vocab_size = 20;
  config.qkv_bias = architecture == "Qwen2ForCausalLM";
  return config;
}

std::vector<std::string> NamesOf(const ExpectedTensors& tensors) {
  std::vector<std::string> names;
  for (const ExpectedTensor& tensor : tensors) names.push_back(tensor.name);
  return names;
}

TEST(ExpectedTensorsTest, NamesAreThoseOfTheFamily) {
  for (const char* architecture : {"LlamaForCausalLM", "MistralForCausalLM"}) {
    EXPECT_THAT(NamesOf(ExpectedTensors::OfLayer(Config(architecture), 1)),
                ElementsAre("model.layers.1.input_layernorm.weight",
                            "model.layers.1.self_attn.q_proj.weight",
                            "model.layers.1.self_attn.k_proj.weight",
                            "model.layers.1.self_attn.v_proj.weight",
                            "model.layers.1.self_attn.o_proj.weight",
                            "model.layers.1.post_attention_layernorm.weight",
                            "model.layers.1.mlp.gate_proj.weight",
                            "model.layers.1.mlp.up_proj.weight",
                            "model.layers.1.mlp.down_proj.weight"));
  }
  const ModelConfig config = Config("LlamaForCausalLM");
  EXPECT_EQ(LayerPrefix(config, 31), "model.layers.31.");
  EXPECT_THAT(NamesOf(ExpectedTensors::OutsideLayers(config)),
              ElementsAre("model.embed_tokens.weight", "model.norm.weight",
                          "lm_head.weight"));
}

TEST(ExpectedTensorsTest, ShapesAreThoseOfTheConfig) {
  const ModelConfig config = Config("LlamaForCausalLM");
  const auto layer = ExpectedTensors::OfLayer(config, 0);
  EXPECT_EQ(layer[TensorRole::kInputNorm].shape, Shape({8}));
  EXPECT_EQ(layer[TensorRole::kQuery].shape, Shape({12, 8}));
  EXPECT_EQ(layer[TensorRole::kKey].shape, Shape({4, 8}));
  EXPECT_EQ(layer[TensorRole::kValue].shape, Shape({4, 8}));
  EXPECT_EQ(layer[TensorRole::kAttentionOutput].shape, Shape({8, 12}));
  EXPECT_EQ(layer[TensorRole::kGate].shape, Shape({12, 8}));
  EXPECT_EQ(layer[TensorRole::kUp].shape, Shape({12, 8}));
  EXPECT_EQ(layer[TensorRole::kDown].shape, Shape({8, 12}));
  const auto outside = ExpectedTensors::OutsideLayers(config);
  EXPECT_EQ(outside[TensorRole::kEmbedding].shape, Shape({20, 8}));
  EXPECT_EQ(outside[TensorRole::kFinalNorm].shape, Shape({8}));
  EXPECT_EQ(outside[TensorRole::kHead].shape, Shape({20, 8}));
}

TEST(ExpectedTensorsTest, BiasesFollowTheirProducts) {
  const auto layer = ExpectedTensors::OfLayer(Config("Qwen2ForCausalLM"), 0);
  EXPECT_EQ(layer[TensorRole::kQueryBias].name,
            "model.layers.0.self_attn.q_proj.bias");
  EXPECT_EQ(layer[TensorRole::kQueryBias].shape, Shape({12}));
  EXPECT_EQ(layer[TensorRole::kKeyBias].shape, Shape({4}));
  EXPECT_EQ(layer[TensorRole::kValueBias].name,
            "model.layers.0.self_attn.v_proj.bias");
  EXPECT_EQ(NamesOf(layer).size(), 12u);
}

TEST(ExpectedTensorsTest, FusedTensorsStandForTheirParts) {
  const auto layer = ExpectedTensors::OfLayer(Config("Phi3ForCausalLM"), 0);
  EXPECT_EQ(layer[TensorRole::kQueryKeyValue].name,
            "model.layers.0.self_attn.qkv_proj.weight");
  EXPECT_EQ(layer[TensorRole::kQueryKeyValue].shape, Shape({20, 8}));
  EXPECT_EQ(layer[TensorRole::kGateUp].shape, Shape({24, 8}));
  EXPECT_FALSE(layer.Has(TensorRole::kQuery));
  EXPECT_FALSE(layer.Has(TensorRole::kUp));
  EXPECT_EQ(NamesOf(layer).size(), 6u);
}

TEST(ExpectedTensorsTest, LayerNormsHaveBiasesAndBlocksMayHaveNoGate) {
  ModelConfig config = Config("GPTNeoXForCausalLM");
  config.num_key_value_heads = 3;
  config.norms.is_layer_norm = true;
  config.blocks.has_gate = false;
  config.qkv_bias = config.attention_output_bias = config.mlp_bias = true;
  const auto layer = ExpectedTensors::OfLayer(config, 1);
  const std::string prefix = "gpt_neox.layers.1.";
  EXPECT_THAT(NamesOf(layer),
              ElementsAre(prefix + "input_layernorm.weight",
                          prefix + "input_layernorm.bias",
                          prefix + "attention.query_key_value.weight",
                          prefix + "attention.query_key_value.bias",
                          prefix + "attention.dense.weight",
                          prefix + "attention.dense.bias",
                          prefix + "post_attention_layernorm.weight",
                          prefix + "post_attention_layernorm.bias",
                          prefix + "mlp.dense_h_to_4h.weight",
                          prefix + "mlp.dense_h_to_4h.bias",
                          prefix + "mlp.dense_4h_to_h.weight",
                          prefix + "mlp.dense_4h_to_h.bias"));
  EXPECT_EQ(layer[TensorRole::kQueryKeyValueBias].shape, Shape({36}));
  EXPECT_EQ(layer[TensorRole::kUp].shape, Shape({12, 8}));
  EXPECT_EQ(layer[TensorRole::kUpBias].shape, Shape({12}));
  EXPECT_EQ(layer[TensorRole::kMlpNormBias].shape, Shape({8}));
  EXPECT_THAT(
      NamesOf(ExpectedTensors::OutsideLayers(config)),
      ElementsAre("gpt_neox.embed_in.weight",
                  "gpt_neox.final_layer_norm.weight",
                  "gpt_neox.final_layer_norm.bias", "embed_out.weight"));
}

TEST(ExpectedTensorsTest, NormsAreThoseOfTheConfig) {
  ModelConfig config = Config("Gemma3ForCausalLM");
  config.norms.of_heads = config.norms.after_both = true;
  const auto layer = ExpectedTensors::OfLayer(config, 0);
  EXPECT_EQ(layer[TensorRole::kQueryNorm].shape, Shape({4}));
  EXPECT_EQ(layer[TensorRole::kKeyNorm].name,
            "model.layers.0.self_attn.k_norm.weight");
  EXPECT_EQ(layer[TensorRole::kAttentionPostNorm].name,
            "model.layers.0.post_attention_layernorm.weight");
  EXPECT_EQ(layer[TensorRole::kMlpNorm].name,
            "model.layers.0.pre_feedforward_layernorm.weight");
  EXPECT_EQ(layer[TensorRole::kMlpPostNorm].name,
            "model.layers.0.post_feedforward_layernorm.weight");
}

TEST(ExpectedTensorsTest, ExpertsStandForTheFeedForwardBlock) {
  ModelConfig config = Config("MixtralForCausalLM");
  config.experts.count = 3;
  config.experts.size = 5;
  config.experts.dense_layers = {true, false};
  EXPECT_TRUE(ExpectedTensors::OfLayer(config, 0).Has(TensorRole::kUp));
  const auto layer = ExpectedTensors::OfLayer(config, 1);
  EXPECT_FALSE(layer.Has(TensorRole::kUp));
  EXPECT_EQ(layer[TensorRole::kRouter].name,
            "model.layers.1.block_sparse_moe.gate.weight");
  EXPECT_EQ(layer[TensorRole::kRouter].shape, Shape({3, 8}));
  const ExpectedTensor& down = layer.OfExpert(TensorRole::kExpertDown, 2);
  EXPECT_EQ(down.name, "model.layers.1.block_sparse_moe.experts.2.w2.weight");
  EXPECT_EQ(down.shape, Shape({8, 5}));
  EXPECT_DEATH((void)layer.OfExpert(TensorRole::kExpertUp, 3),
               "a tensor that the model does not have");
}

TEST(ExpectedTensorsTest, ATiedHeadIsNoTensor) {
  ModelConfig config = Config("LlamaForCausalLM");
  config.tie_word_embeddings = true;
  const auto outside = ExpectedTensors::OutsideLayers(config);
  EXPECT_EQ(NamesOf(outside).size(), 2u);
  EXPECT_DEATH((void)outside[TensorRole::kHead],
               "a tensor that the model does not have");
}

TEST(ExpectedTensorsTest, AConfigOfNoFamilyIsOurOwnBug) {
  EXPECT_DEATH(ExpectedTensors::OfLayer(Config("MambaForCausalLM"), 0),
               "a config that was not parsed");
}

}  // namespace
}  // namespace nacre::model
