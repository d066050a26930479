#include "gateway/served_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nacre::gateway {
namespace {

using ::testing::ElementsAre;

TEST(ServedFlagsTest, ReadsEveryFlag) {
  ServedFlags served;
  FlagSet flags("nacre-x", "");
  served.Register(&flags);
  ASSERT_TRUE(
      flags
          .Parse({"--served-model-name=a", "--served-model-name", "b",
                  "--chat-template=t", "--tokenizer-config=c",
                  "--escape-special-tokens", "--trust-request-chat-template",
                  "--default-max-tokens=7", "--no-ui"},
                 nullptr)
          .ok());
  EXPECT_THAT(served.names, ElementsAre("a", "b"));
  EXPECT_EQ(served.chat_template, "t");
  EXPECT_EQ(served.tokenizer_config, "c");
  EXPECT_TRUE(served.escape_special_tokens);
  EXPECT_TRUE(served.trust_request_chat_template);
  EXPECT_EQ(served.default_max_tokens, 7);
  EXPECT_TRUE(served.no_ui);
  EXPECT_TRUE(served.Validate().ok());
  served.default_max_tokens = -1;
  EXPECT_EQ(served.Validate().message(), "--default-max-tokens is -1, below 0");
}

}  // namespace
}  // namespace nacre::gateway
