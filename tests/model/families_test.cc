#include "model/families.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nacre::model {
namespace {

using ::testing::HasSubstr;

constexpr const char* kArchitectures[] = {
    "LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM"};

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
  EXPECT_EQ(SupportedArchitectures(),
            "\"LlamaForCausalLM\", \"MistralForCausalLM\", "
            "\"Qwen2ForCausalLM\"");
}

}  // namespace
}  // namespace nacre::model
