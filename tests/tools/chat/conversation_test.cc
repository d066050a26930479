#include "tools/chat/conversation.h"

#include <gtest/gtest.h>

#include <string>

#include "common/files.h"
#include "tokenizer/tokenizer.h"
#include "tools/cluster/temporary_folder.h"

namespace nacre::tools {
namespace {

gateway::ChatPrompts Prompts(const std::string& chat_template) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/chat.jinja";
  EXPECT_TRUE(WriteFile(file, chat_template).ok());
  const auto tokenizer = tokenizer::LoadTokenizer(NACRE_MODELS "/target");
  return *gateway::ChatPrompts::Load(
      {.model_dir = NACRE_MODELS "/target", .file = file}, **tokenizer);
}

TEST(ConversationTest, WithoutATemplateTheTextGoesOn) {
  Conversation conversation(std::nullopt);
  EXPECT_FALSE(conversation.has_template());
  EXPECT_EQ(*conversation.PromptFor("one "), "one ");
  conversation.Add("one ", "two ");
  EXPECT_EQ(*conversation.PromptFor("three"), "one two three");
  conversation.Reset();
  EXPECT_EQ(*conversation.PromptFor("three"), "three");
}

TEST(ConversationTest, ATemplateMakesThePromptOfAllMessages) {
  Conversation conversation(Prompts(
      "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}"
      "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"));
  EXPECT_TRUE(conversation.has_template());
  EXPECT_EQ(*conversation.PromptFor("a"), "<s>[user]a[assistant]");
  conversation.Add("a", "b");
  EXPECT_EQ(*conversation.PromptFor("c"),
            "<s>[user]a[assistant]b[user]c[assistant]");
  conversation.Reset();
  EXPECT_EQ(*conversation.PromptFor("c"), "<s>[user]c[assistant]");
}

TEST(ConversationTest, ATemplateMayRefuse) {
  const Conversation conversation(
      Prompts("{{ raise_exception('no ' + messages[0].content) }}"));
  const auto prompt = conversation.PromptFor("dice");
  EXPECT_TRUE(absl::IsInvalidArgument(prompt.status())) << prompt.status();
}

}  // namespace
}  // namespace nacre::tools
