#include "tokenizer/sentencepiece_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/tokenizer/goldens.h"

namespace nacre::tokenizer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr EncodeOptions kPlain = {.add_special_tokens = false,
                                  .parse_special_tokens = false};
constexpr int32_t kBos = 1;
constexpr int32_t kEos = 2;

// Protobuf fields, written by hand.
std::string VarintField(int number, uint64_t value) {
  std::string bytes(1, static_cast<char>(number << 3 & 0x7F));
  if (number > 15) {
    bytes[0] = static_cast<char>((number << 3 & 0x7F) | 0x80);
    bytes.push_back(static_cast<char>(number >> 4));
  }
  for (; value >= 0x80; value >>= 7) {
    bytes.push_back(static_cast<char>(value | 0x80));
  }
  bytes.push_back(static_cast<char>(value));
  return bytes;
}

std::string BytesField(int number, const std::string& content) {
  std::string bytes = VarintField(number, content.size());
  bytes[0] = static_cast<char>(bytes[0] | 2);
  return bytes + content;
}

std::string Piece(const std::string& text, int type) {
  return BytesField(1, BytesField(1, text) + VarintField(3, type));
}

std::string TrainerSpec(int model_type) {
  return BytesField(2, VarintField(3, model_type));
}

// <unk>, "a" and the BPE model type.
std::string SmallModel() {
  return Piece("<unk>", 2) + Piece("a", 1) + TrainerSpec(2);
}

void ExpectParseError(const std::string& bytes, absl::StatusCode code,
                      const std::string& message) {
  const auto tokenizer = ParseSentencePieceTokenizer(bytes);
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.status().code(), code) << tokenizer.status();
  EXPECT_THAT(std::string(tokenizer.status().message()), HasSubstr(message));
}

std::unique_ptr<Tokenizer> ParseFile(const std::string& name) {
  auto tokenizer = ParseSentencePieceTokenizer(ReadTestFile(name));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

TEST(SentencePieceTokenizerTest, MatchesLibraryOnBundledModel) {
  const auto tokenizer = LoadBundled();
  ASSERT_NE(tokenizer, nullptr);
  ExpectGoldens(*tokenizer, ReadGoldens("spm_bundled.jsonl"), kPlain, false);
}

TEST(SentencePieceTokenizerTest,
     MatchesLibraryWithCharacterMapAndUnusedPieces) {
  const auto tokenizer = ParseFile("spm_rules.model");
  ASSERT_NE(tokenizer, nullptr);
  ExpectGoldens(*tokenizer, ReadGoldens("spm_rules.jsonl"), kPlain, false);
}

TEST(SentencePieceTokenizerTest, MatchesLibraryWithWhitespaceAsSuffix) {
  const auto tokenizer = ParseFile("spm_suffix.model");
  ASSERT_NE(tokenizer, nullptr);
  ExpectGoldens(*tokenizer, ReadGoldens("spm_suffix.jsonl"), kPlain, false);
}

TEST(SentencePieceTokenizerTest, DescribesItsVocabulary) {
  const auto tokenizer = LoadBundled();
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->vocab_size(), 4096);
  EXPECT_EQ(tokenizer->bos_id(), kBos);
  EXPECT_EQ(tokenizer->eos_id(), kEos);
  EXPECT_EQ(tokenizer->IdToPiece(kEos), "</s>");
  EXPECT_EQ(tokenizer->IdToPiece(-1), "");
  EXPECT_EQ(tokenizer->IdToPiece(4096), "");
  EXPECT_EQ(tokenizer->PieceToId("<0x0A>"), 13);
  EXPECT_EQ(tokenizer->PieceToId("no such piece"), std::nullopt);
  EXPECT_TRUE(tokenizer->IsSpecial(0));
  EXPECT_TRUE(tokenizer->IsSpecial(kBos));
  EXPECT_FALSE(tokenizer->IsSpecial(13));
  EXPECT_FALSE(tokenizer->IsSpecial(-1));
  EXPECT_FALSE(tokenizer->IsSpecial(4096));
}

