#include "model/config.h"

#include <filesystem>
#include <string>

#include "common/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/model/minimal_config.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Parses MinimalConfig() with `field` replaced; null removes it.
absl::StatusOr<ModelConfig> ParseWith(const char* field, const json& value) {
  json config = MinimalConfig();
  config[field] = value;
  return ParseConfig(config.dump());
}

TEST(ConfigTest, FillsHuggingFaceDefaults) {
  const auto config = ParseConfig(MinimalConfig().dump());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->num_key_value_heads, 6);
  EXPECT_EQ(config->rope.theta, 10000.0);
  EXPECT_EQ(config->norms.epsilon, 1e-6);
  EXPECT_EQ(config->max_position_embeddings, 2048);
  EXPECT_FALSE(config->tie_word_embeddings);
  EXPECT_EQ(config->rope.scaling.type, RopeScaling::Type::kDefault);
  EXPECT_THAT(config->eos_token_ids, IsEmpty());
}

// A value of so many levels takes the stack of whoever writes it.
TEST(ConfigTest, RefusesWhatIsDeep) {
  const std::string deep =
      std::string(200'000, '[') + std::string(200'000, ']');
  const std::string start = MinimalConfig().dump();
  for (const std::string& field :
       {R"("hidden_act":)" + deep,
        R"("rope_scaling":{"rope_type":)" + deep + "}",
        R"("quantization_config":{"quant_method":)" + deep + "}",
        R"("anything":)" + deep}) {
    EXPECT_EQ(ParseConfig(start.substr(0, start.size() - 1) + "," + field + "}")
                  .status(),
              absl::InvalidArgumentError("JSON is nested deeper than 64"));
  }
  ModelConfig config;
  EXPECT_EQ(ApplyGenerationConfig(R"({"eos_token_id":)" + deep + "}", &config),
            absl::InvalidArgumentError("JSON is nested deeper than 64"));
}

TEST(ConfigTest, ReadsTheBundledModels) {
  const auto config = ReadConfig(std::string(NACRE_MODELS) + "/target");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->hidden_size, 256);
  EXPECT_EQ(config->intermediate_size, 688);
  EXPECT_EQ(config->num_hidden_layers, 6);
  EXPECT_EQ(config->num_key_value_heads, 2);
  EXPECT_TRUE(config->tie_word_embeddings);
  EXPECT_THAT(config->eos_token_ids, ElementsAre(2));
}

// Of both forms one is meant, and it is not known which.
TEST(ConfigTest, RefusesTwoRopeScalingsThatDiffer) {
  json config = MinimalConfig();
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 5e5}};
  config["rope_scaling"] = {{"type", "yarn"}, {"factor", 4}};
  EXPECT_THAT(ParseConfig(config.dump()).status().ToString(),
              HasSubstr("rope_scaling and rope_parameters differ"));
  config["rope_scaling"] = config["rope_parameters"];
  const auto same = ParseConfig(config.dump());
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(same->rope.theta, 5e5);
}

TEST(ConfigTest, RopeParametersOfFullAttentionAreThoseOfAllLayers) {
  const json yarn = {{"rope_type", "yarn"},
                     {"factor", 4},
                     {"rope_theta", 5e5},
                     {"original_max_position_embeddings", 512}};
  const auto nested = ParseWith("rope_parameters", {{"full_attention", yarn}});
  const auto flat = ParseWith("rope_parameters", yarn);
  ASSERT_TRUE(nested.ok()) << nested.status();
  ASSERT_TRUE(flat.ok()) << flat.status();
  EXPECT_EQ(nested->rope.scaling.type, RopeScaling::Type::kYarn);
  EXPECT_EQ(nested->rope.theta, flat->rope.theta);
  EXPECT_EQ(nested->rope.scaling.magnitude, flat->rope.scaling.magnitude);
}

// config.json's own goes before that of the scaling, as in Hugging Face.
TEST(ConfigTest, TheOriginalContextMayStandOutside) {
  for (const char* type : {"llama3", "yarn"}) {
    json config = MinimalConfig();
    config["original_max_position_embeddings"] = 512;
    config["rope_scaling"] = {{"rope_type", type},
                              {"factor", 4},
                              {"original_max_position_embeddings", 256}};
    const auto parsed = ParseConfig(config.dump());
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->rope.scaling.original_max_position_embeddings, 512);
  }
}

