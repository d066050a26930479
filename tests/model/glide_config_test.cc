#include "model/glide_config.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nacre::model {
namespace {

using ::testing::HasSubstr;

constexpr int kLayers = 6;

class GlideConfigTest : public ::testing::Test {
 protected:
  GlideConfigTest() : layers_(kLayers) {
    for (kernels::KvLayer& layer : layers_) {
      layer.num_kv_heads = 2;
      layer.head_dim = 64;
    }
    kv_ = {layers_, 4, true};
    target_.vocab_size = 4096;
    target_.hidden_size = 256;
    target_.num_layers = kLayers;
    json_ = {{"hidden_size", 128},       {"intermediate_size", 344},
             {"num_hidden_layers", 2},   {"num_attention_heads", 2},
             {"vocab_size", 4096},       {"max_position_embeddings", 2048},
             {"large_hidden_size", 256}, {"large_num_attention_heads", 4}};
  }

  absl::StatusOr<GlideConfig> Parse() const {
    return ParseGlideConfig(json_, target_, kv_);
  }
  std::string Refused(const char* field, const Json& value,
                      absl::StatusCode code) {
    const Json before = json_;
    json_[field] = value;
    const absl::Status status = Parse().status();
    json_ = before;
    EXPECT_EQ(status.code(), code) << status;
    return std::string(status.message());
  }
  std::string Invalid(const char* field, const Json& value) {
    return Refused(field, value, absl::StatusCode::kInvalidArgument);
  }
  std::string Unimplemented(const char* field, const Json& value) {
    return Refused(field, value, absl::StatusCode::kUnimplemented);
  }

  std::vector<kernels::KvLayer> layers_;
  KeptKv kv_;
  ModelInfo target_;
  Json json_;
};

TEST_F(GlideConfigTest, ReadsWhatIsPublished) {
  const auto config = Parse();
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->llama.hidden_size, 128);
  EXPECT_EQ(config->cross.q_size(), 256);
  EXPECT_EQ(config->cross.head_dim, 64);
  EXPECT_EQ(config->cross.rope.theta, 10000.0);
  EXPECT_EQ(config->max_depth, 5);
  const std::vector<FeatureTap> taps = {{FeatureTap::Kind::kKv, 4},
                                        {FeatureTap::Kind::kKv, 5}};
  EXPECT_EQ(config->taps, taps);
}

// Whatever base its own positions turn by.
TEST_F(GlideConfigTest, QueriesTurnByTheirOwnBase) {
  json_["rope_theta"] = 500000.0;
  json_["block_size"] = 16;
  const auto config = Parse();
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->llama.rope.theta, 500000.0);
  EXPECT_EQ(config->cross.rope.theta, 10000.0);
  EXPECT_EQ(config->max_depth, 16);
}

TEST_F(GlideConfigTest, WhatTheTargetHasIsChecked) {
  EXPECT_EQ(Invalid("vocab_size", 4095),
            "vocab_size is 4095, that of the target 4096");
  EXPECT_EQ(Invalid("large_num_attention_heads", 8),
            "large_num_attention_heads is 8, that of the target 4");
  EXPECT_EQ(Invalid("large_head_dim", 128),
            "large_head_dim is 128, that of the target 64");
  EXPECT_EQ(Invalid("large_hidden_size", 512),
            "large_head_dim is 128, that of the target 64");
  EXPECT_EQ(Invalid("large_hidden_size", 258),
            "large_hidden_size is 258, no multiple of "
            "large_num_attention_heads, 4");
  EXPECT_EQ(Invalid("num_hidden_layers", 7),
            "num_hidden_layers is 7, more than the layers of the target that "
            "they read, 6");
}

TEST_F(GlideConfigTest, FieldsAreChecked) {
  EXPECT_THAT(Invalid("large_num_attention_heads", nullptr),
              HasSubstr("large_num_attention_heads is missing"));
  EXPECT_THAT(Invalid("large_hidden_size", nullptr),
              HasSubstr("large_hidden_size is missing"));
  EXPECT_THAT(Invalid("block_size", 0), HasSubstr("block_size is 0"));
  EXPECT_THAT(Invalid("block_size", 65), HasSubstr("block_size is 65"));
  EXPECT_THAT(Invalid("hidden_size", "much"), HasSubstr("hidden_size"));
}

TEST_F(GlideConfigTest, VariantsAreRefused) {
  EXPECT_THAT(
      Unimplemented("rope_scaling", {{"type", "linear"}, {"factor", 2.0}}),
      HasSubstr("rope_scaling"));
  EXPECT_THAT(Unimplemented("use_remap", true), HasSubstr("use_remap true"));
  kv_.has_whole_heads = false;
  EXPECT_THAT(Unimplemented("block_size", 5),
              HasSubstr("of whose heads only a part turns"));
}

}  // namespace
}  // namespace nacre::model
