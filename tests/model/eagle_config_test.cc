// What the config.json of an EAGLE draft may say.

#include "model/eagle_config.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/model/eagle_names.h"

namespace nacre::model {
namespace {

using ::testing::HasSubstr;
using Names = EagleNames;

constexpr char kLlama[] =
    R"({"hidden_size": 20, "intermediate_size": 36, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 6, "vocab_size": 40,
        "rope_theta": 500})";

ModelInfo Target() {
  ModelInfo info;
  info.vocab_size = 40;
  info.hidden_size = 20;
  info.num_layers = 8;
  return info;
}

absl::StatusOr<EagleConfig> Parse(const Json& changes,
                                  const Names& names = Third(),
                                  const ModelInfo& target = Target()) {
  Json json = Json::parse(kLlama);
  json.update(changes);
  return ParseEagleConfig(json, *FindEagleLayout(names), target);
}

std::vector<int> Layers(const absl::StatusOr<EagleConfig>& config) {
  EXPECT_TRUE(config.ok()) << config.status();
  std::vector<int> layers;
  if (!config.ok()) return layers;
  for (const FeatureTap& tap : config->taps) layers.push_back(tap.layer);
  return layers;
}

using Ints = std::vector<int>;

TEST(EagleConfigTest, LayersByWhatTheyAreGivenOrGive) {
  constexpr char kIds[] = "eagle_aux_hidden_state_layer_ids";
  const auto giving = [&](Json ids) {
    return Json{{"eagle_config", {{kIds, std::move(ids)}}}};
  };
  EXPECT_EQ(Layers(Parse(Json::object())), Ints({2, 4, 5}));
  EXPECT_EQ(Layers(Parse({{kIds, {1, 3, 8}}})), Ints({1, 3, 8}));
  EXPECT_EQ(Layers(Parse(giving({1, 3, 7}))), Ints({2, 4, 8}));
  EXPECT_EQ(Layers(Parse(giving(Json::array()))), Ints({2, 4, 5}));
  EXPECT_EQ(Layers(Parse(giving(nullptr))), Ints({2, 4, 5}));
  Json both = giving({1, 3, 6});
  both[kIds] = {2, 4, 7};
  EXPECT_EQ(Layers(Parse(both)), Ints({2, 4, 7}));
  both[kIds] = {1, 3, 6};
  EXPECT_THAT(std::string(Parse(both).status().message()),
              HasSubstr("are not the same layers"));
  for (const Json& ids : {Json{1, 3, 9}, Json{-1}, Json{1.5}, Json{"1"},
                          Json("1"), Json(Ints(17, 1))}) {
    EXPECT_FALSE(Parse({{kIds, ids}}).ok()) << ids;
  }
  EXPECT_FALSE(Parse(giving({1, 3, 8})).ok()) << "8 gives what there is not";
  EXPECT_EQ(Layers(Parse({{kIds, Json::array()}})), Ints({2, 4, 5}));
  EXPECT_EQ(Layers(Parse({{kIds, {0, 7, 8}}})), Ints({0, 7, 8}));
  const auto refusal = [](const absl::StatusOr<EagleConfig>& config) {
    return std::string(config.status().message());
  };
  // In the order of the list.
  EXPECT_EQ(Layers(Parse({{kIds, {5, 1, 3}}})), Ints({5, 1, 3}));
  EXPECT_EQ(Layers(Parse(giving({5, 1, 3}))), Ints({6, 2, 4}));
  for (const Json& ids : {Json{3, 3, 5}, Json{3, 5, 3}, Json{5, 3, 3}}) {
    const std::string expected =
        absl::StrCat(kIds, " is ", ids.dump(),
                     ", with layer 3 twice, expected each at most once");
    EXPECT_EQ(refusal(Parse({{kIds, ids}})), expected);
    EXPECT_EQ(refusal(Parse(giving(ids))), expected);
  }
  EXPECT_EQ(refusal(Parse({{kIds, {1, 3, 9}}})),
            absl::StrCat(kIds, " is 9, expected an integer from 0 to 8"));
  EXPECT_EQ(refusal(Parse(giving({1, 3, 8}))),
            absl::StrCat(kIds, " is 8, expected an integer from 0 to 7"));
  EXPECT_EQ(refusal(Parse({{kIds, {-1, 3, 5}}})),
            absl::StrCat(kIds, " is -1, expected an integer from 0 to 8"));
  EXPECT_EQ(refusal(Parse({{kIds, Ints(17, 1)}})),
            absl::StrCat(kIds, " is ", Json(Ints(17, 1)).dump(),
                         ", expected at most 16 layers"));
  ModelInfo shallow = Target();
  shallow.num_layers = 2;
  EXPECT_THAT(
      std::string(Parse(Json::object(), Third(), shallow).status().message()),
      HasSubstr("a target of 2 layers has too few"));
  shallow.num_layers = 0;
  EXPECT_EQ(Parse(Json::object(), Third(), shallow).status().code(),
            absl::StatusCode::kUnimplemented);
}

