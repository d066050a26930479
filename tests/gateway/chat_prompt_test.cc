#include "gateway/chat_prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>

namespace nacre::gateway {
namespace {

class ChatPromptTest : public ::testing::Test {
 protected:
  ChatPromptTest() {
    std::string pattern = ::testing::TempDir() + "/chatXXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ + "/" + name) << text;
    return folder_ + "/" + name;
  }
  absl::StatusOr<ChatPrompts> Load(chat::TemplateFiles options) {
    options.model_dir = folder_;
    return ChatPrompts::Load(options, *tokenizer_);
  }

  const std::unique_ptr<tokenizer::Tokenizer> tokenizer_ =
      *tokenizer::LoadTokenizer(NACRE_MODELS "/target");
  std::string folder_;
};

TEST_F(ChatPromptTest, TheFirstSourceIsTaken) {
  EXPECT_EQ(Load({})->source(), "");
  Write("tokenizer_config.json", R"({"chat_template": "config"})");
  EXPECT_EQ(Load({})->source(), "config");
  Write("chat_template.jinja", "own");
  EXPECT_EQ(Load({})->source(), "own");
  const std::string file = Write("file", "given");
  EXPECT_EQ(Load({.file = file})->source(), "given");
}

TEST_F(ChatPromptTest, AListHasNames) {
  const std::string file = Write("c.json", R"({"chat_template": [
      {"name": "tool_use", "template": "t"},
      {"name": "default", "template": "d"}]})");
  EXPECT_EQ(Load({.tokenizer_config = file})->source(), "d");
}

TEST_F(ChatPromptTest, WhatIsNoTemplateIsAnError) {
  EXPECT_FALSE(Load({.file = folder_ + "/none"}).ok());
  for (const char* text :
       {"[]", "{", R"({"chat_template": 1})", R"({"chat_template": [1]})",
        R"({"chat_template": [{"name": "x"}]})"}) {
    EXPECT_EQ(Load({.tokenizer_config = Write("c.json", text)}).status().code(),
              absl::StatusCode::kInvalidArgument)
        << text;
  }
}

// Without one, never a guess.
TEST_F(ChatPromptTest, WithoutATemplateThereAreNoChats) {
  const OrderedJson messages = {{{"role", "user"}, {"content", "hi"}}};
  EXPECT_FALSE(Load({})->Render({.messages = messages}).ok());
}

TEST_F(ChatPromptTest, MessagesBecomeText) {
  const std::string file = Write(
      "file",
      "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}]{{ m['content'] "
      "}}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
      "{{ mood }}");
  const auto chats = Load({.file = file});
  ASSERT_TRUE(chats.ok()) << chats.status();
  // The template does not know developers.
  ChatPrompts::Chat chat = {
      .messages = {{{"role", "developer"}, {"content", "a"}},
                   {{"role", "user"}, {"content", "b"}}},
      .values = {{"mood", "!"}}};
  EXPECT_EQ(chats->Render(chat)->text, "<s>[system]a[user]b[assistant]!");
  chat.add_generation_prompt = false;
  EXPECT_EQ(chats->Render(chat)->text, "<s>[system]a[user]b!");
}

TEST_F(ChatPromptTest, ToolsHaveATemplateOfTheirOwn) {
  const std::string file = Write("c.json", R"({"chat_template": [
      {"name": "tool_use", "template": "{{ tools | length }} tools"},
      {"name": "default", "template": "none"}]})");
  const auto chats = Load({.tokenizer_config = file});
  ASSERT_TRUE(chats.ok()) << chats.status();
  const OrderedJson messages = {{{"role", "user"}, {"content", "b"}}};
  EXPECT_EQ(chats->Render({.messages = messages})->text, "none");
  EXPECT_EQ(chats->Render({.messages = messages, .tools = {1, 2}})->text,
            "2 tools");
}

TEST_F(ChatPromptTest, WhatATemplateRefusesIsTold) {
  EXPECT_FALSE(Load({.file = Write("file", "{% if %}")}).ok());
  const std::string file = Write("file", "{{ raise_exception('not so') }}");
  const auto refused =
      Load({.file = file})->Render({.messages = {{{"role", "user"}}}});
  EXPECT_THAT(std::string(refused.status().message()),
              ::testing::HasSubstr("not so"));
}

}  // namespace
}  // namespace nacre::gateway
