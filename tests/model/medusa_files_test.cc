#include "model/medusa_files.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nacre::model {
namespace {

using ::testing::HasSubstr;
using Names = std::vector<std::string>;

MedusaLayout Find(const Names& names) {
  const auto layout = FindMedusaLayout(names);
  EXPECT_TRUE(layout.ok()) << layout.status();
  return layout.value_or(MedusaLayout());
}

std::string Refusal(const Names& names) {
  const auto layout = FindMedusaLayout(names);
  EXPECT_EQ(layout.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(layout.status().message());
}

TEST(MedusaFilesTest, FilesOfVersion1) {
  const MedusaLayout layout =
      Find({"0.0.linear.bias", "0.0.linear.weight", "0.1.weight",
            "1.0.linear.bias", "1.0.linear.weight", "1.1.weight"});
  EXPECT_EQ(layout.kind, "medusa");
  ASSERT_EQ(layout.heads.size(), 2u);
  ASSERT_EQ(layout.heads[1].blocks.size(), 1u);
  EXPECT_EQ(layout.heads[1].blocks[0].weight, "1.0.linear.weight");
  EXPECT_EQ(layout.heads[1].blocks[0].bias, "1.0.linear.bias");
  EXPECT_EQ(layout.heads[1].vocabulary, "1.1.weight");
  EXPECT_EQ(layout.vocabulary, "");
}

TEST(MedusaFilesTest, FilesOfVersion2HaveNoVocabulary) {
  const MedusaLayout layout = Find(
      {"medusa_heads.0.0.linear.weight", "medusa_heads.0.1.linear.weight"});
  ASSERT_EQ(layout.heads.size(), 1u);
  EXPECT_EQ(layout.heads[0].blocks.size(), 2u);
  EXPECT_EQ(layout.heads[0].blocks[1].weight, "medusa_heads.0.1.linear.weight");
  EXPECT_EQ(layout.heads[0].blocks[0].bias, "");
  EXPECT_EQ(layout.heads[0].vocabulary, "");
}

TEST(MedusaFilesTest, FilesOfVllm) {
  const Names blocks = {"blocks.0.layers.0.weight", "blocks.0.layers.1.weight",
                        "blocks.1.layers.0.weight", "blocks.1.layers.1.weight"};
  Names names = blocks;
  EXPECT_EQ(Find(names).heads[0].vocabulary, "");
  names.push_back("lm_heads.0.weight");
  EXPECT_EQ(Find(names).vocabulary, "lm_heads.0.weight") << "of all heads";
  EXPECT_EQ(Find(names).heads[0].vocabulary, "");
  names.push_back("lm_heads.1.weight");
  names.push_back("token_map");
  const MedusaLayout layout = Find(names);
  EXPECT_EQ(layout.kind, "vllm");
  EXPECT_EQ(layout.vocabulary, "");
  EXPECT_EQ(layout.heads[1].vocabulary, "lm_heads.1.weight");
  EXPECT_EQ(layout.token_map, "token_map");
}

TEST(MedusaFilesTest, ParallelHeadsOfModelOpt) {
  Names names = {"parallel_draft_heads.0.medusa_layers.0.linear.weight",
                 "parallel_draft_heads.0.medusa_layers.0.linear.bias"};
  names.push_back("parallel_draft_heads.lm_head.weight");
  EXPECT_EQ(Find(names).kind, "modelopt");
  EXPECT_EQ(Find(names).vocabulary, "parallel_draft_heads.lm_head.weight");
  names.back() = "parallel_draft_heads.0.lm_head.weight";
  EXPECT_EQ(Find(names).heads[0].vocabulary, names.back());
  names.push_back("fc.weight");
  EXPECT_THAT(Refusal(names), HasSubstr("tensor fc.weight is none"));
}

TEST(MedusaFilesTest, RefusesWithTheTensor) {
  EXPECT_THAT(Refusal({}), HasSubstr("there is no head"));
  EXPECT_THAT(Refusal({"model.embed_tokens.weight"}),
              HasSubstr("tensor model.embed_tokens.weight is none of Medusa"));
  for (const char* name :
       {"00.0.linear.weight", "-1.0.linear.weight", "0.0.linear", "0.weight",
        "0.0.linear.weight.x", "x.0.linear.weight", "99999999999.0.weight"}) {
    EXPECT_THAT(Refusal({name}), HasSubstr(name)) << name;
  }
  const std::string hostile = "a\nb\x1b" + std::string(1 << 20, 'x');
  EXPECT_EQ(Refusal({hostile}).find_first_of("\n\x1b"), std::string::npos);
  EXPECT_LT(Refusal({hostile}).size(), 400u);
  EXPECT_THAT(Refusal({"16.0.linear.weight"}), HasSubstr("more than 16 heads"));
  EXPECT_THAT(Refusal({"0.9.linear.weight"}), HasSubstr("or 8 blocks"));
  EXPECT_THAT(Refusal({"0.0.linear.weight", "lm_heads.0.weight"}),
              HasSubstr("tensor lm_heads.0.weight is of a file of the kind "
                        "vllm, but 0.0.linear.weight of medusa"));
  EXPECT_THAT(Refusal({"0.0.linear.weight", "medusa_heads.0.0.linear.weight"}),
              HasSubstr("is there as 0.0.linear.weight, too"));
}

TEST(MedusaFilesTest, SaysWhatIsMissing) {
  EXPECT_THAT(Refusal({"0.0.linear.weight", "2.0.linear.weight"}),
              HasSubstr("the weight of block 0 of head 1 is missing"));
  EXPECT_THAT(Refusal({"0.0.linear.weight", "0.2.linear.weight"}),
              HasSubstr("the weight of block 1 of head 0 is missing"));
  EXPECT_THAT(Refusal({"0.0.linear.bias"}),
              HasSubstr("the weight of block 0 of head 0 is missing"));
  EXPECT_THAT(Refusal({"0.0.weight"}),
              HasSubstr("the weight of block 0 of head 0 is missing"));
  EXPECT_THAT(Refusal({"0.0.linear.weight", "0.2.weight"}),
              HasSubstr("tensor 0.2.weight is not behind the 1 blocks"));
  EXPECT_THAT(
      Refusal({"0.0.linear.weight", "0.1.linear.weight", "1.0.linear.weight"}),
      HasSubstr("head 1 has 1 blocks, head 0 has 2"));
  EXPECT_THAT(Refusal({"0.0.linear.weight", "1.0.linear.weight", "1.1.weight"}),
              HasSubstr("some heads have a vocabulary of their own"));
  EXPECT_THAT(Refusal({"blocks.0.layers.0.weight", "token_map"}),
              HasSubstr("tensor token_map maps the rows of a vocabulary"));
}

}  // namespace
}  // namespace nacre::model