TEST(ConfigTest, ReadsRopeScalingInItsOldAndNewForms) {
  const auto llama3 =
      ParseWith("rope_scaling", {{"rope_type", "llama3"},
                                 {"factor", 8.0},
                                 {"low_freq_factor", 1.0},
                                 {"high_freq_factor", 4.0},
                                 {"original_max_position_embeddings", 8192}});
  ASSERT_TRUE(llama3.ok()) << llama3.status();
  EXPECT_EQ(llama3->rope.scaling.type, RopeScaling::Type::kLlama3);
  EXPECT_EQ(llama3->rope.scaling.factor, 8.0);

  const auto linear =
      ParseWith("rope_scaling", {{"type", "linear"}, {"factor", 2}});
  ASSERT_TRUE(linear.ok()) << linear.status();
  EXPECT_EQ(linear->rope.scaling.type, RopeScaling::Type::kLinear);

  const auto parameters = ParseWith(
      "rope_parameters", {{"rope_type", "default"}, {"rope_theta", 5e5}});
  ASSERT_TRUE(parameters.ok()) << parameters.status();
  EXPECT_EQ(parameters->rope.theta, 5e5);
}

TEST(ConfigTest, EosIsANumberOrAListAndGenerationConfigReplacesIt) {
  auto config = ParseWith("eos_token_id", json::array({7, 300}));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->eos_token_ids, ElementsAre(7, 300));
  ASSERT_TRUE(ApplyGenerationConfig(R"({"max_length": 9})", &*config).ok());
  EXPECT_THAT(config->eos_token_ids, ElementsAre(7, 300));
  ASSERT_TRUE(ApplyGenerationConfig(R"({"eos_token_id": 4})", &*config).ok());
  EXPECT_THAT(config->eos_token_ids, ElementsAre(4));
  EXPECT_THAT(
      ApplyGenerationConfig(R"({"eos_token_id": 301})", &*config).ToString(),
      HasSubstr("eos_token_id is 301"));
}

struct BadField {
  const char* field;
  json value;
  absl::StatusCode code;
  const char* message;
};

