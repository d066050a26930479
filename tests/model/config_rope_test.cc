#include "model/config_rope.h"

#include <string>

#include "common/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/config.h"
#include "tests/model/minimal_config.h"

namespace nacre::model {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

int ContextOf(const json& fields) {
  json config = MinimalConfig();
  config.update(fields);
  const auto parsed = ParseConfig(config.dump());
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? parsed->max_position_embeddings : 0;
}

// Of both names of the object.
int ScaledContext(int max_positions, const json& rope) {
  const int old = ContextOf(
      {{"max_position_embeddings", max_positions}, {"rope_scaling", rope}});
  EXPECT_EQ(ContextOf({{"max_position_embeddings", max_positions},
                       {"rope_parameters", rope}}),
            old);
  return old;
}

// As vLLM counts: Vicuna 1.5 16k, Qwen2.5 with the lines of its README, configs
// that say the context, too.
TEST(ConfigRopeTest, ScalingMakesRoomForMorePositions) {
  EXPECT_EQ(ScaledContext(4096, {{"type", "linear"}, {"factor", 4.0}}), 16384);
  const json yarn = {{"type", "yarn"},
                     {"factor", 4.0},
                     {"original_max_position_embeddings", 32768}};
  EXPECT_EQ(ScaledContext(32768, yarn), 131072);
  EXPECT_EQ(ScaledContext(131072, yarn), 131072);
  EXPECT_EQ(ScaledContext(131080, yarn), 131080);
  EXPECT_EQ(ScaledContext(1000, {{"rope_type", "yarn"}, {"factor", 2.5004}}),
            2500);
  EXPECT_EQ(ScaledContext(1000, {{"rope_type", "linear"}, {"factor", 0.5}}),
            500);
}

TEST(ConfigRopeTest, OtherScalingsSayTheContextThatTheyHave) {
  EXPECT_EQ(ScaledContext(4096, {{"type", "dynamic"}, {"factor", 4.0}}), 4096);
  EXPECT_EQ(ScaledContext(131072, {{"rope_type", "llama3"},
                                   {"factor", 8.0},
                                   {"original_max_position_embeddings", 8192}}),
            131072);
  const json ones(8, 1.0);
  EXPECT_EQ(ScaledContext(4096, {{"type", "longrope"},
                                 {"short_factor", ones},
                                 {"long_factor", ones},
                                 {"original_max_position_embeddings", 1024}}),
            4096);
  // Gemma 3's layers without a window have the factor.
  EXPECT_EQ(
      ContextOf({{"architectures", {"Gemma3ForCausalLM"}},
                 {"head_dim", 16},
                 {"num_key_value_heads", 6},
                 {"max_position_embeddings", 131072},
                 {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}}),
      131072);
}

TEST(ConfigRopeTest, WhatTurnsGoesByTheContextBeforeScaling) {
  json config = MinimalConfig();
  config["rope_scaling"] = {{"type", "yarn"}, {"factor", 4.0}};
  const auto parsed = ParseConfig(config.dump());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->rope.scaling.original_max_position_embeddings, 2048);
  EXPECT_EQ(parsed->max_position_embeddings, 8192);
}

TEST(ConfigRopeTest, TheContextHasLimits) {
  for (const double factor : {1e-9, 1e9}) {
    json config = MinimalConfig();
    config["rope_scaling"] = {{"type", "linear"}, {"factor", factor}};
    EXPECT_THAT(ParseConfig(config.dump()).status().ToString(),
                HasSubstr("positions, expected 1 to 16777216"));
  }
}

// A window that is longer than pre-training's context, but not than this one.
TEST(ConfigRopeTest, AWindowLimitsAStretchedContext) {
  json config = MinimalConfig();
  config["architectures"] = {"MistralForCausalLM"};
  config["num_key_value_heads"] = 6;
  config["max_position_embeddings"] = 4096;
  config["sliding_window"] = 4096;
  EXPECT_EQ(ParseConfig(config.dump())->window(0), 0);
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 4.0}};
  EXPECT_EQ(ParseConfig(config.dump())->window(0), 4096);
}

