// EncodeOptions::user_text: what a user wrote makes no special token.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/json.h"
#include "tests/tokenizer/goldens.h"
#include "tokenizer/hugging_face_tokenizer.h"
#include "tokenizer/normalizer.h"

namespace nacre::tokenizer {
namespace {

using ::nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

// Each character is a token; `added` comes beside.
std::unique_ptr<Tokenizer> Letters(const char* added,
                                   const char* normalizer = "null") {
  json file = json::parse(R"({
    "model": {"type": "BPE", "vocab": {"<": 0, ">": 1, "s": 2, "A": 3, "x": 4,
              "/": 5, "\u2581": 6}, "merges": []}})");
  file["added_tokens"] = json::parse(added);
  file["normalizer"] = json::parse(normalizer);
  auto tokenizer = ParseHuggingFaceTokenizer(file.dump());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

// The user's parts stand in brackets.
std::vector<int32_t> Encode(const Tokenizer& tokenizer,
                            const std::string& marked) {
  std::string text;
  std::vector<TextRange> ranges;
  for (const char c : marked) {
    if (c == '[') {
      ranges.push_back({text.size(), 0});
    } else if (c == ']') {
      ranges.back().end = text.size();
    } else {
      text += c;
    }
  }
  const auto ids = tokenizer.Encode(
      text, {.add_special_tokens = false, .user_text = ranges});
  EXPECT_TRUE(ids.ok()) << ids.status();
  return ids.value_or(std::vector<int32_t>());
}

constexpr char kTokens[] = R"([
    {"id": 10, "content": "<s>", "special": true},
    {"id": 11, "content": "<s>A", "special": true},
    {"id": 12, "content": "s>", "special": true},
    {"id": 13, "content": "xx", "special": false, "normalized": false}])";

TEST(UserTextTest, ATokenThatLooksSpecialIsGuardedToo) {
  for (const bool normalized : {false, true}) {
    json added = json::array();
    int id = 10;
    for (const char* content : {"<|s|>", "<｜s｜>", "<s>", "<||>"}) {
      added.push_back({{"id", id++},
                       {"content", content},
                       {"special", false},
                       {"normalized", normalized}});
    }
    const auto tokenizer = Letters(added.dump().c_str());
    EXPECT_THAT(Encode(*tokenizer, "<|s|>[x]<｜s｜>"), ElementsAre(10, 4, 11));
    EXPECT_THAT(Encode(*tokenizer, "[<]|s|>"), Not(Contains(10)));
    EXPECT_THAT(Encode(*tokenizer, "[<|s|>]"), Not(Contains(10)));
    EXPECT_THAT(Encode(*tokenizer, "[<｜s｜>]"), Not(Contains(11)));
    EXPECT_THAT(Encode(*tokenizer, "<｜s[｜>]"), Not(Contains(11)));
    // All others are as ever.
    EXPECT_THAT(Encode(*tokenizer, "[<s>]"), ElementsAre(12));
    EXPECT_THAT(Encode(*tokenizer, "[<||>]"), ElementsAre(13));
    // Without marks they are found, and none becomes special.
    EXPECT_THAT(Encode(*tokenizer, "<｜s｜>"), ElementsAre(11));
    EXPECT_FALSE(tokenizer->IsSpecial(11));
  }
}

TEST(UserTextTest, ASpecialTokenIsTheTemplatesOrLetters) {
  const auto tokenizer = Letters(kTokens);
  EXPECT_THAT(Encode(*tokenizer, "<s>[x]<s>"), ElementsAre(10, 4, 10));
  EXPECT_THAT(Encode(*tokenizer, "<s>[<s>]<s>"), ElementsAre(10, 0, 2, 1, 10));
  // Its middle may be the user's: a template that writes "<" + role + ">".
  EXPECT_THAT(Encode(*tokenizer, "<[s]>x"), ElementsAre(10, 4));
  // Neither end may be.
  EXPECT_THAT(Encode(*tokenizer, "[<]s>"), ElementsAre(0, 12));
  EXPECT_THAT(Encode(*tokenizer, "<s[>]"), ElementsAre(0, 2, 1));
  EXPECT_THAT(Encode(*tokenizer, "[<]s[>]"), ElementsAre(0, 2, 1));
}

// What the user wrote does not unmake a token beside it either.
TEST(UserTextTest, TheTemplatesTokensStay) {
  const auto tokenizer = Letters(kTokens);
  EXPECT_THAT(Encode(*tokenizer, "<s>[A]"), ElementsAre(10, 3));
  EXPECT_THAT(Encode(*tokenizer, "[<s]<s>A"), ElementsAre(0, 2, 11));
  EXPECT_THAT(Encode(*tokenizer, "[<s><s>]<s>"),
              ElementsAre(0, 2, 1, 0, 2, 1, 10));
}

TEST(UserTextTest, OtherAddedTokensAreReadAsEver) {
  const auto tokenizer = Letters(kTokens);
  EXPECT_THAT(Encode(*tokenizer, "[xx]"), ElementsAre(13));
  EXPECT_THAT(Encode(*tokenizer, "x[xx]"), ElementsAre(13, 4));
}

constexpr char kNormalized[] = R"([
    {"id": 10, "content": "<s>", "special": true, "normalized": true}])";

