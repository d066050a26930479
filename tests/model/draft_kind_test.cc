#include "model/draft_kind.h"

#include <string>

#include "gtest/gtest.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

using nacre::testing::TestFolder;
using nacre::testing::WriteFile;

TEST(DraftKindTest, KnowsTheBundledOnes) {
  const std::string models = NACRE_MODELS "/";
  EXPECT_EQ(FindDraftKind(models + "medusa"), DraftKind::kMedusa);
  EXPECT_EQ(FindDraftKind(models + "medusa/medusa_lm_head.safetensors"),
            DraftKind::kMedusa);
  EXPECT_EQ(FindDraftKind(models + "eagle"), DraftKind::kEagle);
  EXPECT_EQ(FindDraftKind(models + "glide"), DraftKind::kGlide);
  for (const char* model : {"draft", "target", "distilled", "eesd"}) {
    EXPECT_EQ(FindDraftKind(models + model), DraftKind::kModel) << model;
  }
  EXPECT_EQ(FindDraftKind(models + "nothing"), DraftKind::kUnknown);
}

TEST(DraftKindTest, KnowsThemByWhatPublishersWrite) {
  const struct {
    const char* file;
    const char* text;
    DraftKind kind;
  } kCases[] = {
      {"config.json", R"({"medusa_num_heads": 4})", DraftKind::kMedusa},
      {"config.json", R"({"architectures": ["MedusaModel"]})",
       DraftKind::kMedusa},
      {"config.json", R"({"model_type": "medusa"})", DraftKind::kMedusa},
      {"medusa_lm_head.pt", "", DraftKind::kMedusa},
      {"nacre_draft.json", R"({"method": "medusa:heads=4"})",
       DraftKind::kMedusa},
      {"config.json", R"({"architectures": ["LlamaForCausalLMEagle3"]})",
       DraftKind::kEagle},
      {"config.json", R"({"architectures": ["smallLlamaForCausalLM"]})",
       DraftKind::kGlide},
      {"config.json", R"({"large_num_attention_heads": 4})", DraftKind::kGlide},
      {"nacre_draft.json", R"({"method": "glide:steps=5"})", DraftKind::kGlide},
      {"config.json", R"({"architectures": ["LlamaForCausalLM"]})",
       DraftKind::kModel},
      {"config.json", R"({"architectures": ["MambaForCausalLM"]})",
       DraftKind::kUnknown},
      {"config.json", "{", DraftKind::kUnknown},
      {"nacre_draft.json", R"({"method": 7})", DraftKind::kUnknown}};
  for (const auto& each : kCases) {
    const std::string folder = TestFolder("draft_kind");
    WriteFile(folder + "/" + each.file, each.text);
    EXPECT_EQ(FindDraftKind(folder), each.kind) << each.text;
  }
}

// Heads may be published beside their model.
TEST(DraftKindTest, AModelWithItsHeadsIsAModel) {
  const std::string folder = TestFolder("draft_kind_both");
  WriteFile(folder + "/config.json",
            R"({"architectures": ["LlamaForCausalLM"]})");
  WriteFile(folder + "/medusa_lm_head.pt", "");
  EXPECT_EQ(FindDraftKind(folder), DraftKind::kModel);
}

}  // namespace
}  // namespace nacre::model
