#include "chat/parser.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/chat/render.h"

namespace nacre::chat {
namespace {

void ExpectRefused(std::string_view source, std::string_view message,
                   absl::StatusCode code) {
  const auto program = ParseProgram(source, {});
  ASSERT_FALSE(program.ok()) << source;
  EXPECT_EQ(program.status().code(), code) << program.status();
  EXPECT_NE(std::string(program.status().message()).find(message),
            std::string::npos)
      << program.status();
}

TEST(Parser, UnsupportedNamesAreRefusedWithTheirLine) {
  const auto refused = [](std::string_view source, std::string_view message) {
    ExpectRefused(source, message, absl::StatusCode::kUnimplemented);
  };
  refused("\n\n{{ x | urlize }}", "line 3: the filter 'urlize'");
  refused("{{ x is escaped }}", "line 1: the test 'escaped'");
  refused("a\n{% include 'x' %}", "line 2: the tag 'include'");
  refused("{% block x %}{% endblock %}", "the tag 'block'");
  refused("{{ ''.format(1) }}", "the method 'format'");
  refused("{{ cycler(1) }}", "'cycler'");
  refused("{{ x[1, 2] }}", "','");
  refused("{{ 99999999999999999999 }}", "64 bits");
  refused("{{ é }}", "outside ASCII");
}

TEST(Parser, MalformedTemplatesAreRefusedWithTheirLine) {
  const auto bad = [](std::string_view source, std::string_view message) {
    ExpectRefused(source, message, absl::StatusCode::kInvalidArgument);
  };
  bad("{% if x %}", "expected 'endif'");
  bad("\n{% for x %}{% endfor %}", "line 2: expected 'in'");
  bad("{{ 1 +", "a tag does not end");
  bad("{# x", "a comment does not end");
  bad("{% raw %}", "a raw block does not end");
  bad("{{ 'x }}", "a string does not end");
  bad("{{ (1] }}", "unexpected ']'");
  bad("{{ }}", "expected an expression");
  bad("{% nonsense %}", "unknown tag 'nonsense'");
  bad("{% endif %}", "unknown tag 'endif'");
  bad("{% break %}", "outside of a loop");
  bad("{{ a $ b }}", "unexpected character");
  bad("{{ f(a=1, 2) }}", "wrong order");
  bad("{{ f(a=1, a=2) }}", "twice");
  bad("{% macro f(a=1, b) %}{% endmacro %}", "default");
  bad("{% set true = 1 %}", "cannot be assigned");
  bad("{% call x %}{% endcall %}", "expected a call");
  bad("{{ '\\x4' }}", "\\x");
  bad("a\xFFz", "no UTF-8 at byte 1");
}

// A bug that planted "none" wherever a token is missing would pass the above.
TEST(Parser, ParseErrorsComeFromParseNotRender) {
  const auto parsed =
      ChatTemplate::Parse("{% if false %}{{ x | nope }}{% endif %}");
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kUnimplemented);
}

TEST(Parser, WhitespaceControl) {
  EXPECT_EQ(Shown("a\n  {% if 1 %}\n  b\n  {% endif %}\nc\n"), "a\n  b\nc");
  EXPECT_EQ(Shown("a\n {%- if 1 -%} \n b {%- endif %}\n c"), "ab c");
  EXPECT_EQ(Shown(" {%+ if 1 +%}\nb{% endif %}"), " \nb");
  EXPECT_EQ(Shown("{{ 1 }}\n{{- 2 -}}\n 3"), "123");
  EXPECT_EQ(Shown("  {# c #}\nx {#- c -#} y"), "xy");
  EXPECT_EQ(Shown("{% raw %}{{ x }}{% endraw %}\nz"), "{{ x }}z");
  EXPECT_EQ(Shown("a\r\nb\rc\r\n"), "a\nb\nc");
}

}  // namespace
}  // namespace nacre::chat