TEST(ConfigTest, NamesTheFieldTheValueAndTheLimit) {
  const auto kInvalid = absl::StatusCode::kInvalidArgument;
  const auto kUnsupported = absl::StatusCode::kUnimplemented;
  const BadField cases[] = {
      {"hidden_size", nullptr, kInvalid, "hidden_size is missing"},
      {"hidden_size", 0, kInvalid, "hidden_size is 0, expected an integer"},
      {"hidden_size", -96, kInvalid, "hidden_size is -96"},
      {"hidden_size", "96", kInvalid, "hidden_size is \"96\""},
      {"hidden_size", 96.5, kInvalid, "hidden_size is 96.5"},
      {"hidden_size", 95, kInvalid, "not a multiple"},
      {"intermediate_size", 1u << 31, kInvalid, "2147483648"},
      {"num_hidden_layers", 1ull << 63, kInvalid, "9223372036854775808"},
      {"num_hidden_layers", json::parse("1e300"), kInvalid, "1e+300"},
      {"num_attention_heads", 0, kInvalid, "num_attention_heads is 0"},
      {"num_key_value_heads", 4, kInvalid, "multiple of num_key_value_heads 4"},
      {"head_dim", 15, kInvalid, "head_dim is 15, expected an even number"},
      {"head_dim", 514, kInvalid, "head_dim is 514, expected an integer"},
      {"head_dim", 1024, kInvalid, "1 to 512"},
      {"vocab_size", false, kInvalid, "vocab_size is false"},
      {"max_position_embeddings", 0, kInvalid, "max_position_embeddings is 0"},
      {"rms_norm_eps", 0, kInvalid, "rms_norm_eps is 0"},
      {"rms_norm_eps", "x", kInvalid, "rms_norm_eps is \"x\""},
      {"rope_theta", -1.0, kInvalid, "rope_theta is -1.0"},
      {"tie_word_embeddings", 1, kInvalid, "tie_word_embeddings is 1"},
      {"eos_token_id", 301, kInvalid, "eos_token_id is 301"},
      {"eos_token_id", -1, kInvalid, "eos_token_id is -1"},
      {"eos_token_id", json::array({1, "a"}), kInvalid, "\"a\""},
      {"rope_scaling", 3, kInvalid, "rope_scaling is 3"},
      {"rope_scaling", {{"type", "linear"}}, kInvalid, "no factor"},
      {"rope_scaling",
       {{"type", "linear"}, {"factor", 0}},
       kInvalid,
       "factor is 0"},
      {"rope_scaling",
       {{"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 4}},
       kInvalid,
       "must be greater than low_freq_factor"},
      {"rope_scaling",
       {{"rope_type", "proportional"}, {"factor", 8}},
       kUnsupported,
       "rope type \"proportional\" is not supported; supported: \"default\""},
      {"rope_scaling", {{"type", "yarn"}}, kInvalid, "no factor"},
      {"rope_scaling",
       {{"type", "llama3"}, {"factor", 8}},
       kInvalid,
       "original_max_position_embeddings is missing"},
      {"rope_parameters",
       {{"full_attention", {{"rope_type", "default"}}},
        {"sliding_attention", {{"rope_theta", 7}}}},
       kUnsupported,
       "rope_parameters whose full_attention and sliding_attention differ is "
       "not supported for LlamaForCausalLM"},
      {"rope_parameters",
       {{"sliding_attention", {{"rope_theta", 7}}}},
       kInvalid,
       "rope_parameters has no full_attention"},
      {"rope_parameters",
       {{"full_attention", 3}},
       kInvalid,
       "full_attention is 3, expected an object"},
      {"rope_scaling",
       {{"type", "yarn"}, {"factor", 4}, {"beta_fast", -2}},
       kInvalid,
       "beta_fast is -2"},
      {"rope_scaling",
       {{"type", "yarn"}, {"factor", 4}, {"truncate", 1}},
       kInvalid,
       "truncate is 1"},
      {"rope_scaling",
       {{"type", "longrope"}},
       kInvalid,
       "original_max_position_embeddings is missing"},
      {"rope_scaling",
       {{"type", "longrope"},
        {"original_max_position_embeddings", 32},
        {"short_factor", {1, 2, 3, 4, 5, 6, 7, 8}},
        {"long_factor", {1, 2, 3}}},
       kInvalid,
       "long_factor is [1,2,3], expected a list of 8 numbers"},
      {"rope_scaling",
       {{"type", "longrope"},
        {"original_max_position_embeddings", 32},
        {"short_factor", {1, 2, 3, 4, 5, 6, 0, 8}}},
       kInvalid,
       "short_factor is [1,2,3,4,5,6,0,8]"},
      {"partial_rotary_factor", 1.5, kInvalid, "partial_rotary_factor is 1.5"},
      {"architectures", nullptr, kInvalid, "architectures is missing"},
      {"architectures", "LlamaForCausalLM", kInvalid, "architectures"},
      {"architectures",
       {"MambaForCausalLM"},
       kUnsupported,
       "architecture \"MambaForCausalLM\" is not supported; supported: "
       "\"LlamaForCausalLM\", "},
      {"hidden_act", "gelu", kUnsupported, "hidden_act \"gelu\""},
      {"quantization_config", json::object(), kUnsupported, "quantiz"},
      {"attention_bias", 1, kInvalid, "attention_bias is 1"},
      {"mlp_bias", "yes", kInvalid, "mlp_bias is \"yes\""},
  };
  for (const BadField& bad : cases) {
    const auto config = ParseWith(bad.field, bad.value);
    EXPECT_EQ(config.status().code(), bad.code)
        << bad.field << " = " << bad.value << ": " << config.status();
    EXPECT_THAT(std::string(config.status().message()), HasSubstr(bad.message));
  }
}

// Hugging Face's defaults where a field is missing; null is a value.
TEST(ConfigTest, DefaultsAreThoseOfTheFamily) {
  json config = MinimalConfig();
  config["architectures"] = json::array({"MistralForCausalLM"});
  config["num_attention_heads"] = 32;
  config["hidden_size"] = 256;
  config["sliding_window"] = nullptr;
  auto parsed = ParseConfig(config.dump());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->architecture, "MistralForCausalLM");
  EXPECT_EQ(parsed->num_key_value_heads, 8);
  EXPECT_EQ(parsed->max_position_embeddings, 131072);
  EXPECT_FALSE(parsed->qkv_bias);
  config["num_key_value_heads"] = nullptr;
  EXPECT_EQ(ParseConfig(config.dump())->num_key_value_heads, 32);

  config.erase("num_key_value_heads");
  config["architectures"] = json::array({"Qwen2ForCausalLM"});
  config["attention_bias"] = true;  // it has biases whatever this says
  parsed = ParseConfig(config.dump());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->num_key_value_heads, 32);
  EXPECT_EQ(parsed->max_position_embeddings, 32768);
  EXPECT_TRUE(parsed->qkv_bias);
}