TEST(SentencePieceTokenizerTest, AddsBosAndReadsSpecialTokensInText) {
  const auto tokenizer = LoadBundled();
  ASSERT_NE(tokenizer, nullptr);
  const auto plain = tokenizer->Encode("hello", kPlain);
  ASSERT_TRUE(plain.ok());
  std::vector<int32_t> expected = {kBos};
  expected.insert(expected.end(), plain->begin(), plain->end());
  EXPECT_EQ(*tokenizer->Encode("hello"), expected);
  EXPECT_THAT(*tokenizer->Encode(""), ElementsAre(kBos));
  EXPECT_THAT(*tokenizer->Encode("", kPlain), IsEmpty());

  expected.push_back(kEos);
  EXPECT_EQ(*tokenizer->Encode("hello</s>"), expected);
  // As letters the same text is longer and holds no special token.
  const auto letters = tokenizer->Encode("hello</s>", kPlain);
  ASSERT_TRUE(letters.ok());
  EXPECT_EQ(tokenizer->Decode(*letters), "hello</s>");
  EXPECT_THAT(*letters, ::testing::Not(::testing::Contains(kEos)));
}

TEST(SentencePieceTokenizerTest, LegacyRepeatsDummyPrefixAfterSpecialTokens) {
  const std::string model =
      ReadWholeFile(NACRE_MODELS "/target/tokenizer.model");
  TokenizerConfig config;
  config.add_bos_token = false;
  const auto with_prefix = [&](bool legacy) {
    config.legacy = legacy;
    return *(*ParseSentencePieceTokenizer(model, config))->Encode("</s>a");
  };
  const auto tokenizer = *ParseSentencePieceTokenizer(model, config);
  const int32_t letter = *tokenizer->PieceToId("a");
  EXPECT_THAT(with_prefix(false), ElementsAre(kEos, letter));
  EXPECT_THAT(with_prefix(true),
              ElementsAre(kEos, *tokenizer->PieceToId("\xE2\x96\x81"
                                                      "a")));
}

TEST(SentencePieceTokenizerTest, FollowsTokenizerConfig) {
  const std::string model =
      ReadWholeFile(NACRE_MODELS "/target/tokenizer.model");
  TokenizerConfig config;
  config.add_bos_token = false;
  config.add_eos_token = true;
  EXPECT_THAT(*(*ParseSentencePieceTokenizer(model, config))->Encode(""),
              ElementsAre(kEos));

  config.bos_token = {.mentioned = true, .content = std::nullopt};
  EXPECT_EQ((*ParseSentencePieceTokenizer(model, config))->bos_id(),
            std::nullopt);
  config.add_bos_token = true;
  EXPECT_EQ(ParseSentencePieceTokenizer(model, config).status().code(),
            absl::StatusCode::kInvalidArgument);
  config.bos_token.content = "<missing>";
  const auto missing = ParseSentencePieceTokenizer(model, config);
  EXPECT_THAT(std::string(missing.status().message()),
              HasSubstr("bos_token '<missing>' is not in the vocabulary"));
}

TEST(SentencePieceTokenizerTest, TakesAddedTokensBehindTheModel) {
  const std::string model =
      ReadWholeFile(NACRE_MODELS "/target/tokenizer.model");
  TokenizerConfig config;
  AddedToken token;
  token.id = 4097;
  token.content = "<|im_end|>";
  token.special = true;
  config.added_tokens = {token};
  const auto tokenizer = *ParseSentencePieceTokenizer(model, config);
  EXPECT_EQ(tokenizer->vocab_size(), 4098);
  EXPECT_EQ(tokenizer->IdToPiece(4096), "");
  EXPECT_THAT(*tokenizer->Encode("<|im_end|>"), ElementsAre(kBos, 4097));
  EXPECT_EQ(tokenizer->Decode({4097, 4096}), "");
  EXPECT_EQ(tokenizer->Decode({4097, 4096}, false), "<|im_end|>");

  config.added_tokens[0].id = 300;
  EXPECT_THAT(
      std::string(
          ParseSentencePieceTokenizer(model, config).status().message()),
      HasSubstr("'<|im_end|>' has id 300"));
}