TEST(EagleConfigTest, VariantsAndTheirDefaults) {
  const auto raw = Parse(Json::object());
  EXPECT_FALSE(raw->norm_before_residual);
  EXPECT_FALSE(raw->norm_output);
  EXPECT_EQ(raw->max_depth, 7);
  EXPECT_TRUE(Parse({{"speculators_version", "1"}})->norm_before_residual);
  EXPECT_FALSE(
      Parse({{"speculators_version", "1"}, {"norm_before_residual", false}})
          ->norm_before_residual);
  EXPECT_TRUE(Parse({{"norm_output", true}})->norm_output);
  const Names normed = With(Third(), "input_norm.weight");
  EXPECT_TRUE(Parse(Json::object(), normed)->norm_before_fc);
  EXPECT_TRUE(
      Parse({{"eagle_config", {{"norm_before_fc", true}}}}, normed).ok());
  EXPECT_THAT(
      std::string(
          Parse({{"norm_before_fc", false}}, normed).status().message()),
      HasSubstr("norm_before_fc is false, but input_norm.weight is there"));
  EXPECT_THAT(std::string(Parse({{"fc_norm", true}}).status().message()),
              HasSubstr("fc_norm is true, but fc_norm.0.weight is missing"));
  EXPECT_THAT(
      std::string(Parse(Json::object(), With(Third(), "fc_norm.0.weight"))
                      .status()
                      .message()),
      HasSubstr("the file has 1 fc_norm for 3 layers"));
  const auto depth = [](const Json& tokens) {
    return Parse(
        {{"speculators_config",
          {{"proposal_methods", {{{"speculative_tokens", tokens}}}}}}});
  };
  EXPECT_EQ(depth(3)->max_depth, 3);
  EXPECT_FALSE(depth(0).ok());
  EXPECT_FALSE(depth(17).ok());
}

TEST(EagleConfigTest, VariantsOfTheFirst) {
  Names names = Layer("layers.0.", false);
  names.push_back("fc.weight");
  const auto plain = Parse(Json::object(), names);
  EXPECT_FALSE(plain->norm_inputs);
  EXPECT_EQ(plain->max_depth, 5);
  const Names normed = With(With(names, "embedding_layernorm.weight"),
                            "hidden_states_layernorm.weight");
  EXPECT_TRUE(Parse(Json::object(), normed)->norm_inputs);
  EXPECT_TRUE(Parse({{"add_para_norm", true}}, normed)->norm_inputs);
  const auto refusal = [](const Json& changes, const Names& of) {
    return std::string(Parse(changes, of).status().message());
  };
  EXPECT_THAT(refusal({{"add_para_norm", true}}, names),
              HasSubstr("add_para_norm is true, but "
                        "embedding_layernorm.weight is missing"));
  EXPECT_THAT(refusal({{"fusion_bias", true}}, names),
              HasSubstr("fusion_bias is true, but fc.bias is missing"));
  EXPECT_TRUE(Parse({{"fusion_bias", false}}, names).ok());
  EXPECT_FALSE(Parse({{"fusion_bias", 1}}, names).ok());
}

TEST(EagleConfigTest, WindowsOfTheLayer) {
  EXPECT_EQ(Parse({{"sliding_window", 4}})->llama.window(0), 0);
  EXPECT_EQ(Parse({{"sliding_window", 4}, {"layer_types", {"full_attention"}}})
                ->llama.window(0),
            0);
  EXPECT_EQ(
      Parse({{"sliding_window", 4}, {"layer_types", {"sliding_attention"}}})
          ->llama.window(0),
      4);
  EXPECT_FALSE(Parse({{"layer_types", {"sliding_attention"}}}).ok());
  EXPECT_FALSE(Parse({{"layer_types", {"other"}}}).ok());
  EXPECT_FALSE(
      Parse({{"layer_types", {"full_attention", "full_attention"}}}).ok());
}

TEST(EagleConfigTest, WhatIsNotKnownIsRefused) {
  const std::vector<Json> all = {
      {{"eagle_config", {{"use_aux_hidden_state", false}}}},
      {{"eagle_config", 3}},
      {{"num_hidden_layers", 2}},
      {{"mlp_bias", true}},
      {{"hidden_act", "relu"}},
      {{"quantization_config", Json::object()}},
      {{"transformer_layer_config", 3}},
      {{"transformer_layer_config", nullptr}},
      {{"draft_vocab_size", 0}},
      {{"target_hidden_size", 21}},
      {{"rope_theta", "x"}},
      {{"norm_output", 1}}};
  for (const Json& changes : all) {
    EXPECT_FALSE(Parse(changes).ok()) << changes;
  }
}

}  // namespace
}  // namespace nacre::model
