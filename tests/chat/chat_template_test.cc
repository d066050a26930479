#include "chat/chat_template.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/chat/render.h"

namespace nacre::chat {
namespace {

using Ordered = nlohmann::ordered_json;

Ordered OneMessage() {
  return Ordered::parse(R"([{"role": "user", "content": "hi"}])");
}

TEST(ChatTemplate, VariablesOfARender) {
  const auto parsed = ChatTemplate::Parse(
      "{{ bos_token }}{{ eos_token }}{{ pad_token }}|{{ tools }}|{{ documents "
      "}}|{{ add_generation_prompt }}|{{ thinking }}",
      {.bos_token = "B",
       .eos_token = "E",
       .special_tokens = {{"pad_token", "P"}}});
  ASSERT_TRUE(parsed.ok());
  RenderOptions options;
  options.add_generation_prompt = false;
  options.tools = Ordered::parse(R"([{"a": 1.0}])");
  options.extra = Ordered::parse(R"({"thinking": "t", "pad_token": "Q",
                                     "tools": "not these"})");
  EXPECT_EQ(*parsed->Render(OneMessage(), options),
            "BEQ|[{'a': 1.0}]|None|False|t");
}

TEST(ChatTemplate, TokensThatAreNotSetAreUndefined) {
  const auto parsed = ChatTemplate::Parse("{{ bos_token is defined }}");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(*parsed->Render(OneMessage()), "False");
}

TEST(ChatTemplate, MessagesMustBeAListOfObjects) {
  const auto parsed = ChatTemplate::Parse("x");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->Render(Ordered::object()).status().message(),
            "messages is a object, expected a list");
  EXPECT_EQ(parsed->Render(Ordered::array({1})).status().message(),
            "messages[0] is a number, expected an object");
  RenderOptions options;
  options.extra = 3;
  EXPECT_EQ(parsed->Render(OneMessage(), options).status().message(),
            "the template's variables are a number, expected an object");
}

TEST(ChatTemplate, BadValuesOfARequest) {
  const auto parsed = ChatTemplate::Parse("x");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->Render(Ordered::parse(R"([{"n": 18446744073709551615}])"))
                .status()
                .message(),
            "the number 18446744073709551615 is over 9223372036854775807");
  Ordered messages = OneMessage();
  messages[0]["content"] = "\xFF";
  EXPECT_EQ(parsed->Render(messages).status().message(),
            "a text of the request is no UTF-8");
}

TEST(ChatTemplate, ErrorsNameTheLine) {
  EXPECT_EQ(Shown("\n\n{{ raise_exception('Too bad') }}"),
            "[INVALID_ARGUMENT: chat template, line 3: the template refuses: "
            "Too bad]");
  EXPECT_EQ(Shown("\n{{ x.y }}"),
            "[INVALID_ARGUMENT: chat template, line 2: UndefinedError: 'x' is "
            "undefined]");
}

TEST(ChatTemplate, TheTimeIsAParameter) {
  const auto parsed =
      ChatTemplate::Parse("{{ strftime_now('%d %b %Y %H:%M:%S.%f %%') }}");
  ASSERT_TRUE(parsed.ok());
  RenderOptions options;
  options.now = absl::FromUnixMicros(1772694489123456);
  EXPECT_EQ(*parsed->Render(OneMessage(), options),
            "05 Mar 2026 07:08:09.123456 %");
  options.time_zone = absl::FixedTimeZone(3600);
  EXPECT_EQ(*parsed->Render(OneMessage(), options),
            "05 Mar 2026 08:08:09.123456 %");
}

TEST(ChatTemplate, ManyThreadsRenderOneTemplate) {
  const auto parsed = ChatTemplate::Parse(
      "{% for m in messages %}{% for i in range(50) %}{{ m.content ~ i }}"
      "{% endfor %}{% endfor %}");
  ASSERT_TRUE(parsed.ok());
  const std::string wanted = *parsed->Render(OneMessage());
  std::vector<std::thread> threads;
  std::vector<std::string> texts(8);
  for (std::string& text : texts) {
    threads.emplace_back([&parsed, &text] {
      for (int i = 0; i < 20; ++i) text = *parsed->Render(OneMessage());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) EXPECT_EQ(text, wanted);
}

}  // namespace
}  // namespace nacre::chat
