// Small parts without a file format: UTF-8, tries, the byte alphabet, Unicode
// forms, splitting.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tokenizer/byte_level.h"
#include "tokenizer/prefix_trie.h"
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
  // Unicode 16 and 17.
  EXPECT_EQ(LowercaseUnicode("\u1C89\uA7CB\uA7DC\U00010D50\U00016EB8x"),
            "\u1C8A\u0264\u019B\U00010D70\U00016ED3x");
}

TEST(UnicodeNormalizationTest, LeavesWhatIsYoungerThanTheLibrarysTables) {
  const UnicodeForm nfkc = {.compatibility = true, .compose = true};
  const UnicodeForm nfd = {.compatibility = false, .compose = false};
  // Each has a decomposition by now; the ligature always had.
  EXPECT_EQ(NormalizeUnicode("\u32FF\uA7F2\uFB01\U00010781", nfkc),
            "\u32FF\uA7F2fi\U00010781");
  EXPECT_EQ(NormalizeUnicode("\U00011938e\u0301", nfkc), "\U00011938\u00E9");
  EXPECT_EQ(NormalizeUnicode("\U00011935\U00011930", nfkc),
            "\U00011935\U00011930");
  // A mark with a class by now keeps its place and stops the others.
  EXPECT_EQ(NormalizeUnicode("a\u0315\u0897\u0301\u0323", nfd),
            "a\u0315\u0897\u0323\u0301");
}

TEST(Utf8Test, CutsBehindWholeCharacters) {
  const std::string text = "a\u00E9\u4E2D";
  EXPECT_EQ(CutUtf8(text, 6), text);
  EXPECT_EQ(CutUtf8(text, 5), "a\u00E9");
  EXPECT_EQ(CutUtf8(text, 3), "a\u00E9");
  EXPECT_EQ(CutUtf8(text, 2), "a");
  EXPECT_EQ(CutUtf8(text, 0), "");
}

TEST(Utf8Test, WordCharactersAreThoseOfUnicode16) {
  EXPECT_TRUE(IsWordCharacter(0x200D));
  EXPECT_TRUE(IsWordCharacter(0x31350));
  EXPECT_TRUE(IsWordCharacter(0x897));
  EXPECT_FALSE(IsWordCharacter(0x1E5FF));
  EXPECT_FALSE(IsWordCharacter(0xB2));
}

TEST(TextSplitTest, PiecesOfTheFiveBehaviors) {
  // "a--b": two matches, the dashes.
  const std::vector<TextRange> matches = {{1, 2}, {2, 3}};
  const auto split = [&](SplitBehavior behavior, bool invert) {
    std::string result;
    const auto take = [&](const TextRange& piece) {
      result +=
          std::string("a--b").substr(piece.begin, piece.end - piece.begin);
      result += '|';
      return absl::OkStatus();
    };
    TextSplitter splitter(behavior, invert, take);
    for (const TextRange& match : matches) {
      EXPECT_TRUE(splitter.Add(match).ok());
    }
    EXPECT_TRUE(splitter.Finish(4).ok());
    return result;
  };
  EXPECT_EQ(split(SplitBehavior::kRemoved, false), "a|b|");
  EXPECT_EQ(split(SplitBehavior::kRemoved, true), "-|-|");
  EXPECT_EQ(split(SplitBehavior::kIsolated, false), "a|-|-|b|");
  EXPECT_EQ(split(SplitBehavior::kMergedWithPrevious, false), "a-|-|b|");
  EXPECT_EQ(split(SplitBehavior::kMergedWithNext, false), "a|-|-b|");
  EXPECT_EQ(split(SplitBehavior::kContiguous, false), "a|--|b|");
  EXPECT_EQ(split(SplitBehavior::kMergedWithPrevious, true), "a|-|-b|");
  EXPECT_EQ(split(SplitBehavior::kMergedWithNext, true), "a-|-|b|");
}

}  // namespace
}  // namespace nacre::tokenizer