TEST(ConfigTest, BiasesAreThoseOfTheFamily) {
  json config = MinimalConfig();
  config["attention_bias"] = config["mlp_bias"] = true;
  auto parsed = ParseConfig(config.dump());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(parsed->qkv_bias);
  EXPECT_TRUE(parsed->attention_output_bias);
  EXPECT_TRUE(parsed->mlp_bias);
  config["architectures"] = json::array({"Qwen3ForCausalLM"});
  EXPECT_THAT(ParseConfig(config.dump()).status().ToString(),
              HasSubstr("mlp_bias true of Qwen3ForCausalLM is not supported; "
                        "supported: false"));
  config["num_key_value_heads"] = 2;
  config["mlp_bias"] = false;
  parsed = ParseConfig(config.dump());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(parsed->attention_output_bias);
  config["architectures"] = json::array({"MistralForCausalLM"});
  EXPECT_THAT(ParseConfig(config.dump()).status().ToString(),
              HasSubstr("attention_bias true of MistralForCausalLM is not "
                        "supported; supported: false"));
}

// Which of the two lists follows from the model's context.
TEST(ConfigTest, LongRopeTakesTheLongFactorsOfAContextThatIsLonger) {
  json config = MinimalConfig();
  config["original_max_position_embeddings"] = 1024;
  config["rope_scaling"] = {{"type", "su"},
                            {"short_factor", {1, 1, 1, 1, 1, 1, 1, 2}},
                            {"long_factor", {1, 1, 1, 1, 1, 1, 1, 9}}};
  config["max_position_embeddings"] = 1024;
  auto parsed = ParseConfig(config.dump());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->rope.scaling.pair_factors.back(), 2.0);
  EXPECT_EQ(parsed->rope.scaling.magnitude, 1.0);
  config["max_position_embeddings"] = 2048;
  parsed = ParseConfig(config.dump());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->rope.scaling.pair_factors.back(), 9.0);
  EXPECT_NEAR(parsed->rope.scaling.magnitude, 1.0488, 1e-4);  // sqrt(1.1)
  config["rope_scaling"]["factor"] = 4;
  EXPECT_THAT(ParseConfig(config.dump()).status().ToString(),
              HasSubstr("factor 4 of longrope is not max_position_embeddings "
                        "2048 / original_max_position_embeddings 1024"));
  // The first configs of Phi-3 call it so.
  config["architectures"] = json::array({"Phi3ForCausalLM"});
  config["num_key_value_heads"] = 2;
  config["rope_scaling"].erase("factor");
  config["rope_scaling"]["type"] = "yarn";
  parsed = ParseConfig(config.dump());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->rope.scaling.type, RopeScaling::Type::kLongRope);
}

json Gemma(const char* architecture) {
  json config = MinimalConfig();
  config["architectures"] = json::array({architecture});
  config["num_key_value_heads"] = 2;
  return config;
}

// Gemma 1 said "gelu" of hidden_act and meant its approximation. Later ones
// have hidden_activation alone, and mean what they say.
TEST(ConfigTest, TheActivationOfGemmaIsThatOfItsField) {
  json config = Gemma("GemmaForCausalLM");
  config["hidden_act"] = "gelu";
  auto parsed = ParseConfig(config.dump());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->activation, Activation::kGeluTanh);
  config["architectures"] = json::array({"Gemma2ForCausalLM"});
  config["hidden_act"] = "silu";
  parsed = ParseConfig(config.dump());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->activation, Activation::kGeluTanh);
  config["hidden_activation"] = "gelu";
  EXPECT_THAT(ParseConfig(config.dump()).status().ToString(),
              HasSubstr("hidden_activation \"gelu\" is not supported"));
}

TEST(ConfigTest, EncodersOfGemmaAreRefused) {
  json config = Gemma("Gemma3ForCausalLM");
  config["use_bidirectional_attention"] = true;
  EXPECT_THAT(ParseConfig(config.dump()).status().ToString(),
              HasSubstr("use_bidirectional_attention true is not supported"));
  config["use_bidirectional_attention"] = false;
  config["rope_parameters"] = {
      {"full_attention", {{"rope_theta", 1e6}}},
      {"sliding_attention", {{"type", "linear"}, {"factor", 8}}}};
  EXPECT_THAT(ParseConfig(config.dump()).status().ToString(),
              HasSubstr("rope type \"linear\" of sliding_attention is not "
                        "supported"));
}

