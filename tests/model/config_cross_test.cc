#include "model/config_cross.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nacre::model {
namespace {

using ::testing::HasSubstr;

Json Fields() {
  return Json{{"large_num_attention_heads", 4}, {"large_head_dim", 8}};
}

TEST(ConfigCrossTest, HasDefaults) {
  const auto cross = ParseCross(Fields());
  ASSERT_TRUE(cross.ok()) << cross.status();
  EXPECT_EQ(cross->num_heads, 4);
  EXPECT_EQ(cross->num_key_value_heads, 4);
  EXPECT_EQ(cross->head_dim, 8);
  EXPECT_EQ(cross->max_depth, 5);
  EXPECT_EQ(cross->row_size(3), 3 * 2 * 4 * 8);
  EXPECT_EQ(CrossHeads(*cross).q_size(), 32);
  EXPECT_EQ(CrossHeads(*cross).rope.theta, 10000);
}

TEST(ConfigCrossTest, ReadsAllFields) {
  Json json = Fields();
  json.erase("large_head_dim");
  json["large_hidden_size"] = 64;
  json["large_num_key_value_heads"] = 2;
  json["block_size"] = 7;
  const auto cross = ParseCross(json);
  ASSERT_TRUE(cross.ok()) << cross.status();
  EXPECT_EQ(cross->head_dim, 16);
  EXPECT_EQ(cross->num_key_value_heads, 2);
  EXPECT_EQ(cross->max_depth, 7);
}

TEST(ConfigCrossTest, OnlyADraftOverKeysHasIt) {
  EXPECT_TRUE(HasCross(Fields()));
  EXPECT_TRUE(HasCross(Json{{"large_head_dim", 8}}));
  EXPECT_TRUE(HasCross(Json{{"large_hidden_size", 8}}));
  EXPECT_TRUE(HasCross(Json{{"large_num_key_value_heads", 8}}));
  EXPECT_TRUE(HasCross(
      Json{{"architectures", Json::array({"smallLlamaForCausalLM"})}}));
  EXPECT_FALSE(HasCross(Json::object()));
  EXPECT_FALSE(
      HasCross(Json{{"architectures", Json::array({"LlamaForCausalLM"})},
                    {"block_size", 5},
                    {"large_head_dim", nullptr}}));
  EXPECT_TRUE(IsCrossTensor("model.layers.0.cross_attn.q_proj.weight"));
  EXPECT_FALSE(IsCrossTensor("model.layers.0.self_attn.q_proj.weight"));
}

TEST(ConfigCrossTest, RefusesWhatItCannotBe) {
  const auto refused = [](const char* field, Json value, const char* why) {
    Json json = Fields();
    json.erase(field);
    if (!value.is_null()) json[field] = value;
    const auto cross = ParseCross(json);
    EXPECT_EQ(cross.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(cross.status().ToString(), HasSubstr(why));
  };
  refused("large_num_attention_heads", {}, "large_num_attention_heads");
  refused("large_num_attention_heads", 0, "large_num_attention_heads");
  refused("large_num_key_value_heads", 3,
          "large_num_key_value_heads is 3, no divisor of "
          "large_num_attention_heads, 4");
  refused("large_head_dim", "8", "large_head_dim");
  refused("large_head_dim", {}, "large_hidden_size");
  refused("block_size", 65, "block_size");
  refused("large_num_attention_heads", 4097, "large_num_attention_heads");
  refused("large_head_dim", 514, "large_head_dim");
  refused("large_head_dim", 7, "large_head_dim is 7, not even");
  Json json = Fields();
  json["use_remap"] = true;
  EXPECT_EQ(ParseCross(json).status().code(), absl::StatusCode::kUnimplemented);
  json = Fields();
  json.erase("large_head_dim");
  json["large_hidden_size"] = 63;
  EXPECT_THAT(ParseCross(json).status().ToString(),
              HasSubstr("large_hidden_size is 63, no multiple of "
                        "large_num_attention_heads, 4"));
}

}  // namespace
}  // namespace nacre::model