TEST(UserTextTest, TokensThatAreSoughtInNormalizedTextAreFoundOut) {
  for (const char* normalizer :
       {"null",
        R"({"type": "Replace", "pattern": {"String": "B"}, "content": "A"})",
        R"({"type": "Strip"})"}) {
    SCOPED_TRACE(normalizer);
    const auto tokenizer = Letters(kNormalized, normalizer);
    EXPECT_THAT(Encode(*tokenizer, "A<s>A[A<s>A]A<s>A"),
                ElementsAre(3, 10, 3, 3, 0, 2, 1, 3, 3, 10, 3));
  }
  // It makes the token one that only begins a text.
  const auto prefixed =
      Letters(kNormalized, R"({"type": "Prepend", "prepend": "▁"})");
  EXPECT_THAT(Encode(*prefixed, "<s>[<s>]"), ElementsAre(10, 0, 2, 1));
  EXPECT_THAT(Encode(*prefixed, "[<s>]<s>"), ElementsAre(6, 0, 2, 1, 0, 2, 1));
}

// The user's characters become the token's, and more or fewer than they were.
TEST(UserTextTest, WhatBecomesATokenIsFoundOut) {
  const auto wide = Letters(kNormalized, R"({"type": "NFKC"})");
  EXPECT_THAT(Encode(*wide, "<s>＜ｓ＞"), ElementsAre(10, 10));
  EXPECT_THAT(Encode(*wide, "<s>[＜ｓ＞]<s>"), ElementsAre(10, 0, 2, 1, 10));
  EXPECT_THAT(Encode(*wide, "[ｘ＜ｓ]<s>[＞ｘ<s>]"),
              ElementsAre(4, 0, 2, 10, 1, 4, 0, 2, 1));
  const auto lower = Letters(kNormalized, R"({"type": "Lowercase"})");
  EXPECT_THAT(Encode(*lower, "<S>[<S>]<S>"), ElementsAre(10, 0, 2, 1, 10));
  const auto shorter = Letters(
      kNormalized,
      R"({"type": "Replace", "pattern": {"String": "--"}, "content": ""})");
  EXPECT_THAT(Encode(*shorter, "<s>[--<--s-->--]<--s>"),
              ElementsAre(10, 0, 2, 1, 10));
}

// A range's end in what a normalizer makes is where that of a first character
// would be, whose place the goldens of `tokenizers` prove.
TEST(UserTextTest, MarksMoveAsTheHeadDoes) {
  const json data = json::parse(ReadTestFile("components.json"));
  std::mt19937 random(7);
  const std::vector<std::string> parts = {
      "a", " ",  "<s>",          "é", "e\u0301",      "\u0338",
      "ﬃ", "你", "\u1100\u1161", "İ", "\u0323\u0307", "\n",
      "ｓ"};
  int normalizers = 0;
  for (const json& variant : data["variants"]) {
    const auto found = variant["patch"].find("normalizer");
    if (found == variant["patch"].end() || found->is_null()) continue;
    const auto normalizer = Normalizer::Parse(&*found);
    ASSERT_TRUE(normalizer.ok()) << normalizer.status();
    ++normalizers;
    for (int round = 0; round < 200; ++round) {
      std::string text;
      std::vector<size_t> marks = {0};
      for (size_t i = random() % 9; i > 0; --i) {
        text += parts[random() % parts.size()];
        marks.push_back(text.size());
      }
      const std::vector<size_t> before = marks;
      const auto all =
          normalizer->Normalize(text, nullptr, absl::MakeSpan(marks));
      ASSERT_TRUE(all.ok()) << all.status();
      for (size_t i = 0; i < marks.size(); ++i) {
        size_t head = before[i];
        ASSERT_EQ(*normalizer->Normalize(text, &head), *all);
        EXPECT_EQ(marks[i], head)
            << variant["name"] << " '" << text << "' at " << before[i];
      }
    }
  }
  EXPECT_GE(normalizers, 8);
}

// Ranges without a special token change no id.
TEST(UserTextTest, PlainTextHasTheIdsThatItHasWithoutRanges) {
  std::mt19937 random(3);
  int compared = 0;
  for (const char* name :
       {"llama2", "llama3", "qwen2", "gpt_neox", "starcoder2"}) {
    const std::string file(name);
    const auto tokenizer =
        ParseHuggingFaceTokenizer(ReadTestFile(file + ".json"));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    for (const Golden& golden : ReadGoldens(file + ".jsonl")) {
      if (!golden.text.has_value()) continue;
      const std::string& text = *golden.text;
      const auto plain =
          (*tokenizer)->Encode(text, {.parse_special_tokens = false});
      if (!plain.ok() || *plain != golden.ids) continue;
      std::vector<TextRange> ranges;
      size_t begin = 0;
      for (size_t at = 1; at <= text.size(); ++at) {
        const bool whole = at == text.size() ||
                           (static_cast<uint8_t>(text[at]) & 0xC0) != 0x80;
        if (!whole || random() % 4 != 0) continue;
        if (random() % 2 == 0) ranges.push_back({begin, at});
        begin = at;
      }
      const auto marked = (*tokenizer)->Encode(text, {.user_text = ranges});
      ASSERT_TRUE(marked.ok()) << marked.status();
      EXPECT_EQ(*marked, golden.ids) << name << " '" << text << "'";
      ++compared;
    }
  }
  EXPECT_GT(compared, 200);
}

TEST(UserTextTest, SentencePieceReadsThemAsLettersToo) {
  const auto tokenizer = LoadBundled();
  const std::string text = "<s>a</s>b</s>";
  const std::vector<TextRange> ranges = {{3, 9}};
  const auto ids = tokenizer->Encode(
      text, {.add_special_tokens = false, .user_text = ranges});
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(ids->front(), 1);
  EXPECT_EQ(ids->back(), 2);
  EXPECT_EQ(std::count(ids->begin(), ids->end(), 2), 1);
  EXPECT_EQ(tokenizer->Decode(*ids, /*skip_special_tokens=*/false), text);
  EXPECT_EQ(tokenizer->Encode("\xff", {.user_text = ranges}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace nacre::tokenizer