TEST(ConfigTest, ReadsWhatGemmaHas) {
  json config = Gemma("Gemma2ForCausalLM");
  auto parsed = ParseConfig(config.dump());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->head_dim, 256);
  EXPECT_EQ(parsed->activation, Activation::kGeluTanh);
  EXPECT_TRUE(parsed->tie_word_embeddings);
  EXPECT_TRUE(parsed->norms.after_both);
  EXPECT_EQ(parsed->norms.offset, 1.0);
  EXPECT_EQ(parsed->attention_scalar, 256.0);
  EXPECT_EQ(parsed->soft_caps.attention, 50.0);
  EXPECT_EQ(parsed->soft_caps.final, 30.0);
  EXPECT_THAT(parsed->windows.sizes, ElementsAre(4096, 0, 4096));
  config["attn_logit_softcapping"] = nullptr;
  config["query_pre_attn_scalar"] = 144;
  parsed = ParseConfig(config.dump());
  EXPECT_EQ(parsed->soft_caps.attention, 0.0);
  EXPECT_EQ(parsed->attention_scalar, 144.0);
  config["final_logit_softcapping"] = -1;
  EXPECT_THAT(ParseConfig(config.dump()).status().ToString(),
              HasSubstr("final_logit_softcapping is -1"));
  config["final_logit_softcapping"] = 20;
  EXPECT_EQ(ParseConfig(config.dump())->soft_caps.final, 20.0);
  config["hidden_activation"] = "relu";
  EXPECT_THAT(ParseConfig(config.dump()).status().ToString(),
              HasSubstr("hidden_activation \"relu\" is not supported; "
                        "supported: \"silu\", \"gelu_pytorch_tanh\""));
}

// transformers keeps the field in Gemma 3's config and passes it to no layer.
TEST(ConfigTest, AttentionOfGemma3HasNoSoftCap) {
  json config = Gemma("Gemma3ForCausalLM");
  for (const json& cap : {json(50.0), json(nullptr), json(-1)}) {
    config["attn_logit_softcapping"] = cap;
    config["final_logit_softcapping"] = 30.0;
    const auto parsed = ParseConfig(config.dump());
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->soft_caps.attention, 0.0) << cap;
    EXPECT_EQ(parsed->soft_caps.final, 30.0) << cap;
  }
}

TEST(ConfigTest, LayersOfGemma3TurnByTwoThetas) {
  json config = Gemma("Gemma3ForCausalLM");
  config["rope_local_base_freq"] = 500;
  config["sliding_window_pattern"] = 2;
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 8}};
  auto parsed = ParseConfig(config.dump());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->rope.theta, 1e6);
  EXPECT_EQ(parsed->windows.rope_theta, 500.0);
  EXPECT_EQ(parsed->rope.scaling.factor, 8.0);
  EXPECT_TRUE(parsed->norms.of_heads);
  EXPECT_TRUE(parsed->has_local_rope(0));
  EXPECT_FALSE(parsed->has_local_rope(1));
  // As newer folders have it.
  config.erase("rope_scaling");
  config.erase("rope_local_base_freq");
  config["rope_parameters"] = {
      {"full_attention", {{"rope_type", "default"}, {"rope_theta", 7000}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 70}}}};
  parsed = ParseConfig(config.dump());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->rope.theta, 7000.0);
  EXPECT_EQ(parsed->windows.rope_theta, 70.0);
  config["rope_parameters"]["sliding_attention"]["rope_type"] = "yarn";
  EXPECT_THAT(ParseConfig(config.dump()).status().ToString(),
              HasSubstr("\"yarn\" of sliding_attention is not supported"));
  config["rope_parameters"]["sliding_attention"] = 3;
  EXPECT_THAT(ParseConfig(config.dump()).status().ToString(),
              HasSubstr("sliding_attention is 3"));
}

