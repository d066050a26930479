#include <gtest/gtest.h>

#include <string>

#include "tests/chat/render.h"

namespace nacre::chat {
namespace {

void ExpectExhausted(std::string_view source, std::string_view message,
                     Limits limits = {}) {
  const auto text = RenderSource(source, "{}", limits);
  ASSERT_FALSE(text.ok()) << *text;
  EXPECT_EQ(text.status().code(), absl::StatusCode::kResourceExhausted)
      << text.status();
  EXPECT_NE(std::string(text.status().message()).find(message),
            std::string::npos)
      << text.status();
}

std::string Times(std::string_view text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

TEST(TemplateLimits, Source) {
  ExpectExhausted("12345678901", "11 bytes, over 10", {.source_bytes = 10});
}

TEST(TemplateLimits, NestedParenthesesAtParse) {
  const auto nested = [](int count) {
    return "{{ " + Times("(", count) + "1" + Times(")", count) + " }}";
  };
  EXPECT_TRUE(RenderSource(nested(40)).ok());
  ExpectExhausted(nested(100'000), "nested deeper than 100 levels");
  ExpectExhausted("{{ " + Times("[", 100'000) + Times("]", 100'000) + " }}",
                  "nested deeper");
  ExpectExhausted("{{ " + Times("not ", 100'000) + "1 }}", "nested deeper");
  ExpectExhausted("{{ " + Times("-", 100'000) + "1 }}", "nested deeper");
  ExpectExhausted(
      "{% set " + Times("(", 100'000) + "x" + Times(")", 100'000) + " = 1 %}",
      "nested deeper");
  ExpectExhausted(Times("{% if 1 %}", 50'000), "nested deeper");
}

TEST(TemplateLimits, LongChainsOfOperators) {
  EXPECT_EQ(Shown("{{ 0" + Times(" + 1", 500) + " }}"), "500");
  ExpectExhausted("{{ 0" + Times(" + 1", 100'000) + " }}", "nested deeper");
  ExpectExhausted("{{ ''" + Times(" | upper", 50'000) + " }}", "nested deeper");
}

TEST(TemplateLimits, RecursiveMacro) {
  ExpectExhausted("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "deeper");
  EXPECT_EQ(Shown("{% macro f(n) %}{{ n }}{% if n %}{{ f(n - 1) }}{% endif %}"
                  "{% endmacro %}{{ f(3) }}"),
            "3210");
}

TEST(TemplateLimits, RecursiveLoop) {
  ExpectExhausted("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
                  "deeper");
}

TEST(TemplateLimits, Steps) {
  ExpectExhausted(
      "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}"
      "{% endfor %}",
      "more than 1000000 steps");
  ExpectExhausted("{{ [1] * 999999999 }}", "steps");
  ExpectExhausted("{{ 'a'.center(9999999999) }}", "");
}

TEST(TemplateLimits, TheEndsOfTheIntegers) {
  const std::string least = "(-9223372036854775807 - 1)";
  EXPECT_EQ(Shown("{{ " + least + " // 3 }}"), "-3074457345618258603");
  EXPECT_EQ(Shown("{{ " + least + " // -3 }}"), "3074457345618258602");
  EXPECT_EQ(Shown("{{ " + least + " // 1 }}"), "-9223372036854775808");
  EXPECT_EQ(Shown("{{ 9223372036854775807 // -2 }}"), "-4611686018427387904");
  EXPECT_EQ(Shown("{{ 6 // -3 }} {{ -7 // 2 }} {{ 0 // -5 }}"), "-2 -4 0");
  EXPECT_EQ(RenderSource("{{ " + least + " // -1 }}").status().code(),
            absl::StatusCode::kUnimplemented);
  for (const char* method : {"center", "ljust", "rjust", "zfill"}) {
    EXPECT_EQ(Shown("{{ 'ab'." + std::string(method) + "(" + least + ") }}"),
              "ab");
  }
  EXPECT_EQ(Shown("{{ 'ab' | center(" + least + ") }}"), "ab");
}

TEST(TemplateLimits, Output) {
  ExpectExhausted("{{ 'a' * 11 }}", "longer than 10 bytes",
                  {.output_bytes = 10});
  ExpectExhausted("{{ 'a' * 6 }}{{ 'a' * 6 }}", "longer than 10 bytes",
                  {.output_bytes = 10});
  ExpectExhausted("{{ 'a' * 999999999999 }}", "longer than");
  ExpectExhausted("{{ ('a' * 99999).replace('', 'b' * 99999) }}",
                  "longer than");
}

TEST(TemplateLimits, ValuesThatHoldThemselves) {
  ExpectExhausted("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
                  "nested deeper");
  ExpectExhausted(
      "{% set ns = namespace(x=[]) %}{% for i in range(5000) %}"
      "{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson }}",
      "nested deeper");
}

TEST(TemplateLimits, DeepMessages) {
  const auto parsed = ChatTemplate::Parse("{{ messages }}");
  ASSERT_TRUE(parsed.ok());
  nlohmann::ordered_json deep;
  for (int i = 0; i < 2000; ++i) {
    deep = nlohmann::ordered_json::array({std::move(deep)});
  }
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  messages.push_back({{"content", std::move(deep)}});
  EXPECT_EQ(parsed->Render(messages).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace nacre::chat
