// What a hostile tokenizer.json may make of a text: an error, and no memory
// that it could take all of.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/json.h"
#include "tokenizer/hugging_face_tokenizer.h"

namespace nacre::tokenizer {
namespace {

using ::nlohmann::json;
using ::testing::HasSubstr;

json FileWith(const char* field, const json& value) {
  json file = json::parse(R"({
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "<unk>": 2},
              "merges": [], "unk_token": "<unk>", "fuse_unk": true},
    "decoder": {"type": "Fuse"}})");
  file[field] = value;
  return file;
}

json ReplaceStep(const std::string& what, const std::string& content) {
  return {{"type", "Replace"},
          {"pattern", {{"String", what}}},
          {"content", content}};
}

json SequenceOf(const char* parts, const json& step, int count) {
  return {{"type", "Sequence"}, {parts, json::array_t(count, step)}};
}

std::unique_ptr<Tokenizer> LoadJson(const json& file) {
  auto tokenizer = ParseHuggingFaceTokenizer(file.dump());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

// `text` is refused with `message`, and the tokenizer goes on.
void ExpectTooMuch(const json& file, const std::string& text,
                   const std::string& message,
                   const EncodeOptions& options = {}) {
  const auto tokenizer = LoadJson(file);
  ASSERT_NE(tokenizer, nullptr);
  const absl::Status status = tokenizer->Encode(text, options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(status.message(), message);
  EXPECT_TRUE(tokenizer->Encode("").ok());
}

// 3.2 GB, were it made.
TEST(TextGrowthTest, AReplacementEndsAtTheLimit) {
  std::string text;
  for (int i = 0; i < 1600; ++i) text += "a ";
  ExpectTooMuch(
      FileWith("normalizer", ReplaceStep("a", std::string(2'000'000, 'b'))),
      text,
      "the normal form of a text of 3200 bytes has 2000000 bytes or more, the "
      "limit is 55296");
  ExpectTooMuch(FileWith("normalizer", {{"type", "Replace"},
                                        {"pattern", {{"Regex", ""}}},
                                        {"content", std::string(100, 'b')}}),
                std::string(4000, 'a'),
                "the normal form of a text of 4000 bytes has 68174 bytes or "
                "more, the limit is 68096");
}

TEST(TextGrowthTest, StepsTogetherEndAtTheLimit) {
  ExpectTooMuch(FileWith("normalizer",
                         SequenceOf("normalizers", ReplaceStep("a", "aa"), 60)),
                "aaaaaaaa",
                "the normal form of a text of 8 bytes has 4226 bytes or more, "
                "the limit is 4224");
}

TEST(TextGrowthTest, WhatIsPutInFrontEndsAtTheLimit) {
  const json prepend = {{"type", "Prepend"},
                        {"prepend", std::string(1'000'000, 'b')}};
  ExpectTooMuch(FileWith("normalizer", prepend), "a",
                "the normal form of a text of 1 bytes has 1000001 bytes or "
                "more, the limit is 4112");
}

// Eleven bytes of each that the first step made, and four of each character on
// the way.
TEST(TextGrowthTest, AUnicodeFormEndsAtTheLimit) {
  const json steps = {ReplaceStep("a", "\uFDFA\uFDFA\uFDFA\uFDFA\uFDFA"),
                      {{"type", "NFKC"}}};
  const json file =
      FileWith("normalizer", {{"type", "Sequence"}, {"normalizers", steps}});
  const auto tokenizer = LoadJson(file);
  ASSERT_NE(tokenizer, nullptr);
  const absl::Status status =
      tokenizer->Encode(std::string(400'000, 'a')).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("bytes or more, the limit is 6404096"));
}

// Where ends of a user's text are followed through the normalizer.
TEST(TextGrowthTest, EndsOfRangesEndAtTheLimit) {
  json file = FileWith("normalizer", {{"type", "NFKC"}});
  file["normalizer"] = {{"type", "Sequence"},
                        {"normalizers",
                         {ReplaceStep("a", "\uFDFA\uFDFA\uFDFA\uFDFA\uFDFA"),
                          {{"type", "NFKC"}}}}};
  file["added_tokens"] =
      json::parse(R"([{"id": 3, "content": "<|x|>", "normalized": true}])");
  const auto tokenizer = LoadJson(file);
  ASSERT_NE(tokenizer, nullptr);
  const TextRange user{1, 3000};
  EncodeOptions options;
  options.user_text = {&user, 1};
  EXPECT_EQ(tokenizer->Encode(std::string(4000, 'a'), options).status().code(),
            absl::StatusCode::kResourceExhausted);
}

json Split(const std::string& regex) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", regex}}},
          {"behavior", "Isolated"}};
}

// Each word has few steps; all of them would take minutes.
TEST(TextGrowthTest, StepsOfPatternsAreOfTheWholeText) {
  const json steps = {Split(".{20}"), Split("(?:(?:a|a){18}b)|a")};
  const auto tokenizer = LoadJson(FileWith(
      "pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", steps}}));
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_TRUE(tokenizer->Encode(std::string(20, 'a')).ok());
  const absl::Status status =
      tokenizer->Encode(std::string(10'000, 'a')).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("pattern '(?:(?:a|a){18}b)|a' failed at byte "));
  const auto normalizer = LoadJson(FileWith(
      "normalizer", SequenceOf("normalizers",
                               {{"type", "Replace"},
                                {"pattern", {{"Regex", "(?:(?:a|a){18}b)|a"}}},
                                {"content", "a"}},
                               64)));
  EXPECT_EQ(normalizer->Encode(std::string(20, 'a')).status().code(),
            absl::StatusCode::kResourceExhausted);
}

// The most that published normalizers make of a text.
TEST(TextGrowthTest, CompatibilityFormsAndSpacesFit) {
  const json steps = {{{"type", "NFKC"}},
                      {{"type", "Prepend"}, {"prepend", "\u2581"}},
                      ReplaceStep(" ", "\u2581")};
  const auto tokenizer = LoadJson(
      FileWith("normalizer", {{"type", "Sequence"}, {"normalizers", steps}}));
  ASSERT_NE(tokenizer, nullptr);
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "\uFDFA";
  const auto ids = tokenizer->Encode(text);
  EXPECT_TRUE(ids.ok()) << ids.status();
}

// Each doubles what is not ASCII.
TEST(TextGrowthTest, AWordEndsAtTheLimit) {
  const json step = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  ExpectTooMuch(
      FileWith("pre_tokenizer", SequenceOf("pretokenizers", step, 64)),
      "\u00E9",
      "a word of a text of 2 bytes has 8192 bytes or more, the limit is 4128");
}

// Sixty-four bytes in front of each word.
TEST(TextGrowthTest, AllWordsTogetherEndAtTheLimit) {
  json steps = json::array({json::parse(
      R"({"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Isolated"})")});
  for (int i = 0; i < 63; ++i) {
    steps.push_back({{"type", "Metaspace"},
                     {"replacement", i % 2 == 0 ? "b" : "a"},
                     {"prepend_scheme", "always"},
                     {"split", false}});
  }
  ExpectTooMuch(FileWith("pre_tokenizer",
                         {{"type", "Sequence"}, {"pretokenizers", steps}}),
                std::string(1000, 'a'),
                "the words of a text of 1000 bytes has 20160 bytes or more, "
                "the limit is 20096");
}

void ExpectRefused(const json& file, const std::string& message) {
  const auto tokenizer = ParseHuggingFaceTokenizer(file.dump());
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(tokenizer.status().message()), HasSubstr(message));
}

// As in `tokenizers`, which reads one character.
TEST(TextGrowthTest, OneCharacterStandsForASpace) {
  ExpectRefused(
      FileWith("pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "  "}}),
      "pre_tokenizer.replacement '  ' of 2 bytes is not one");
  ExpectRefused(
      FileWith("decoder", {{"type", "Metaspace"}, {"replacement", ""}}),
      "decoder.replacement '' of 0 bytes is not one");
}

TEST(TextGrowthTest, ADecoderMakesOnlySoMuchOfAToken) {
  ExpectRefused(FileWith("decoder", ReplaceStep("a", std::string(65, 'b'))),
                "decoder and the steps before it may make 65 bytes or more of "
                "one, the limit is 64");
  ExpectRefused(
      FileWith("decoder", SequenceOf("decoders", ReplaceStep("a", "aa"), 7)),
      "decoder[6] and the steps before it may make 128 bytes");
  ExpectRefused(FileWith("decoder", {{"type", "Replace"},
                                     {"pattern", {{"Regex", "x*"}}},
                                     {"content", std::string(64, 'b')}}),
                "may make 65 bytes");
  const auto tokenizer = LoadJson(
      FileWith("decoder", SequenceOf("decoders", ReplaceStep("a", "aa"), 6)));
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->Decode({0, 1}), std::string(64, 'a') + "b");
}

TEST(TextGrowthTest, ATemplateAddsOnlySoManyTokens) {
  const json special = {{"SpecialToken", {{"id", "<s>"}}}};
  json file = FileWith("post_processor", nullptr);
  json& post = file["post_processor"];
  post = {{"type", "TemplateProcessing"},
          {"single", json::array_t(64, special)},
          {"special_tokens", {{"<s>", {{"ids", json::array_t(17, json(1))}}}}}};
  post["single"].push_back({{"Sequence", {{"id", "A"}}}});
  ExpectRefused(file,
                "post_processor.single adds 1037 tokens or more, the "
                "limit is 1024");
  post["special_tokens"]["<s>"]["ids"] = json::array_t(16, json(1));
  const auto tokenizer = LoadJson(file);
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->Encode("a")->size(), 1025u);
}

TEST(TextGrowthTest, AnAddedTokenStaysShortWhenNormalized) {
  json file = FileWith("normalizer", ReplaceStep("x", "bbbb"));
  file["added_tokens"] = {
      {{"id", 3}, {"content", std::string(1025, 'x')}, {"normalized", true}}};
  ExpectRefused(file, "has 4100 bytes when normalized, the limit is 4096");
}

}  // namespace
}  // namespace nacre::tokenizer
