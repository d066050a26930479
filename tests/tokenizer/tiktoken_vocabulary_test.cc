#include "tokenizer/tiktoken_vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/tokenizer/goldens.h"
#include "tokenizer/bpe_model.h"
#include "tokenizer/byte_level.h"

namespace nacre::tokenizer {
namespace {

using ::testing::HasSubstr;

std::string Line(const std::string& token, size_t rank) {
  return absl::StrCat(absl::Base64Escape(token), " ", rank, "\n");
}

// Lines of the single bytes, whose ranks are theirs.
std::string Bytes() {
  std::string text;
  for (int byte = 0; byte < 256; ++byte) {
    text += Line(std::string(1, static_cast<char>(byte)), byte);
  }
  return text;
}

BpeModel ModelOf(std::vector<std::string> tokens) {
  for (std::string& token : tokens) token = EncodeByteLevel(token);
  return BpeModel::OfRanks(tokens);
}

std::vector<int32_t> Encode(const BpeModel& model, const std::string& word) {
  LimitedIds ids(word.size());
  EXPECT_TRUE(model.Encode(EncodeByteLevel(word), &ids).ok());
  return ids.Take();
}

// What tiktoken's words are: the pair of the lowest rank, the leftmost of
// several, until there is none.
std::vector<int32_t> EncodeOneByOne(const std::map<std::string, int32_t>& ranks,
                                    const std::string& word) {
  if (ranks.contains(word)) return {ranks.at(word)};
  std::vector<std::string> parts;
  for (const char byte : word) parts.emplace_back(1, byte);
  while (true) {
    int32_t best = INT32_MAX;
    size_t at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = ranks.find(parts[i] + parts[i + 1]);
      if (found == ranks.end() || found->second >= best) continue;
      best = found->second;
      at = i;
    }
    if (best == INT32_MAX) break;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  std::vector<int32_t> ids;
  ids.reserve(parts.size());
  for (const std::string& part : parts) ids.push_back(ranks.at(part));
  return ids;
}

TEST(TiktokenVocabularyTest, HasTheTokensByRank) {
  // Lines in any order, the last one with or without its end.
  const std::string text = Line("\xFFz", 257) + Bytes() + "YWI= 256";
  for (const char* end : {"", "\n"}) {
    const auto tokens = ParseTiktokenVocabulary(text + end);
    ASSERT_TRUE(tokens.ok()) << tokens.status();
    ASSERT_EQ(tokens->size(), 258u);
    EXPECT_EQ((*tokens)[0], std::string(1, '\0'));
    EXPECT_EQ((*tokens)[256], "ab");
    EXPECT_EQ((*tokens)[257], "\xFFz");
  }
}

TEST(TiktokenVocabularyTest, IsToldFromSentencePieceByItsFirstLine) {
  EXPECT_TRUE(IsTiktoken("IQ== 0\nIg== 1\n"));
  EXPECT_TRUE(IsTiktoken("IQ== 7"));
  EXPECT_FALSE(IsTiktoken(""));
  EXPECT_FALSE(IsTiktoken("IQ==\n"));
  EXPECT_FALSE(IsTiktoken("IQ== x\n"));
  EXPECT_FALSE(IsTiktoken("I+Q== 0\n"));
  for (const char* name :
       {"spm_gemma.model", "spm_rules.model", "spm_suffix.model"}) {
    EXPECT_FALSE(IsTiktoken(ReadTestFile(name))) << name;
  }
}

TEST(TiktokenVocabularyTest, RefusesWhatIsMalformed) {
  const struct {
    std::string lines;  // behind the bytes
    const char* message;
  } kCases[] = {
      {"YWI=\n", "line 257: 'YWI=' is no token in base64, a space and a rank"},
      {"\nYWI= 256\n", "line 257: '' is no token"},
      {"YWI= 256\n\n", "line 258: '' is no token"},
      {"YWI 256\n", "line 257: 'YWI' is no base64"},
      {"YWJ= 256\n", "line 257: 'YWJ=' is no base64"},
      {"Y\xFFI= 256\n", "line 257: 'Y\\xffI=' is no base64"},
      {" 256\n", "line 257: the token has 0 bytes, expected 1 to 512"},
      {Line(std::string(513, 'a'), 256), "line 257: the token has 513 bytes"},
      {"YWI= \n", "line 257: rank '' is no number"},
      {"YWI= 256\r\n", "line 257: rank '256\\r' is no number"},
      {"YWI=  256\n", "line 257: rank ' 256' is no number"},
      {"YWI= -1\n", "line 257: rank '-1' is no number"},
      {"YWI= 99999999999\n", "line 257: rank '99999999999' is no number"},
      {"YWI= 257\n", "line 257: rank 257 of a file of 257 tokens"},
      {"YWI= 65\n", "line 257: rank 65 is that of line 66, too"},
      {"YQ== 256\n", "line 257: token 'YQ==' is that of line 98, too"},
  };
  for (const auto& test : kCases) {
    const auto tokens = ParseTiktokenVocabulary(Bytes() + test.lines);
    EXPECT_EQ(tokens.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(tokens.status().message()),
                HasSubstr(test.message));
  }
}

TEST(TiktokenVocabularyTest, RefusesBytesWithoutAToken) {
  std::string text = Bytes();
  text.replace(text.find("QQ== 65"), 4, "YWI=");
  const auto tokens = ParseTiktokenVocabulary(text);
  EXPECT_EQ(tokens.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(tokens.status().message()),
              HasSubstr("byte 0x41 has no token"));
}

TEST(TiktokenVocabularyTest, RefusesWhatIsTooLarge) {
  const auto bytes =
      ParseTiktokenVocabulary(std::string(kMaxTiktokenBytes + 1, 'a'));
  EXPECT_THAT(std::string(bytes.status().message()),
              HasSubstr("of 16777217 bytes, the limit is 16777216"));
  const auto lines = ParseTiktokenVocabulary(std::string((1 << 22) + 1, '\n'));
  EXPECT_THAT(std::string(lines.status().message()),
              HasSubstr("of 4194305 lines, the limit is 4194304"));
}

// words.txt is what tiktoken makes of words of any bytes.
TEST(TiktokenVocabularyTest, MergesWordsAsTiktoken) {
  const BpeModel model = ModelOf(
      *ParseTiktokenVocabulary(ReadTestFile("tiktoken/tokenizer.model")));
  const std::vector<std::string> lines = ReadTestLines("tiktoken/words.txt");
  EXPECT_EQ(lines.size(), 200u);
  for (const std::string& line : lines) {
    const std::vector<std::string> fields = absl::StrSplit(line, ' ');
    std::string word;
    ASSERT_TRUE(absl::Base64Unescape(fields[0], &word));
    std::vector<int32_t> expected(fields.size() - 1);
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_TRUE(absl::SimpleAtoi(fields[i + 1], &expected[i]));
    }
    EXPECT_EQ(Encode(model, word), expected) << absl::CHexEscape(word);
  }
}

// Ranks that no training gives: there are many ways to a token.
TEST(TiktokenVocabularyTest, MergesByAnyRanks) {
  std::minstd_rand random(1);
  const auto word = [&](size_t longest) {
    std::string text(1 + random() % longest, 'a');
    for (char& byte : text) byte = "ab\xFF"[random() % 3];
    return text;
  };
  for (int trial = 0; trial < 300; ++trial) {
    std::map<std::string, int32_t> ranks;
    std::vector<std::string> tokens;
    while (tokens.size() < 40) {
      std::string token =
          tokens.size() < 3 ? std::string(1, "ab\xFF"[tokens.size()]) : word(6);
      if (ranks.emplace(token, tokens.size()).second) tokens.push_back(token);
    }
    std::shuffle(tokens.begin(), tokens.end(), random);
    for (size_t i = 0; i < tokens.size(); ++i) {
      ranks[tokens[i]] = static_cast<int32_t>(i);
    }
    const BpeModel model = ModelOf(tokens);
    for (int i = 0; i < 30; ++i) {
      const std::string text = word(40);
      ASSERT_EQ(Encode(model, text), EncodeOneByOne(ranks, text))
          << absl::CHexEscape(text) << " of trial " << trial;
    }
  }
}

}  // namespace
}  // namespace nacre::tokenizer