// transformers fails at it: no rope type is named so.
TEST(ConfigRopeTest, ATypeThatIsNullIsRefused) {
  for (const char* field : {"type", "rope_type"}) {
    json config = MinimalConfig();
    config["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
    ASSERT_TRUE(ParseConfig(config.dump()).ok());
    config["rope_scaling"][field] = nullptr;
    const absl::Status status = ParseConfig(config.dump()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << field;
    EXPECT_THAT(status.ToString(), HasSubstr("rope type null is not"));
  }
  // The newer name goes first.
  json config = MinimalConfig();
  config["rope_scaling"] = {
      {"rope_type", "linear"}, {"type", nullptr}, {"factor", 2.0}};
  EXPECT_TRUE(ParseConfig(config.dump()).ok());
}

absl::StatusOr<double> ShareOf(const char* architecture, const json& fields) {
  json config = MinimalConfig();
  config["architectures"] = {architecture};
  config["num_key_value_heads"] = 2;
  config["head_dim"] = 16;
  config["moe_intermediate_size"] = 40;
  config.update(fields);
  const auto parsed = ParseConfig(config.dump());
  if (!parsed.ok()) return parsed.status();
  return 1.0 * parsed->rotary_size() / parsed->head_dim;
}

// As transformers 5.24 does it, model by model.
TEST(ConfigRopeTest, OnlySomeFamiliesTurnAShareOfAHead) {
  for (const char* architecture :
       {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM",
        "Qwen3ForCausalLM", "MixtralForCausalLM", "Qwen3MoeForCausalLM",
        "GemmaForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM",
        "Starcoder2ForCausalLM"}) {
    for (const json& ignored :
         {json{{"partial_rotary_factor", 0.5}},
          json{{"partial_rotary_factor", 0.06}},  // nothing would turn
          json{{"rope_parameters", {{"partial_rotary_factor", 0.5}}}},
          json{{"rope_scaling",
                {{"type", "default"}, {"partial_rotary_factor", 0.5}}}}}) {
      const auto share = ShareOf(architecture, ignored);
      ASSERT_TRUE(share.ok()) << architecture << share.status();
      EXPECT_EQ(*share, 1.0) << architecture << ignored;
    }
    EXPECT_EQ(ShareOf(architecture, {{"partial_rotary_factor", 1.5}})
                  .status()
                  .message(),
              "partial_rotary_factor is 1.5, expected a number > 0 and <= 1");
  }
  const json half = {{"partial_rotary_factor", 0.5}};
  EXPECT_EQ(ShareOf("Phi3ForCausalLM", half).value(), 0.5);
  EXPECT_EQ(ShareOf("Phi3ForCausalLM", {{"rope_parameters", half}}).value(),
            0.5);
  EXPECT_EQ(ShareOf("GPTNeoXForCausalLM", {{"rope_parameters", half}}).value(),
            0.5);
  // Its own name is rotary_pct.
  EXPECT_EQ(ShareOf("GPTNeoXForCausalLM", half).value(), 0.25);
  EXPECT_EQ(ShareOf("Phi3ForCausalLM",
                    {{"rope_parameters", {{"partial_rotary_factor", 0.06}}}})
                .status()
                .message(),
            "partial_rotary_factor 0.06 of head_dim 16 makes no dimension "
            "turn, expected 1 or more");
}

// There transformers reads the share, and fails unless the head turns whole.
TEST(ConfigRopeTest, OtherRopeTypesRefuseAShareWhereHeadsTurnWhole) {
  const auto with = [](const char* type, double share) {
    return json{{"rope_scaling",
                 {{"rope_type", type},
                  {"factor", 2.0},
                  {"original_max_position_embeddings", 1024},
                  {"partial_rotary_factor", share}}}};
  };
  for (const char* type : {"linear", "dynamic", "llama3", "yarn", "longrope"}) {
    const absl::Status status =
        ShareOf("LlamaForCausalLM", with(type, 0.5)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << type;
    EXPECT_EQ(status.message(),
              std::string("partial_rotary_factor 0.5 with rope type \"") +
                  type +
                  "\" is not supported for LlamaForCausalLM, whose heads turn "
                  "whole");
  }
  EXPECT_THAT(ShareOf("Gemma3ForCausalLM", with("linear", 0.5)).status(),
              ::testing::Property(&absl::Status::code,
                                  absl::StatusCode::kUnimplemented));
  EXPECT_EQ(ShareOf("LlamaForCausalLM", with("linear", 1)).value(), 1.0);
  // An odd number: one more turns, which makes it whole.
  EXPECT_EQ(ShareOf("LlamaForCausalLM", with("linear", 0.95)).value(),
            15.0 / 16);
  EXPECT_EQ(ShareOf("GPTNeoXForCausalLM", with("linear", 0.5)).value(), 0.5);
}

TEST(ConfigRopeTest, YarnTakesZeroForAbsent) {
  json config = MinimalConfig();
  json& rope = config["rope_scaling"];
  rope = {{"type", "yarn"}, {"factor", 4.0}};
  const double magnitude = ParseConfig(config.dump())->rope.scaling.magnitude;
  rope.update({{"mscale", 0.7},
               {"mscale_all_dim", 0},
               {"beta_fast", 0.0},
               {"beta_slow", 0}});
  const auto zero = ParseConfig(config.dump());
  ASSERT_TRUE(zero.ok()) << zero.status();
  EXPECT_EQ(zero->rope.scaling.magnitude, magnitude);
  EXPECT_EQ(zero->rope.scaling.beta_fast, 32.0);
  EXPECT_EQ(zero->rope.scaling.beta_slow, 1.0);
  rope["mscale_all_dim"] = 0.9;
  EXPECT_NE(ParseConfig(config.dump())->rope.scaling.magnitude, magnitude);
}

}  // namespace
}  // namespace nacre::model
