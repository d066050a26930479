// Configs of families whose norms, blocks and positions are not Llama's.

#include <string>
#include <utility>

#include "common/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/config.h"

namespace nacre::model {
namespace {

using ::testing::HasSubstr;
using json = nlohmann::json;

json MinimalNeox() {
  return {{"architectures", {"GPTNeoXForCausalLM"}},
          {"hidden_size", 64},
          {"intermediate_size", 100},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"vocab_size", 301}};
}

TEST(ConfigBlocksTest, ReadsGptNeox) {
  json config = MinimalNeox();
  config["num_key_value_heads"] = 2;  // of no meaning there
  const auto defaults = ParseConfig(config.dump());
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  EXPECT_TRUE(defaults->norms.is_layer_norm);
  EXPECT_EQ(defaults->norms.epsilon, 1e-5);
  EXPECT_FALSE(defaults->blocks.has_gate);
  EXPECT_TRUE(defaults->blocks.is_parallel);
  EXPECT_EQ(defaults->blocks.qkv_layout, QkvLayout::kByHead);
  EXPECT_TRUE(defaults->qkv_bias && defaults->attention_output_bias &&
              defaults->mlp_bias);
  EXPECT_EQ(defaults->activation, Activation::kGelu);
  EXPECT_EQ(defaults->num_key_value_heads, 4);
  EXPECT_EQ(defaults->rotary_size(), 4);
  EXPECT_EQ(defaults->rope.theta, 10000);
  EXPECT_EQ(defaults->max_position_embeddings, 2048);
  EXPECT_FALSE(defaults->tie_word_embeddings);

  config["layer_norm_eps"] = 1e-3;
  config["use_parallel_residual"] = false;
  config["attention_bias"] = false;
  config["hidden_act"] = "gelu_new";
  config["rotary_pct"] = 1.0;
  config["rotary_emb_base"] = 500;
  const auto set = ParseConfig(config.dump());
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ(set->norms.epsilon, 1e-3);
  EXPECT_FALSE(set->blocks.is_parallel);
  EXPECT_FALSE(set->qkv_bias || set->attention_output_bias);
  EXPECT_TRUE(set->mlp_bias);
  EXPECT_EQ(set->activation, Activation::kGeluTanh);
  EXPECT_EQ(set->rotary_size(), 16);
  EXPECT_EQ(set->rope.theta, 500);

  // As transformers 5 saves it.
  config.erase("rotary_pct");
  config["rope_parameters"] = {{"rope_theta", 700},
                               {"partial_rotary_factor", 0.5}};
  const auto newer = ParseConfig(config.dump());
  ASSERT_TRUE(newer.ok()) << newer.status();
  EXPECT_EQ(newer->rotary_size(), 8);
  EXPECT_EQ(newer->rope.theta, 700);

  // What is cut off, and an odd number.
  const auto share = [&](double of_head, int head_dim) {
    config["head_dim"] = head_dim;
    config["rope_parameters"]["partial_rotary_factor"] = of_head;
    const auto parsed = ParseConfig(config.dump());
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    return std::make_pair(parsed->rotary_size(), parsed->rotary_pairs());
  };
  EXPECT_EQ(share(0.25, 10), std::make_pair(2, 1));
  EXPECT_EQ(share(0.3, 10), std::make_pair(3, 2));
  // In double 0.58 * 50 is less than 29.
  EXPECT_EQ(share(0.58, 50), std::make_pair(28, 14));
  EXPECT_EQ(share(0.06, 20), std::make_pair(1, 1));
}

TEST(ConfigBlocksTest, RefusesWhatGptNeoxDoesNotHave) {
  const std::pair<json, const char*> kBad[] = {
      {{{"hidden_act", "silu"}},
       "hidden_act \"silu\" is not supported; supported: \"gelu\", "
       "\"gelu_new\", \"gelu_fast\", \"gelu_pytorch_tanh\""},
      {{{"hidden_act", 3}}, "hidden_act 3 is not supported"},
      {{{"use_parallel_residual", 1}},
       "use_parallel_residual is 1, expected true or false"},
      {{{"attention_bias", "no"}}, "attention_bias is \"no\""},
      {{{"rotary_pct", 0}}, "rotary_pct is 0, expected a number > 0 and <= 1"},
      {{{"rotary_pct", 0.06}},
       "rotary_pct 0.06 of head_dim 16 makes no dimension turn, expected 1 or "
       "more"},
      {{{"rotary_pct", 0.2},
        {"rope_scaling", {{"type", "yarn"}, {"factor", 2}}}},
       "rope type \"yarn\" turns 3 dimensions of each head, expected an even "
       "number"},
      {{{"rotary_emb_base", -1}}, "rotary_emb_base is -1"},
      {{{"layer_norm_eps", 0}}, "layer_norm_eps is 0"},
      {{{"num_attention_heads", 7}},
       "hidden_size 64 is not a multiple of num_attention_heads 7"},
  };
  for (const auto& [fields, message] : kBad) {
    json config = MinimalNeox();
    config.update(fields);
    EXPECT_THAT(ParseConfig(config.dump()).status().ToString(),
                HasSubstr(message));
  }
}

TEST(ConfigBlocksTest, ReadsStarcoder2) {
  json config = MinimalNeox();
  config["architectures"] = {"Starcoder2ForCausalLM"};
  const auto defaults = ParseConfig(config.dump());
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  EXPECT_TRUE(defaults->norms.is_layer_norm);
  EXPECT_EQ(defaults->norms.epsilon, 1e-5);
  EXPECT_FALSE(defaults->blocks.has_gate || defaults->blocks.is_parallel);
  EXPECT_EQ(defaults->activation, Activation::kGeluTanh);
  EXPECT_EQ(defaults->num_key_value_heads, 2);
  EXPECT_EQ(defaults->rotary_size(), 16);
  EXPECT_TRUE(defaults->qkv_bias && defaults->attention_output_bias &&
              defaults->mlp_bias);
  EXPECT_TRUE(defaults->tie_word_embeddings);
  EXPECT_EQ(defaults->window(0), 0);

  config["norm_epsilon"] = 1e-3;
  config["use_bias"] = false;
  config["sliding_window"] = 100;
  const auto set = ParseConfig(config.dump());
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ(set->norms.epsilon, 1e-3);
  EXPECT_FALSE(set->qkv_bias || set->attention_output_bias || set->mlp_bias);
  EXPECT_EQ(set->window(1), 100);

  config["use_bias"] = 1;
  EXPECT_THAT(ParseConfig(config.dump()).status().ToString(),
              HasSubstr("use_bias is 1, expected true or false"));
}

json MinimalBigCode() {
  return {{"architectures", {"GPTBigCodeForCausalLM"}},
          {"n_embd", 64},
          {"n_layer", 2},
          {"n_head", 4},
          {"vocab_size", 301}};
}

TEST(ConfigBlocksTest, ReadsGptBigCode) {
  json config = MinimalBigCode();
  config["num_key_value_heads"] = 4;  // multi_query says it
  const auto defaults = ParseConfig(config.dump());
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  EXPECT_EQ(defaults->hidden_size, 64);
  EXPECT_EQ(defaults->intermediate_size, 256);
  EXPECT_EQ(defaults->num_hidden_layers, 2);
  EXPECT_EQ(defaults->num_attention_heads, 4);
  EXPECT_EQ(defaults->num_key_value_heads, 1);
  EXPECT_EQ(defaults->blocks.qkv_layout, QkvLayout::kStacked);
  EXPECT_EQ(defaults->max_position_embeddings, 1024);
  EXPECT_TRUE(defaults->embedding.has_positions);
  EXPECT_EQ(defaults->rotary_size(), 0);
  EXPECT_EQ(defaults->attention_scalar, 16);
  EXPECT_TRUE(defaults->norms.is_layer_norm);
  EXPECT_EQ(defaults->norms.epsilon, 1e-5);
  EXPECT_FALSE(defaults->blocks.has_gate || defaults->blocks.is_parallel);
  EXPECT_TRUE(defaults->qkv_bias && defaults->attention_output_bias &&
              defaults->mlp_bias);
  EXPECT_EQ(defaults->activation, Activation::kGeluTanh);
  EXPECT_TRUE(defaults->tie_word_embeddings);

  config["multi_query"] = false;
  config["scale_attn_weights"] = false;
  config["n_inner"] = 100;
  config["n_positions"] = 77;
  config["activation_function"] = "gelu";
  config["layer_norm_epsilon"] = 1e-3;
  const auto set = ParseConfig(config.dump());
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ(set->num_key_value_heads, 4);
  EXPECT_EQ(set->blocks.qkv_layout, QkvLayout::kByHead);
  EXPECT_EQ(set->attention_scalar, 1);
  EXPECT_EQ(set->intermediate_size, 100);
  EXPECT_EQ(set->max_position_embeddings, 77);
  EXPECT_EQ(set->activation, Activation::kGelu);
  EXPECT_EQ(set->norms.epsilon, 1e-3);
}

TEST(ConfigBlocksTest, RefusesWhatGptBigCodeDoesNotHave) {
  const std::pair<json, const char*> kBad[] = {
      {{{"activation_function", "relu"}},
       "activation_function \"relu\" is not supported; supported: \"gelu\""},
      {{{"add_cross_attention", true}},
       "add_cross_attention true is not supported; supported: false"},
      {{{"multi_query", 1}}, "multi_query is 1, expected true or false"},
      {{{"scale_attn_weights", 0}}, "scale_attn_weights is 0"},
      {{{"n_inner", 0}}, "n_inner is 0, expected an integer from 1"},
      {{{"n_positions", 0}}, "n_positions is 0, expected an integer from 1"},
      {{{"n_embd", nullptr}}, "n_embd is missing"},
      {{{"n_head", 5}}, "n_embd 64 is not a multiple of n_head 5"},
      {{{"n_embd", 12}}, "head_dim is 3, expected an even number"},
      {{{"n_embd", 1 << 30}}, "n_embd is 1073741824"},
  };
  for (const auto& [fields, message] : kBad) {
    json config = MinimalBigCode();
    config.update(fields);
    EXPECT_THAT(ParseConfig(config.dump()).status().ToString(),
                HasSubstr(message));
  }
}

}  // namespace
}  // namespace nacre::model
