#include "model/families.h"

#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kArchitectures[] = {
    "LlamaForCausalLM",     "MistralForCausalLM", "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",     "Phi3ForCausalLM",    "MixtralForCausalLM",
    "Qwen3MoeForCausalLM",  "GemmaForCausalLM",   "Gemma2ForCausalLM",
    "Gemma3ForCausalLM",    "GPTNeoXForCausalLM", "Starcoder2ForCausalLM",
    "GPTBigCodeForCausalLM"};

TEST(FamiliesTest, EachIsFoundByItsArchitecture) {
  for (const std::string architecture : kArchitectures) {
    const Family* const family = FindFamily(architecture);
    ASSERT_NE(family, nullptr) << architecture;
    EXPECT_EQ(family->architecture, architecture);
    EXPECT_THAT(SupportedArchitectures(),
                HasSubstr("\"" + architecture + "\""));
  }
  EXPECT_EQ(FindFamily(""), nullptr);
  EXPECT_EQ(FindFamily("MambaForCausalLM"), nullptr);
  EXPECT_EQ(FindFamily("llamaforcausallm"), nullptr);
}

TEST(FamiliesTest, MessagesListThem) {
  EXPECT_THAT(SupportedArchitectures(),
              StartsWith("\"LlamaForCausalLM\", \"MistralForCausalLM\", "
                         "\"Qwen2ForCausalLM\", \"Qwen3ForCausalLM\""));
  EXPECT_EQ(AllFamilies().size(), std::size(kArchitectures));
  for (const Family& family : AllFamilies()) {
    EXPECT_NE(std::string(family.models), "") << family.architecture;
  }
}

// docs/models.md lists what the rows say, with the backends of all builds.
TEST(FamiliesTest, TheDocumentHasTheirTable) {
  const std::string text = nacre::testing::ReadFile("docs/models.md");
  for (const Family& family : AllFamilies()) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat("| ", family.models, " | `",
                                             family.architecture, "` | ",
                                             "cpu, cuda, reference |\n")));
  }
}

}  // namespace
}  // namespace nacre::model
