// Which names are an EAGLE draft.

#include "model/eagle_files.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/model/eagle_names.h"

namespace nacre::model {
namespace {

using ::testing::HasSubstr;
using Names = EagleNames;

std::string Refusal(const Names& names) {
  const auto layout = FindEagleLayout(names);
  EXPECT_EQ(layout.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(layout.status().message());
}

TEST(EagleFilesTest, BothNamesOfTheLayer) {
  for (const std::string prefix :
       {"midlayer.", "layers.0.", "model.layers.0."}) {
    const auto layout = FindEagleLayout(Third(prefix));
    ASSERT_TRUE(layout.ok()) << layout.status();
    EXPECT_TRUE(layout->is_third);
    EXPECT_EQ(layout->names.at("layer.hidden_norm.weight"),
              prefix + "hidden_norm.weight");
  }
}

TEST(EagleFilesTest, WhatADraftMayHave) {
  Names names = Third();
  for (const char* name :
       {"d2t", "t2d", "embed_tokens.weight", "input_norm.weight",
        "fc_norm.0.weight", "fc_norm.1.weight", "fc_norm.2.weight",
        "midlayer.self_attn.q_proj.bias",
        "midlayer.self_attn.rotary_emb.inv_freq"}) {
    names.push_back(name);
  }
  const auto layout = FindEagleLayout(names);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->num_fc_norms, 3);
  EXPECT_TRUE(layout->Has("d2t"));
  EXPECT_FALSE(layout->Has("fc.bias"));
}

TEST(EagleFilesTest, TheFirstHasNoNormsBeforeItsLayer) {
  Names names = Layer("layers.0.", false);
  names.push_back("fc.weight");
  const auto layout = FindEagleLayout(names);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_FALSE(layout->is_third);
  EXPECT_TRUE(FindEagleLayout(With(names, "fc.bias")).ok());
  EXPECT_THAT(Refusal(With(names, "d2t")),
              HasSubstr("tensor d2t is none of an EAGLE-1 draft"));
  EXPECT_THAT(Refusal(With(names, "layers.0.input_layernorm.weight")),
              HasSubstr("layers.0.input_layernorm.weight is none"));
}

TEST(EagleFilesTest, TheFirstOfOtherProducers) {
  Names names = Layer("layers.0.", false);
  names.push_back("fc.weight");
  const Names one = With(names, "embedding_layernorm.weight");
  const Names both = With(one, "hidden_states_layernorm.weight");
  EXPECT_TRUE(FindEagleLayout(both).ok());
  EXPECT_THAT(Refusal(one),
              HasSubstr("tensor hidden_states_layernorm.weight is missing, but "
                        "embedding_layernorm.weight is there"));
  EXPECT_THAT(Refusal(With(names, "hidden_states_layernorm.weight")),
              HasSubstr("tensor embedding_layernorm.weight is missing"));
  EXPECT_THAT(Refusal(With(Third(), "embedding_layernorm.weight")),
              HasSubstr("is none of an EAGLE-3 draft"));

  names = Layer("transformer.", false);
  names.push_back("fusion_fc.weight");
  names.push_back("fusion_fc.bias");
  const auto layout = FindEagleLayout(names);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_FALSE(layout->is_third);
  EXPECT_EQ(layout->names.at("fc.bias"), "fusion_fc.bias");
  EXPECT_EQ(layout->names.at("layer.mlp.up_proj.weight"),
            "transformer.mlp.up_proj.weight");
  EXPECT_THAT(Refusal(With(names, "fc.weight")),
              HasSubstr("is there as fusion_fc.weight, too"));
  // With norms around its layer: a variant that two readers read differently.
  EXPECT_THAT(Refusal(With(names, "pre_lm_head_layernorm.weight")),
              HasSubstr("pre_lm_head_layernorm.weight is none of an EAGLE-1"));
}

TEST(EagleFilesTest, OtherNamesAreRefused) {
  EXPECT_THAT(Refusal(With(Third(), "layers.1.mlp.up_proj.weight")),
              HasSubstr("tensor layers.1.mlp.up_proj.weight is none of an "
                        "EAGLE-3 draft of one Llama layer"));
  EXPECT_THAT(Refusal(With(Third(), "midlayer.self_attn.q_norm.weight")),
              HasSubstr("q_norm.weight is none"));
  EXPECT_THAT(Refusal(With(Third(), "parallel_draft_heads.lm_head.weight")),
              HasSubstr("is none"));
  EXPECT_THAT(Refusal(With(Third(), "fc.bias")), HasSubstr("is none"));
  EXPECT_THAT(Refusal(With(Third(), "layers.0.hidden_norm.weight")),
              HasSubstr("is there as "));
  EXPECT_THAT(Refusal(Without(Third(), "norm.weight")),
              HasSubstr("tensor norm.weight of an EAGLE-3 draft is missing"));
  for (const char* name : {"fc_norm.01.weight", "fc_norm.-1.weight",
                           "fc_norm.16.weight", "fc_norm.0.bias"}) {
    EXPECT_THAT(Refusal(With(Third(), name)), HasSubstr("is none")) << name;
  }
  EXPECT_THAT(Refusal(With(Third(), "fc_norm.1.weight")),
              HasSubstr("fc_norm.0.weight is missing"));
  EXPECT_THAT(Refusal({}), HasSubstr("is missing"));
  const std::string long_name(5000, '\n');
  EXPECT_LT(Refusal(With(Third(), long_name)).size(), 1000u);
}

}  // namespace
}  // namespace nacre::model