TEST(ConfigTest, ReadsExperts) {
  json config = MinimalConfig();
  config["architectures"] = json::array({"MixtralForCausalLM"});
  config["num_key_value_heads"] = 2;
  auto parsed = ParseConfig(config.dump());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->experts.count, 8);
  EXPECT_EQ(parsed->experts.per_token, 2);
  EXPECT_EQ(parsed->experts.size, 100);
  EXPECT_TRUE(parsed->experts.normalize);
  EXPECT_TRUE(parsed->has_experts(2));
  config["num_local_experts"] = 3;
  config["num_experts_per_tok"] = 4;
  EXPECT_THAT(ParseConfig(config.dump()).status().ToString(),
              HasSubstr("num_experts_per_tok is 4, expected an integer from 1 "
                        "to 3"));
  config["architectures"] = json::array({"Qwen3MoeForCausalLM"});
  config.erase("num_local_experts");
  config["num_experts"] = 0;
  EXPECT_THAT(ParseConfig(config.dump()).status().ToString(),
              HasSubstr("num_experts is 0"));
  config["num_experts"] = 6;
  config["num_experts_per_tok"] = 2;
  EXPECT_THAT(ParseConfig(config.dump()).status().ToString(),
              HasSubstr("moe_intermediate_size is missing"));
  config["moe_intermediate_size"] = 20;
  config["decoder_sparse_step"] = 2;
  config["mlp_only_layers"] = json::array({0});
  parsed = ParseConfig(config.dump());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_FALSE(parsed->experts.normalize);
  EXPECT_EQ(parsed->experts.count, 6);
  EXPECT_FALSE(parsed->has_experts(0));
  EXPECT_TRUE(parsed->has_experts(1));
  EXPECT_FALSE(parsed->has_experts(2));
  config["mlp_only_layers"] = json::array({3});
  EXPECT_THAT(
      ParseConfig(config.dump()).status().ToString(),
      HasSubstr("mlp_only_layers is 3, expected an integer from 0 to 2"));
}

struct WindowCase {
  const char* architecture;
  json fields;
  std::vector<int> windows;  // of the three layers; empty: of none
  const char* message = "";  // of an error
};

// Where it limits nothing there is none.
TEST(ConfigTest, LayersHaveTheWindowsThatTheFamilySays) {
  const std::vector<int> none;
  const std::vector<int> all = {4096, 4096, 4096};
  const char* const full = "full_attention";
  const json slides = {{"use_sliding_window", true}, {"sliding_window", 4096}};
  const auto with = [&](const char* field, const json& value) {
    json fields = slides;
    fields[field] = value;
    return fields;
  };
  const WindowCase cases[] = {
      {"LlamaForCausalLM", {{"sliding_window", 4096}}, none},
      {"MistralForCausalLM", {{"sliding_window", nullptr}}, none},
      {"MistralForCausalLM", {{"sliding_window", 8192}}, none},
      {"MistralForCausalLM", {{"sliding_window", 8191}}, {8191, 8191, 8191}},
      {"MistralForCausalLM", {{"sliding_window", 4096}}, all},
      {"MistralForCausalLM", json::object(), all},
      {"Phi3ForCausalLM", json::object(), none},
      {"Phi3ForCausalLM", {{"sliding_window", 4096}}, all},
      {"MistralForCausalLM",
       {{"sliding_window", 0}},
       none,
       "sliding_window is 0, expected an integer from 1"},
      {"Qwen2ForCausalLM", json::object(), none},
      {"Qwen2ForCausalLM", {{"sliding_window", 4096}}, none},
      {"Qwen2ForCausalLM", with("use_sliding_window", false), none},
      // Of three layers none is after the first 28.
      {"Qwen2ForCausalLM", slides, none},
      {"Qwen2ForCausalLM", with("max_window_layers", 3), none},
      {"Qwen2ForCausalLM", with("max_window_layers", 2), {0, 0, 4096}},
      {"Qwen3ForCausalLM", with("max_window_layers", 0), all},
      {"Qwen2ForCausalLM", with("max_window_layers", -1), none,
       "max_window_layers is -1"},
      {"Qwen2ForCausalLM", with("layer_types", json::array({full, full, full})),
       none},
      {"Qwen2ForCausalLM",
       with("layer_types", json::array({full, "sliding_attention", full})),
       {0, 4096, 0}},
      {"Qwen2ForCausalLM",
       with("layer_types", json::array({full, full, "linear_attention"})), none,
       "layer type \"linear_attention\" is not supported; supported: "
       "\"full_attention\", \"sliding_attention\""},
      {"Qwen2ForCausalLM", with("layer_types", 3), none, "layer_types is 3"},
      {"Qwen2ForCausalLM", with("layer_types", json::array({full})), none,
       "layer_types is [\"full_attention\"], expected a list of 3 types"},
      {"Gemma2ForCausalLM", json::object(), {4096, 0, 4096}},
      {"Gemma3ForCausalLM", {{"sliding_window_pattern", 3}}, {4096, 4096, 0}},
      {"Gemma3ForCausalLM", {{"sliding_window", 9999}}, {9999, 9999, 9999}},
      {"Qwen2ForCausalLM", with("use_sliding_window", 1), none,
       "use_sliding_window is 1"},
  };
  for (const WindowCase& test : cases) {
    json config = MinimalConfig();
    config["architectures"] = json::array({test.architecture});
    config["max_position_embeddings"] = 8192;
    config["num_key_value_heads"] = 2;
    config.update(test.fields);
    const auto parsed = ParseConfig(config.dump());
    EXPECT_EQ(parsed.ok(), test.message[0] == '\0')
        << test.architecture << test.fields << parsed.status();
    if (parsed.ok()) {
      EXPECT_EQ(parsed->windows.sizes, test.windows)
          << test.architecture << test.fields;
    }
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(test.message))
        << test.architecture << test.fields;
  }
}

