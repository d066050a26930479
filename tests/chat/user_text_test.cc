#include <gtest/gtest.h>

#include <string>

#include "chat/chat_template.h"
#include "common/json.h"

namespace nacre::chat {
namespace {

using Ordered = nlohmann::ordered_json;

// The prompt with the user's parts in brackets.
std::string Marked(std::string_view source, std::string_view content) {
  const auto parsed = ChatTemplate::Parse(source);
  if (!parsed.ok()) return std::string(parsed.status().message());
  // Compilers differ in what a list of one JSON value is.
  const Ordered messages = Ordered::array(
      {Ordered{{"role", "user"}, {"content", std::string(content)}}});
  const auto prompt = parsed->RenderMarked(messages);
  if (!prompt.ok()) return std::string(prompt.status().message());
  std::string shown;
  size_t at = 0;
  for (const TextRange& range : prompt->user_text) {
    EXPECT_LT(range.begin, range.end);
    EXPECT_TRUE(at == 0 || range.begin > at) << "ranges touch";
    shown += prompt->text.substr(at, range.begin - at);
    shown +=
        "[" + prompt->text.substr(range.begin, range.end - range.begin) + "]";
    at = range.end;
  }
  return shown + prompt->text.substr(at);
}

TEST(UserText, IsMarkedWhereItIsPrinted) {
  EXPECT_EQ(Marked("<|{{ messages[0].role }}|>{{ messages[0].content }}<|end|>",
                   "<|end|>"),
            "<|[user]|>[<|end|>]<|end|>");
}

TEST(UserText, KeepsItsMarksThroughOperations) {
  constexpr char kSet[] = "{% set c = messages[0].content %}";
  const auto shown = [&](const std::string& expr, std::string_view content) {
    return Marked(std::string(kSet) + "<{{ " + expr + " }}>", content);
  };
  EXPECT_EQ(shown("'a' + c + 'b'", "x"), "<a[x]b>");
  EXPECT_EQ(shown("'a' ~ c ~ c ~ 'b'", "x"), "<a[xx]b>");
  EXPECT_EQ(shown("('ab' ~ c ~ 'cd')[1:4]", "xyz"), "<b[xy]>");
  EXPECT_EQ(shown("(' ' ~ c ~ ' ') | trim", " x "), "<[x]>");
  EXPECT_EQ(shown("('ab' ~ c).upper()", "é"), "<AB[É]>");
  EXPECT_EQ(shown("('a,' ~ c).split(',')[1]", "x,y"), "<[x]>");
  EXPECT_EQ(shown("c.replace('x', '-')", "axb"), "<[a]-[b]>");
  EXPECT_EQ(shown("'axb'.replace('x', c)", "<s>"), "<a[<s>]b>");
  EXPECT_EQ(shown("['a', c] | join('-')", "x"), "<a-[x]>");
  EXPECT_EQ(shown("[c]", "x'"), "<[\"[x']\"]>");
  EXPECT_EQ(shown("c[::-1]", "abc"), "<[cba]>");
  EXPECT_EQ(shown("c | indent(2)", "a\nb"), "<[a]\n  [b]>");
  EXPECT_EQ(shown("'%s!' % c", "x"), "<[x]!>");
}

TEST(UserText, JsonOfAUserIsTheUsers) {
  EXPECT_EQ(Marked("{{ messages[0] | tojson }}", "x"),
            R"([{"role": "user", "content": "x"}])");
  EXPECT_EQ(Marked("{{ {'a': 1} | tojson }}", "x"), R"({"a": 1})");
}

TEST(UserText, IsMarkedThroughMacrosAndBlocks) {
  EXPECT_EQ(Marked("{% macro m(x) %}<{{ x }}>{% endmacro %}"
                   "{{ m(messages[0].content) }}",
                   "u"),
            "<[u]>");
  EXPECT_EQ(
      Marked("{% set b %}({{ messages[0].content }}){% endset %}{{ b }}", "u"),
      "([u])");
  EXPECT_EQ(
      Marked("{% filter upper %}a{{ messages[0].content }}{% endfilter %}",
             "u"),
      "A[U]");
}

TEST(UserText, NothingOfATemplateIsMarked) {
  EXPECT_EQ(Marked("{{ bos_token }}a{{ 1 }}{{ 'x' }}", "u"), "a1x");
}

}  // namespace
}  // namespace nacre::chat
