// Small parts without a file format: UTF-8, tries, the byte alphabet, Unicode
// forms, regular expressions, splitting.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tokenizer/byte_level.h"
#include "tokenizer/prefix_trie.h"
#include "tokenizer/regex.h"
#include "tokenizer/text_split.h"
#include "tokenizer/unicode_normalization.h"
#include "tokenizer/utf8.h"

namespace nacre::tokenizer {
namespace {

TEST(Utf8Test, ValidExactlyForUnicodeScalarValues) {
  // Every two-byte sequence, and the borders of the longer ones.
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const std::string bytes = {static_cast<char>(first),
                                 static_cast<char>(second)};
      const bool ascii = first < 0x80 && second < 0x80;
      const bool two =
          first >= 0xC2 && first <= 0xDF && second >= 0x80 && second <= 0xBF;
      EXPECT_EQ(FindInvalidUtf8(bytes) == absl::string_view::npos,
                ascii || two);
    }
  }
  for (const char* valid : {"\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
                            "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_EQ(FindInvalidUtf8(valid), absl::string_view::npos) << valid;
    size_t size;
    std::string encoded;
    AppendUtf8(DecodeUtf8(valid, &size), &encoded);
    EXPECT_EQ(encoded, valid);
    EXPECT_EQ(DecodeLastUtf8(valid), DecodeUtf8(valid, &size));
  }
  for (const char* invalid :
       {"\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80",
        "\xF5\x80\x80\x80", "\xC1\xBF", "\x80", "\xE2\x82"}) {
    EXPECT_EQ(FindInvalidUtf8(invalid), 0u) << invalid;
  }
}

TEST(Utf8Test, AssemblerReplacesPerByteOrPerSubpart) {
  const auto assemble = [](Utf8Assembler::Replacement replacement) {
    Utf8Assembler assembler(replacement);
    std::string text;
    for (const char byte : std::string("a\xF0\x9F\x98z\xE2\x82")) {
      assembler.Append(std::string(1, byte), &text);
    }
    assembler.Finish(&text);
    return text;
  };
  const std::string r = kReplacementCharacter;
  EXPECT_EQ(assemble(Utf8Assembler::Replacement::kPerByte),
            "a" + r + r + r + "z" + r + r);
  EXPECT_EQ(assemble(Utf8Assembler::Replacement::kPerSubpart),
            "a" + r + "z" + r);
}

TEST(PrefixTrieTest, FindsTheLongestKey) {
  PrefixTrie trie;
  EXPECT_TRUE(trie.empty());
  EXPECT_EQ(trie.LongestPrefix("a").size, 0u);
  trie.Add("ab", 1);
  trie.Add("abcd", 2);
  trie.Add("b", 3);
  EXPECT_EQ(trie.LongestPrefix("abcx").value, 1);
  EXPECT_EQ(trie.LongestPrefix("abcd").value, 2);
  EXPECT_EQ(trie.LongestPrefix("abcd").size, 4u);
  EXPECT_EQ(trie.LongestPrefix("a").size, 0u);
  EXPECT_EQ(trie.LongestPrefix("").size, 0u);
}

TEST(ByteLevelTest, RoundTripsEveryByte) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte)
    bytes.push_back(static_cast<char>(byte));
  const std::string text = EncodeByteLevel(bytes);
  EXPECT_EQ(FindInvalidUtf8(text), absl::string_view::npos);
  EXPECT_EQ(DecodeByteLevel(text), bytes);
  EXPECT_EQ(EncodeByteLevel(" \n"), "\xC4\xA0\xC4\x8A");
  EXPECT_EQ(DecodeByteLevel("a b"), "a b");
}

TEST(UnicodeNormalizationTest, OrdersLongRunsOfMarks) {
  // Alternating classes in the wrong order: quadratic for a bubble sort.
  std::string text = "a";
  std::string sorted = "a";
  for (int i = 0; i < 40'000; ++i) text += i % 2 == 0 ? "\u0301" : "\u0323";
  for (int i = 0; i < 40'000; ++i) sorted += i < 20'000 ? "\u0323" : "\u0301";
  EXPECT_EQ(NormalizeUnicode(text, {.compatibility = false, .compose = false}),
            sorted);
}

TEST(UnicodeNormalizationTest, LowercasesCharacterByCharacter) {
  EXPECT_EQ(LowercaseUnicode("AÉΣ\u0130"), "aéσi\u0307");
}

TEST(RegexTest, SpaceAndWordClassesAreUnicodes) {
  const auto count = [](const char* pattern, const char* text) {
    return Regex::Compile(pattern, "test")->FindAll(text)->size();
  };
  EXPECT_EQ(count(R"(\s)", "\u180E \u00A0\u3000"), 3u);
  EXPECT_EQ(count(R"([^\s]+)", "a\u180Eb c"), 2u);
  EXPECT_EQ(count(R"([]\s]+)", "] ]"), 1u);
  EXPECT_EQ(count(R"([[:alpha:]\s]+)", "a b1c"), 2u);
  EXPECT_EQ(count(R"(\w+)", "e\u0301_1 x"), 2u);
  EXPECT_EQ(count(R"(\\s)", "\\s s"), 1u);
}

TEST(RegexTest, LimitsAreErrors) {
  const auto regex = *Regex::Compile("(a+)+$x|(a+)+b", "test");
  EXPECT_EQ(regex.FindAll(std::string(5000, 'a')).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Regex::Compile(std::string(70'000, 'a'), "p").status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Regex::Compile("a[", "p.q").status().message()),
              ::testing::HasSubstr("p.q 'a[' is no regular expression"));
}

TEST(RegexTest, EscapedTextFindsItself) {
  const std::string literal("a.b\\[x]\0\n(*)\xC3\xA9#-^", 17);
  const auto regex = Regex::Compile(Regex::Escape(literal), "test");
  ASSERT_TRUE(regex.ok()) << regex.status();
  const auto matches = regex->FindAll("__" + literal);
  ASSERT_EQ(matches->size(), 1u);
  EXPECT_EQ((*matches)[0].begin, 2u);
}

TEST(TextSplitTest, PiecesOfTheFiveBehaviors) {
  // "a--b": two matches, the dashes.
  const std::vector<TextRange> matches = {{1, 2}, {2, 3}};
  const auto split = [&](SplitBehavior behavior, bool invert) {
    std::string result;
    for (const TextRange& piece :
         SplitAtMatches(4, matches, behavior, invert)) {
      result +=
          std::string("a--b").substr(piece.begin, piece.end - piece.begin);
      result += '|';
    }
    return result;
  };
  EXPECT_EQ(split(SplitBehavior::kRemoved, false), "a|b|");
  EXPECT_EQ(split(SplitBehavior::kRemoved, true), "-|-|");
  EXPECT_EQ(split(SplitBehavior::kIsolated, false), "a|-|-|b|");
  EXPECT_EQ(split(SplitBehavior::kMergedWithPrevious, false), "a-|-|b|");
  EXPECT_EQ(split(SplitBehavior::kMergedWithNext, false), "a|-|-b|");
  EXPECT_EQ(split(SplitBehavior::kContiguous, false), "a|--|b|");
}

}  // namespace
}  // namespace nacre::tokenizer
