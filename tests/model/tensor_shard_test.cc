#include "model/tensor_shard.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/families.h"

namespace nacre::model {
namespace {

using kernels::WeightType;
using ::testing::HasSubstr;

ModelConfig Parse(const std::string& architecture, const std::string& more) {
  const auto config = ParseConfig(absl::StrCat(
      R"({"architectures": [")", architecture,
      R"("], "hidden_size": 64, "num_hidden_layers": 1, "vocab_size": 96,
          "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 32,
          "intermediate_size": 512, "max_position_embeddings": 64)",
      more, "}"));
  EXPECT_TRUE(config.ok()) << config.status();
  return *config;
}

ModelConfig Fitting() { return Parse("LlamaForCausalLM", ""); }

std::string Refused(const ModelConfig& config, WeightType weights, int ranks) {
  const absl::Status status = CheckSplit(config, weights, ranks);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return status.ToString();
}

TEST(TensorShardTest, TakesWhatDivides) {
  for (const int ranks : {1, 2, 4, 8}) {
    EXPECT_TRUE(IsRankCount(ranks));
    for (const auto weights : {WeightType::kAuto, WeightType::kBF16,
                               WeightType::kInt8, WeightType::kInt4}) {
      EXPECT_TRUE(CheckSplit(Fitting(), weights, ranks).ok());
    }
    const ModelConfig own = ConfigOfRank(Fitting(), ranks);
    EXPECT_EQ(own.num_attention_heads, 16 / ranks);
    EXPECT_EQ(own.num_key_value_heads, 8 / ranks);
    EXPECT_EQ(own.intermediate_size, 512 / ranks);
    EXPECT_EQ(own.hidden_size, 64);
    EXPECT_EQ(own.vocab_size, 96);
  }
  for (const int ranks : {0, -1, 3, 5, 6, 7, 16}) {
    EXPECT_FALSE(IsRankCount(ranks));
  }
}

TEST(TensorShardTest, SaysWhichSizeDoesNotDivide) {
  ModelConfig config = Fitting();
  config.num_attention_heads = 12;
  EXPECT_THAT(Refused(config, WeightType::kAuto, 8),
              HasSubstr("--tensor-parallel 8: num_attention_heads is 12, which "
                        "8 ranks do not share evenly"));
  EXPECT_TRUE(CheckSplit(config, WeightType::kAuto, 4).ok());
  config = Fitting();
  config.num_key_value_heads = 2;
  EXPECT_THAT(Refused(config, WeightType::kAuto, 4),
              HasSubstr("num_key_value_heads is 2, which 4 ranks"));
  config = Fitting();
  config.vocab_size = 97;
  EXPECT_THAT(Refused(config, WeightType::kAuto, 2),
              HasSubstr("vocab_size is 97, which 2 ranks"));
  config = Fitting();
  config.intermediate_size = 515;
  EXPECT_THAT(Refused(config, WeightType::kAuto, 2),
              HasSubstr("intermediate_size is 515, which 2 ranks"));
}

TEST(TensorShardTest, SaysWhichSumHasNoEightShards) {
  ModelConfig config = Fitting();
  config.intermediate_size = 500;  // also of one rank
  EXPECT_THAT(Refused(config, WeightType::kAuto, 1),
              HasSubstr("intermediate_size is 500, no multiple of 8: sums run "
                        "over 8 equal shards of their inputs"));
  config = Fitting();
  config.head_dim = 30;  // 480 inputs, 60 a shard
  EXPECT_TRUE(CheckSplit(config, WeightType::kBF16, 2).ok());
  EXPECT_THAT(Refused(config, WeightType::kInt8, 2),
              HasSubstr("num_attention_heads * head_dim is 480, no multiple of "
                        "512: sums run over 8 equal shards of their inputs, "
                        "each of whole groups of 64 quantized weights"));
  EXPECT_THAT(Refused(config, WeightType::kInt4, 2),
              HasSubstr("is 480, no multiple of 256"));
}

TEST(TensorShardTest, TakesFamiliesOfLlamasKindAlone) {
  for (const char* architecture : {"LlamaForCausalLM", "MistralForCausalLM",
                                   "Qwen2ForCausalLM", "Qwen3ForCausalLM"}) {
    EXPECT_TRUE(CheckSplit(Parse(architecture, ""), WeightType::kAuto, 2).ok());
  }
  for (const char* architecture :
       {"Phi3ForCausalLM", "MixtralForCausalLM", "Gemma2ForCausalLM"}) {
    const absl::Status status =
        CheckSplit(Parse(architecture, ""), WeightType::kAuto, 2);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
    EXPECT_THAT(status.ToString(), HasSubstr(architecture));
  }
}

TEST(TensorShardTest, SplitsTheRowsOfWhatGoesIntoHeadsAndGates) {
  for (const TensorRole role :
       {TensorRole::kQuery, TensorRole::kKeyBias, TensorRole::kValue,
        TensorRole::kGate, TensorRole::kUpBias}) {
    EXPECT_TRUE(HasSplitRows(role));
  }
  for (const TensorRole role :
       {TensorRole::kEmbedding, TensorRole::kInputNorm, TensorRole::kQueryNorm,
        TensorRole::kAttentionOutput, TensorRole::kAttentionOutputBias,
        TensorRole::kDown, TensorRole::kDownBias, TensorRole::kFinalNorm}) {
    EXPECT_FALSE(HasSplitRows(role));
  }
}

}  // namespace
}  // namespace nacre::model