TEST(ConfigTest, RefusesStackedProjectionsThatAreTooLarge) {
  json config = MinimalConfig();
  config["num_attention_heads"] = 4096;
  config["num_key_value_heads"] = 4096;
  config["head_dim"] = 512;
  EXPECT_THAT(ParseConfig(config.dump()).status().ToString(),
              HasSubstr("the limit is"));
}

// More than the attention of any backend takes; also where it follows from
// other fields.
TEST(ConfigTest, RefusesAHeadThatIsTooWide) {
  json config = MinimalConfig();
  config["hidden_size"] = 2048;
  config["num_attention_heads"] = config["num_key_value_heads"] = 4;
  config.erase("head_dim");
  EXPECT_TRUE(ParseConfig(config.dump()).ok());
  config["hidden_size"] = 4096;
  EXPECT_THAT(ParseConfig(config.dump()).status().ToString(),
              HasSubstr("head_dim is 1024, the limit is 512"));
}

TEST(ConfigTest, EndTokensAreInOrderAndOnce) {
  const auto config =
      ParseWith("eos_token_id", json::array({300, 7, 300, 9, 7}));
  ASSERT_TRUE(config.ok());
  EXPECT_THAT(config->eos_token_ids, ElementsAre(7, 9, 300));
}

TEST(ConfigTest, RefusesWhatIsNotAJsonObject) {
  for (const char* text : {"", "{", "[]", "null", "\xff", "{\"a\": }"}) {
    EXPECT_EQ(ParseConfig(text).status().code(),
              absl::StatusCode::kInvalidArgument)
        << text;
  }
}

TEST(ConfigTest, NamesAMissingFolderOrFile) {
  const std::string dir = nacre::testing::TestFolder("empty");
  EXPECT_EQ(ReadConfig(dir + "/nowhere").status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_THAT(ReadConfig(dir + "/nowhere").status().ToString(),
              HasSubstr(dir + "/nowhere does not exist"));
  EXPECT_EQ(ReadConfig(dir).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(ReadConfig(dir).status().ToString(),
              HasSubstr(dir + "/config.json"));
  std::filesystem::create_directory(dir + "/config.json");
  EXPECT_EQ(ReadConfig(dir).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ConfigTest, NamesTheFileOfABadField) {
  const std::string dir = nacre::testing::TestFolder("bad");
  nacre::testing::WriteFile(dir + "/config.json", MinimalConfig().dump());
  nacre::testing::WriteFile(dir + "/generation_config.json",
                            R"({"eos_token_id": "two"})");
  EXPECT_THAT(ReadConfig(dir).status().ToString(),
              HasSubstr("generation_config.json: eos_token_id is \"two\""));
}

// It may name the end tokens: without them the model would be another one.
TEST(ConfigTest, AGenerationConfigThatCannotBeReadIsAnError) {
  const std::string dir = nacre::testing::TestFolder("unreadable");
  nacre::testing::WriteFile(dir + "/config.json", MinimalConfig().dump());
  EXPECT_TRUE(ReadConfig(dir).ok());
  std::filesystem::create_directory(dir + "/generation_config.json");
  EXPECT_EQ(ReadConfig(dir).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(ReadConfig(dir).status().ToString(),
              HasSubstr(dir + "/generation_config.json"));
}

}  // namespace
}  // namespace nacre::model