TEST(SentencePieceTokenizerTest, InvalidUtf8BecomesReplacementCharacters) {
  const auto tokenizer = LoadBundled();
  ASSERT_NE(tokenizer, nullptr);
  const std::string replacement = "\xEF\xBF\xBD";
  EXPECT_EQ(
      *tokenizer->Encode("a\xFF\xE2\x82z"),
      *tokenizer->Encode("a" + replacement + replacement + replacement + "z"));
}

TEST(SentencePieceTokenizerTest, DecodePassesOverUnknownIds) {
  const auto tokenizer = LoadBundled();
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->Decode({-5, 4096, 1 << 30}), "");
}

TEST(SentencePieceTokenizerTest, LongTextsRoundTrip) {
  const auto tokenizer = LoadBundled();
  ASSERT_NE(tokenizer, nullptr);
  std::mt19937 random(5);
  std::string letters;
  for (int i = 0; i < 100'000; ++i) {
    letters.push_back(static_cast<char>(' ' + random() % 95));
  }
  for (const std::string& text :
       {std::string(100'000, 'a'), std::string(100'000, ' '),
        std::string(100'000, '\x01'), letters}) {
    const auto ids = tokenizer->Encode(text, kPlain);
    ASSERT_TRUE(ids.ok());
    EXPECT_EQ(tokenizer->Decode(*ids), text);
  }
}

TEST(SentencePieceTokenizerTest, EveryTruncationIsAnErrorOrAModel) {
  const std::string model = ReadTestFile("spm_rules.model");
  int errors = 0;
  for (size_t size = 0; size < model.size(); size += 7) {
    const auto tokenizer = ParseSentencePieceTokenizer(model.substr(0, size));
    if (!tokenizer.ok()) ++errors;
  }
  // Where the last fields are optional ones a cut between them is no error.
  EXPECT_GT(errors, static_cast<int>(model.size() / 7 - 10));
}

TEST(SentencePieceTokenizerTest, RefusesBrokenWireFormat) {
  using Code = absl::StatusCode;
  ExpectParseError("", Code::kInvalidArgument, "no trainer_spec");
  ExpectParseError("\x0A", Code::kDataLoss, "varint is cut off");
  ExpectParseError(
      "\x0A\x05"
      "ab",
      Code::kDataLoss, "has 5 bytes, 2 are left");
  ExpectParseError("\x0A" + std::string(10, '\xFF') + "\x01", Code::kDataLoss,
                   "varint does not fit 64 bits");
  ExpectParseError("\x0B", Code::kDataLoss, "wire type 3");
  ExpectParseError(std::string("\x00\x00", 2), Code::kDataLoss,
                   "field number 0");
  ExpectParseError("\x08\x01", Code::kDataLoss,
                   "field 1 has wire type 0 instead of 2");
  ExpectParseError("\x0A\x03\x15\x01\x02", Code::kDataLoss,
                   "piece 0: field 2 is cut off");
}

TEST(SentencePieceTokenizerTest, RefusesUnsupportedAndInconsistentModels) {
  using Code = absl::StatusCode;
  ASSERT_TRUE(ParseSentencePieceTokenizer(SmallModel()).ok());
  ExpectParseError(Piece("<unk>", 2) + TrainerSpec(1), Code::kUnimplemented,
                   "model type UNIGRAM");
  ExpectParseError(Piece("<unk>", 2) + TrainerSpec(3), Code::kUnimplemented,
                   "model type WORD");
  ExpectParseError(SmallModel() + BytesField(5, BytesField(1, "rules") +
                                                    BytesField(2, "xyz")),
                   Code::kUnimplemented, "denormalizer 'rules'");
  ExpectParseError(Piece("a", 1) + TrainerSpec(2), Code::kInvalidArgument,
                   "no unknown piece");
  ExpectParseError(SmallModel() + Piece("<u>", 2), Code::kInvalidArgument,
                   "second unknown piece");
  ExpectParseError(SmallModel() + Piece("", 1), Code::kInvalidArgument,
                   "piece 2 ('') is empty");
  ExpectParseError(SmallModel() + Piece("a", 1), Code::kInvalidArgument,
                   "is there twice");
  ExpectParseError(SmallModel() + Piece("b", 9), Code::kInvalidArgument,
                   "type 9");
  ExpectParseError(SmallModel() + Piece(std::string(9000, 'x'), 1),
                   Code::kInvalidArgument, "has 9000 bytes");
  ExpectParseError(SmallModel() + Piece(std::string(1, '\0'), 1),
                   Code::kInvalidArgument, "NUL");
  ExpectParseError(SmallModel() + Piece("<0x41>", 6), Code::kInvalidArgument,
                   "byte_fallback is off");
  ExpectParseError(
      SmallModel() + BytesField(2, VarintField(3, 2) + VarintField(35, 1)),
      Code::kInvalidArgument, "no piece for byte 0");
  ExpectParseError(
      SmallModel() + BytesField(1, BytesField(1, "b") +
                                       std::string("\x15\0\0\xC0\x7F", 5)),
      Code::kInvalidArgument, "score that is no number");
  ExpectParseError(SmallModel() + BytesField(3, BytesField(2, "abc")),
                   Code::kDataLoss, "precompiled_charsmap");
  ExpectParseError(
      SmallModel() +
          BytesField(3, BytesField(2, std::string("\x04\0\0\0zzzzxx", 10))),
      Code::kDataLoss, "does not end in a NUL");
}

// A character map that makes `output` of each "a".
std::string MapOfA(const std::string& output) {
  std::vector<uint32_t> units('a' + 1, 0);
  units['a'] = 'a' | 1u << 8 | 1u << 10;  // it has a value: at 'a' ^ 1
  std::string map;
  const auto add = [&](uint32_t value) {
    for (int shift = 0; shift < 32; shift += 8) {
      map.push_back(static_cast<char>(value >> shift & 0xFF));
    }
  };
  add(static_cast<uint32_t>(4 * units.size()));
  for (const uint32_t unit : units) add(unit);
  return map + output + std::string(1, '\0');
}

TEST(SentencePieceTokenizerTest, ACharacterMapMakesOnlySoMuchOfAText) {
  const auto with_map = [](const std::string& output) {
    return SmallModel() + BytesField(3, BytesField(2, MapOfA(output)));
  };
  const auto tokenizer =
      ParseSentencePieceTokenizer(with_map(std::string(1024, 'b')));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_TRUE((*tokenizer)->Encode("aaa").ok());
  const absl::Status status =
      (*tokenizer)->Encode(std::string(1000, 'a')).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "the normal form of a text of 1000 bytes has 20483 bytes or more, "
            "the limit is 20096");
  ExpectParseError(with_map(std::string(1025, ' ')),
                   absl::StatusCode::kDataLoss,
                   "a text of 1025 bytes, the limit is 1024");
}

TEST(SentencePieceTokenizerTest, HostileCharacterMapStaysInBounds) {
  // Units of all ones point far outside the array.
  const std::string map = std::string("\x10\0\0\0", 4) +
                          std::string(16, '\xFF') + std::string(3, '\0');
  const auto tokenizer = ParseSentencePieceTokenizer(
      SmallModel() + BytesField(3, BytesField(2, map)));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_TRUE((*tokenizer)->Encode("aaa \xFF").ok());
}

}  // namespace
}  // namespace nacre::tokenizer
