// Regular expressions against what `tokenizers` finds (patterns.json), and what
// is refused.

#include "tokenizer/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/json.h"
#include "tests/tokenizer/goldens.h"
#include "tokenizer/pattern_translator.h"
#include "tokenizer/unicode_additions.h"
#include "tokenizer/utf8.h"

namespace nacre::tokenizer {
namespace {

using ::nlohmann::json;
using ::testing::HasSubstr;

json Goldens() { return json::parse(ReadTestFile("patterns.json")); }

// All assigned code points and some others, or those of them that Unicode 14
// says the same of.
std::string AllCharacters(bool additions) {
  std::string text;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    if (c >= 0x33000 && c < 0xE0000) continue;
    if (c >= 0xE0200 && c < 0x10FF00) continue;
    if (additions || FindUnicodeAddition(c) == nullptr) AppendUtf8(c, &text);
  }
  return text;
}

// What `pattern` finds in `text`, joined.
std::string Found(const std::string& pattern, const std::string& text) {
  const auto regex = Regex::Compile(pattern, "test");
  EXPECT_TRUE(regex.ok()) << regex.status();
  if (!regex.ok()) return "";
  std::string found;
  const auto matches = regex->FindAll(text);
  EXPECT_TRUE(matches.ok()) << matches.status();
  if (!matches.ok()) return "";
  for (const TextRange& match : *matches) {
    found += text.substr(match.begin, match.end - match.begin);
  }
  return found;
}

std::vector<char32_t> CodePoints(absl::string_view text) {
  std::vector<char32_t> code_points;
  for (size_t i = 0, size = 0; i < text.size(); i += size) {
    code_points.push_back(DecodeUtf8(text.substr(i), &size));
  }
  return code_points;
}

uint64_t Fnv1a(const std::vector<char32_t>& code_points) {
  uint64_t value = 0xcbf29ce484222325;
  for (const char32_t c : code_points) {
    for (int shift = 0; shift < 32; shift += 8) {
      value = (value ^ (c >> shift & 0xFF)) * 0x100000001b3;
    }
  }
  return value;
}

// Gap, match, gap, match, ... in characters; empty matches left out.
std::vector<size_t> Lengths(const std::string& text,
                            const std::vector<TextRange>& matches) {
  const auto characters = [&](size_t begin, size_t end) {
    return CodePoints(absl::string_view(text).substr(begin, end - begin))
        .size();
  };
  std::vector<size_t> lengths;
  size_t done = 0;
  for (const TextRange& match : matches) {
    if (match.begin == match.end) continue;
    lengths.push_back(characters(done, match.begin));
    lengths.push_back(characters(match.begin, match.end));
    done = match.end;
  }
  return lengths;
}

TEST(RegexTest, SetsHaveTheLibrarysCharacters) {
  const json goldens = Goldens();
  ASSERT_GT(goldens["sets"].size(), 90u);
  const std::string all = AllCharacters(/*additions=*/true);
  const std::string old = AllCharacters(/*additions=*/false);
  for (const json& golden : goldens["sets"]) {
    const std::string pattern = golden["pattern"];
    SCOPED_TRACE(pattern);
    const std::string found = Found(pattern, all);
    const std::vector<char32_t> code_points = CodePoints(found);
    // Unicode 14 has one character in Mn that Unicode 16 has in Mc.
    if (pattern == "\\p{Mn}") {
      EXPECT_EQ(code_points.size(), golden["count"].get<size_t>() + 1);
      continue;
    }
    EXPECT_EQ(code_points.size(), golden["count"].get<size_t>());
    EXPECT_EQ(absl::StrFormat("%016x", Fnv1a(code_points)), golden["hash"]);
    // The faster pattern, which texts without new characters get.
    std::string expected;
    for (const char32_t c : code_points) {
      if (FindUnicodeAddition(c) == nullptr) AppendUtf8(c, &expected);
    }
    EXPECT_TRUE(Found(pattern, old) == expected);
  }
}

// Of two bytes, three or four: one is enough, and where it stands is no matter.
TEST(RegexTest, ANewCharacterIsKnownAlsoWhereItIsTheOnlyOne) {
  const auto regex = Regex::Compile("[\\p{L}\\p{M}]+", "test");
  ASSERT_TRUE(regex.ok()) << regex.status();
  for (const char32_t c : {0x897, 0xCF3, 0x1C89, 0xA7CB, 0x105C0, 0x10D50}) {
    for (const size_t before : {0u, 1u, 7u, 8u, 20u}) {
      for (const char* behind : {"", "bc"}) {
        std::string text(before, 'a');
        AppendUtf8(c, &text);
        text += behind;
        const auto matches = regex->FindAll(text);
        ASSERT_TRUE(matches.ok()) << matches.status();
        ASSERT_EQ(matches->size(), 1u) << std::hex << static_cast<uint32_t>(c);
        EXPECT_EQ((*matches)[0].end, text.size());
      }
    }
  }
}

TEST(RegexTest, PatternsFindTheLibrarysMatches) {
  const json goldens = Goldens();
  const auto texts = goldens["texts"].get<std::vector<std::string>>();
  ASSERT_GT(goldens["patterns"].size(), 100u);
  for (const json& golden : goldens["patterns"]) {
    const std::string pattern = golden["pattern"];
    SCOPED_TRACE(pattern);
    const auto regex = Regex::Compile(pattern, "test");
    ASSERT_TRUE(regex.ok()) << regex.status();
    ASSERT_EQ(golden["matches"].size(), texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      SCOPED_TRACE(texts[i]);
      EXPECT_EQ(Lengths(texts[i], *regex->FindAll(texts[i])),
                golden["matches"][i].get<std::vector<size_t>>());
    }
  }
}

void ExpectRefused(const std::string& pattern, absl::StatusCode code,
                   const std::string& message) {
  const auto regex = Regex::Compile(pattern, "p.q");
  ASSERT_FALSE(regex.ok()) << pattern;
  EXPECT_EQ(regex.status().code(), code) << regex.status();
  EXPECT_THAT(std::string(regex.status().message()), HasSubstr(message));
  EXPECT_THAT(std::string(regex.status().message()),
              HasSubstr("p.q '" + std::string(CutUtf8(pattern, 64))));
}

TEST(RegexTest, RefusesWhatHasNoTranslation) {
  const auto refused = [](const char* pattern, const char* message) {
    ExpectRefused(pattern, absl::StatusCode::kUnimplemented, message);
  };
  refused("a\\X", "has '\\X' at byte 2, which is not supported");
  for (const char* escape :
       {"N",   "O",        "y",         "Y",       "g<1>", "cA",   "M-a",
        "q",   "Q",        "pL",        "xff",     "x",    "u12",  "101",
        "x80", "x{41 42}", "x{110000}", "x{D800}", "k'n'", "k<1>", "1"}) {
    refused((std::string("a\\") + escape).c_str(), "which is not supported");
  }
  refused("[\\X]", "'\\X'");
  refused("[\\377]", "'\\377'");
  refused("\\p{Is_L?}", "the property 'Is_L?'");
  refused("\\p{Unknown}", "the property 'Unknown'");
  refused("\\p{Klingon}", "has a property that is not supported");
  refused("\\p{Alphabetic}", "has a property that is not supported");
  refused("[[:foo:]]", "'[:foo:]'");
  refused("[[:x]", "'[:' in brackets");
  // Unicode 16 has these otherwise for old characters too.
  for (const char* name : {"alpha", "alnum", "upper", "lower"}) {
    refused(absl::StrFormat("[[:%s:]]", name).c_str(), "which is not");
  }
  refused("[[\\p{L}]--[a-z]]", "a '-' behind what begins no range");
  refused("[&&a]", "'&&' without a left side");
  refused("[a&&]", "'&&' without a right side");
  refused("[\\w-.]", "a '-' behind what begins no range");
  refused("[a-z&&-b]", "a '-' behind what begins no range");
  refused("[a-\\d]", "a range that ends in no character");
  refused("[a-[b]]", "a range that ends in no character");
  refused("(?s:.)", "'(?s:.)'");
  refused("(?~a)", "'(?~a)'");
  refused("(?)", "'(?'");
  refused("(?P<n>a)", "'(?P<n>a)'");
  refused("(?<1>a)", "the name of a group");
  refused("(*FAIL)", "'(*'");
  refused("(?#a\\)b)c", "a comment of this form");
  refused("(?x: \u00A0)", "white space beyond ASCII");
  refused("a+*", "a quantifier of a quantifier");
  refused("a++?", "a quantifier of a quantifier");
  refused("a{1,2}?+", "a quantifier of a quantifier");
  refused("a{3,2}", "an interval that counts down");
  refused("a{70000}", "a repetition over 65535");
  refused("^*", "a quantifier after what it cannot repeat");
  refused("(?=a)+", "a quantifier after what it cannot repeat");
  refused("(?i:ss)", "'ss' under (?i)");
  refused("(?i:St)", "'st' under (?i)");
  refused("(?i)(?:F)I", "'fi' under (?i)");
  refused("(?i:ff)", "'ff' under (?i)");
  refused("(?i:FL)", "'fl' under (?i)");
  refused("(?i:\u00E9)", "a character beyond ASCII under (?i)");
  refused("(?i:[\u00E0-\u00FF])", "a character beyond ASCII under (?i)");
  refused("(?i:[a-\u00FF])", "a character beyond ASCII under (?i)");
  refused("(?i:[\\p{L}])", "a property in brackets under (?i)");
  refused("(?i:[[:alpha:]])", "under (?i)");
  refused("(?i:[a[b]])", "under (?i)");
  refused("(?i:[a&&b])", "under (?i)");
  refused("(?i:(a)\\1)", "a reference under (?i)");
  std::string deep;
  for (int i = 0; i < 70; ++i) deep += "(";
  refused(deep.c_str(), "nesting deeper than 64");
  refused(std::string(70, '[').c_str(), "nesting deeper than 64");
  std::string words;
  for (int i = 0; i < 30'000; ++i) words += "\\b";
  refused(words.c_str(), "a translation of more than 1048576 bytes");
}

TEST(RegexTest, RefusesWhatIsMalformed) {
  const auto invalid = [](const char* pattern, const char* message) {
    ExpectRefused(pattern, absl::StatusCode::kInvalidArgument, message);
  };
  invalid("a[", "' is no regular expression: a class without its ']'");
  invalid("[]", "an empty class");
  invalid("[a", "a class without its ']'");
  invalid("[b-a]", "a range that counts down");
  invalid("(a", "a group without its ')'");
  invalid("a)", "an unmatched ')' at byte 1");
  invalid("*a", "a quantifier without anything before");
  invalid("a|{2}", "a quantifier without anything before");
  invalid("a\\", "a '\\' without anything behind");
  invalid("[\\", "a '\\' without anything behind");
  invalid("\\p{L", "without its '}'");
  invalid("(?i", "a group without its ')'");
  invalid("(?<n>a)(b)\\1", "a reference by number beside named groups");
  invalid("\xFF", "invalid UTF-8");
  // What only PCRE2 finds.
  invalid("(?<=a+)b", "lookbehind");
  EXPECT_EQ(Regex::Compile(std::string(70'000, 'a'), "p").status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(RegexTest, RunsOfOneToThreeNeedNoStack) {
  // As a group in a group each digit would take memory.
  const auto regex = *Regex::Compile(R"(\p{N}{1,3}+)", "test");
  const auto matches = regex.FindAll(std::string(3'000'000, '7'));
  ASSERT_TRUE(matches.ok()) << matches.status();
  EXPECT_EQ(matches->size(), 1u);
}

TEST(RegexTest, ARunOfUpToThreeMayBeEmpty) {
  EXPECT_EQ(Lengths("baaaac",
                    *Regex::Compile("ba{0,3}+c", "test")->FindAll("baaaac")),
            (std::vector<size_t>{0, 6}));
  EXPECT_EQ(Found("ba{0,3}+c", "bc"), "bc");
}

TEST(RegexTest, LettersOfTwoAlternativesAreNoPair) {
  EXPECT_EQ(Found("(?i:s|s|t)", "sSxT"), "sST");
  EXPECT_EQ(Found("(?i:f|l)", "fLx"), "fL");
}

TEST(RegexTest, ARangeMayBeOneCharacter) {
  EXPECT_EQ(Found("[a-a]", "abA"), "a");
}

// Where the stack of compiled code ends, the interpreter goes on.
TEST(RegexTest, DeepMatchesNeedNoStack) {
  const std::string text(100'000, 'a');
  EXPECT_EQ(Found("(?:a|b)+(?:$|c)", text), text);
}

TEST(RegexTest, IntersectionWithANegationIsOneClass) {
  EXPECT_EQ(*TranslatePattern(R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)",
                              /*additions=*/false),
            R"([^\p{sc:han}\p{N}\p{P}\p{S}\p{Z}\p{C}\p{Lu}\p{Lt}]+)");
}

TEST(RegexTest, LimitsAreErrors) {
  const std::string pattern = "(a+)+$x|(a+)+b|" + std::string(100, 'y');
  const auto regex = *Regex::Compile(pattern, "test");
  const absl::Status status = regex.FindAll(std::string(5000, 'a')).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  // Clients read this: no more than the pattern's beginning.
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("'" + pattern.substr(0, 64) + "...' failed at byte"));
}

// Where a place takes many steps the search goes from one to the next.
TEST(RegexTest, DearPlacesAreSearchedOneByOne) {
  const std::string dear = "(?:(?:a|a){12}b)";
  const std::string letters(40, 'a');
  const std::string text = letters + "x\u00E9" + letters + "b" + letters;
  const std::string found = "x\u00E9" + std::string(12, 'a') + "b";
  EXPECT_EQ(Found(dear + "|x|\u00E9", text), found);
  // And behind what is looked back at.
  EXPECT_EQ(Found(dear + "|(?<=a)x|(?<=x)\u00E9", text), found);
  EXPECT_EQ(Found(dear + "|z", letters), "");
  EXPECT_EQ(Found(dear + "|$", letters), "");
  // \G is where the search began, and so are the places then.
  EXPECT_EQ(Found(dear + "|\\Ga|x", letters + "x"), letters + "x");
  EXPECT_EQ(Found("\\G[x]|" + dear, letters + "x"), "");
}

TEST(RegexTest, AllMatchesTogetherHaveALimit) {
  const auto regex = *Regex::Compile("(?:(?:a|a){18}b)|a", "test");
  EXPECT_EQ(regex.FindAll(std::string(20, 'a'))->size(), 20u);
  const absl::Status status = regex.FindAll(std::string(2000, 'a')).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("failed at byte"));
  // A budget that several searches share.
  StepBudget steps(0);
  int searches = 0;
  const std::string text(20, 'a');
  const auto take = [](const TextRange&) { return absl::OkStatus(); };
  while (regex.ForEachMatch(text, take, &steps).ok()) ++searches;
  EXPECT_GE(searches, 1);
  EXPECT_LE(searches, 30);
}

TEST(RegexTest, EscapedTextFindsItself) {
  const std::string literal("a.b\\[x]\0\n(*)\xC3\xA9#-^", 17);
  const auto regex = Regex::Compile(Regex::Escape(literal), "test");
  ASSERT_TRUE(regex.ok()) << regex.status();
  const auto matches = regex->FindAll("__" + literal);
  ASSERT_EQ(matches->size(), 1u);
  EXPECT_EQ((*matches)[0].begin, 2u);
}

}  // namespace
}  // namespace nacre::tokenizer
