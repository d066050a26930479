#include "tokenizer/hugging_face_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/json.h"
#include "tests/tokenizer/goldens.h"

namespace nacre::tokenizer {
namespace {

using ::nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json SmallFile() {
  return json::parse(R"({
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2},
              "merges": ["a b"]},
    "added_tokens": [{"id": 3, "content": "<s>", "special": true}],
    "decoder": {"type": "Fuse"}})");
}

absl::StatusOr<std::unique_ptr<Tokenizer>> ParseJson(
    const json& file, const TokenizerConfig& config = {}) {
  return ParseHuggingFaceTokenizer(file.dump(), config);
}

// SmallFile with `patch` merged in (null removes a field) is refused.
void ExpectError(const char* patch, absl::StatusCode code,
                 const std::string& message) {
  json file = SmallFile();
  file.merge_patch(json::parse(patch));
  const auto tokenizer = ParseJson(file);
  ASSERT_FALSE(tokenizer.ok()) << patch;
  EXPECT_EQ(tokenizer.status().code(), code) << tokenizer.status();
  EXPECT_THAT(std::string(tokenizer.status().message()), HasSubstr(message))
      << patch;
}

void ExpectInvalid(const char* patch, const std::string& message) {
  ExpectError(patch, absl::StatusCode::kInvalidArgument, message);
}

void ExpectUnimplemented(const char* patch, const std::string& message) {
  ExpectError(patch, absl::StatusCode::kUnimplemented, message);
}

class PublishedShapeTest : public ::testing::TestWithParam<const char*> {};

TEST_P(PublishedShapeTest, MatchesTokenizersLibrary) {
  const std::string name = GetParam();
  const auto tokenizer =
      ParseHuggingFaceTokenizer(ReadTestFile(name + ".json"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  ExpectGoldens(**tokenizer, ReadGoldens(name + ".jsonl"), {}, true);
}

INSTANTIATE_TEST_SUITE_P(All, PublishedShapeTest,
                         ::testing::Values("llama2", "llama3", "qwen2",
                                           "gpt_neox", "starcoder2"));

TEST(HuggingFaceTokenizerTest, ComponentsMatchTokenizersLibrary) {
  const json data = json::parse(ReadTestFile("components.json"));
  ASSERT_GE(data["variants"].size(), 30u);
  for (const json& variant : data["variants"]) {
    SCOPED_TRACE(variant["name"].get<std::string>());
    json file = data["base"];
    for (const auto& [key, value] : variant["patch"].items()) {
      if (key == "model") {
        file["model"].update(value);
      } else {
        file[key] = value;
      }
    }
    const auto tokenizer = ParseJson(file);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    std::vector<Golden> goldens;
    for (const json& line : variant["cases"]) {
      goldens.push_back(ParseGolden(line));
    }
    ASSERT_FALSE(goldens.empty());
    ExpectGoldens(**tokenizer, goldens, {}, true);
  }
}

TEST(HuggingFaceTokenizerTest, MergesAsPairsEqualMergesAsStrings) {
  json file = SmallFile();
  file["model"]["merges"] = json::parse(R"([["a", "b"]])");
  const auto pairs = ParseJson(file);
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  EXPECT_THAT(*(*pairs)->Encode("abba"), ElementsAre(2, 1, 0));
  EXPECT_THAT(*(*ParseJson(SmallFile()))->Encode("abba"), ElementsAre(2, 1, 0));
}

TEST(HuggingFaceTokenizerTest, SpecialTokensInTextAreOptional) {
  const auto tokenizer = *ParseJson(SmallFile());
  EXPECT_THAT(*tokenizer->Encode("a<s>b"), ElementsAre(0, 3, 1));
  EXPECT_THAT(*tokenizer->Encode("a<s>b", {.parse_special_tokens = false}),
              ElementsAre(2));
  EXPECT_TRUE(tokenizer->IsSpecial(3));
  EXPECT_FALSE(tokenizer->IsSpecial(2));
  EXPECT_EQ(tokenizer->vocab_size(), 4);
  EXPECT_EQ(tokenizer->PieceToId("<s>"), 3);
}

// `tokenizers` fails at these: no golden can have them.
TEST(HuggingFaceTokenizerTest, ATokenInWhiteSpaceThatAnotherTookIsLeftOut) {
  json file = SmallFile();
  file["added_tokens"] = json::parse(R"([
      {"id": 3, "content": "<s>", "special": true, "rstrip": true},
      {"id": 4, "content": "  ", "normalized": false, "lstrip": true}])");
  const auto tokenizer = *ParseJson(file);
  EXPECT_THAT(*tokenizer->Encode("<s>   a"), ElementsAre(3, 0));
  EXPECT_THAT(*tokenizer->Encode("b<s>         "), ElementsAre(1, 3));
  EXPECT_THAT(*tokenizer->Encode("a   <s>    b"), ElementsAre(0, 4, 3, 1));
}

TEST(HuggingFaceTokenizerTest, ConfigTakesThePlaceOfTheTemplate) {
  const std::string file = ReadTestFile("llama3.json");
  TokenizerConfig config;
  const auto plain = *ParseHuggingFaceTokenizer(file, config);
  const int32_t begin = *plain->PieceToId("<|begin_of_text|>");
  const int32_t end = *plain->PieceToId("<|end_of_text|>");
  EXPECT_THAT(*plain->Encode(""), ElementsAre(begin));
  EXPECT_EQ(plain->bos_id(), begin);
  EXPECT_EQ(plain->eos_id(), std::nullopt);

  config.bos_token = {.mentioned = true, .content = "<|begin_of_text|>"};
  config.eos_token = {.mentioned = true, .content = "<|end_of_text|>"};
  config.add_bos_token = true;
  config.add_eos_token = true;
  const auto both = *ParseHuggingFaceTokenizer(file, config);
  EXPECT_THAT(*both->Encode(""), ElementsAre(begin, end));
  EXPECT_EQ(both->eos_id(), end);
  config.add_bos_token = false;
  config.add_eos_token = false;
  const auto none = *ParseHuggingFaceTokenizer(file, config);
  EXPECT_TRUE(none->Encode("")->empty());

  config.add_eos_token = true;
  config.eos_token = {.mentioned = true, .content = std::nullopt};
  EXPECT_EQ(ParseHuggingFaceTokenizer(file, config).status().code(),
            absl::StatusCode::kInvalidArgument);
  config.eos_token.content = "<|nope|>";
  EXPECT_THAT(
      std::string(ParseHuggingFaceTokenizer(file, config).status().message()),
      HasSubstr("eos_token '<|nope|>' is not in the vocabulary"));
}

TEST(HuggingFaceTokenizerTest, InvalidUtf8IsRefusedWithItsOffset) {
  const auto tokenizer = *ParseJson(SmallFile());
  const auto ids = tokenizer->Encode("ab\xFF");
  EXPECT_EQ(ids.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(ids.status().message()), HasSubstr("byte 2 of 3"));
}

TEST(HuggingFaceTokenizerTest, LongTextsRoundTrip) {
  std::string mixed;
  for (int i = 0; mixed.size() < 100'000; ++i) {
    mixed +=
        std::string(i % 7, ' ') + std::to_string(i * 7919) + "\xC3\xA9x'S\n";
  }
  for (const char* name : {"llama3.json", "llama2.json"}) {
    const auto tokenizer = *ParseHuggingFaceTokenizer(ReadTestFile(name));
    for (const std::string& text :
         {std::string(100'000, 'a'), std::string(100'000, ' ') + "x",
          std::string(100'000, '\n'), std::string(100'000, '!'), mixed}) {
      const auto ids = tokenizer->Encode(text);
      ASSERT_TRUE(ids.ok()) << ids.status();
      EXPECT_EQ(tokenizer->Decode(*ids), text);
    }
  }
}

// Where docs/tokenizers.md says it does.
TEST(HuggingFaceTokenizerTest, ARunOfSpacesHasALimit) {
  const auto tokenizer =
      *ParseHuggingFaceTokenizer(ReadTestFile("llama3.json"));
  const absl::StatusOr<std::vector<int32_t>> fits =
      tokenizer->Encode(std::string(3'990'000, ' '));
  EXPECT_TRUE(fits.ok()) << fits.status();
  const absl::Status status =
      tokenizer->Encode(std::string(4'001'000, ' ')).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_LT(status.message().size(), 200u);
}

TEST(HuggingFaceTokenizerTest, BacktrackingPatternIsAnErrorAndNoHang) {
  json file = SmallFile();
  file["pre_tokenizer"] = json::parse(
      R"({"type": "Split", "pattern": {"Regex": "(a+)+$x|(a+)+b"},
          "behavior": "Isolated"})");
  const auto tokenizer = ParseJson(file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto ids = (*tokenizer)->Encode(std::string(5000, 'a'));
  EXPECT_EQ(ids.status().code(), absl::StatusCode::kResourceExhausted)
      << ids.status();
  EXPECT_THAT(std::string(ids.status().message()), HasSubstr("(a+)+"));
}

TEST(HuggingFaceTokenizerTest, RefusesWhatIsNoTokenizerFile) {
  for (const char* text : {"", "{", "[]", "null", "{\"model\": \"\xFF\"}"}) {
    const auto tokenizer = ParseHuggingFaceTokenizer(text);
    EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument)
        << text;
  }
}

TEST(HuggingFaceTokenizerTest, RefusesMalformedModels) {
  ExpectInvalid(R"({"model": null})", "model is missing");
  ExpectInvalid(R"({"model": 3})", "model is number, expected an object");
  ExpectInvalid(R"({"model": {"vocab": null}})", "model.vocab is missing");
  ExpectInvalid(R"({"model": {"vocab": []}})", "model.vocab is array");
  ExpectInvalid(R"({"model": {"vocab": {"x": "1"}}})", "model.vocab['x']");
  ExpectInvalid(R"({"model": {"vocab": {"x": -1}}})", "model.vocab['x']");
  ExpectInvalid(R"({"model": {"vocab": {"x": 4000000000}}})", "the limit is");
  ExpectInvalid(R"({"model": {"vocab": {"x": 1}}})", "which");
  ExpectInvalid(R"({"model": {"vocab": {"": 9}}})", "is empty");
  ExpectInvalid(R"({"model": {"merges": null}})", "model.merges is missing");
  ExpectInvalid(R"({"model": {"merges": "a b"}})", "model.merges is string");
  ExpectInvalid(R"({"model": {"merges": ["a b", "a x"]}})",
                "merges[1] names the piece 'x'");
  ExpectInvalid(R"({"model": {"merges": ["b a"]}})", "names the piece 'ba'");
  ExpectInvalid(R"({"model": {"merges": ["ab"]}})",
                "merges[0] 'ab' is no pair");
  ExpectInvalid(R"({"model": {"merges": [["a"]]}})", "merges[0] is array");
  ExpectInvalid(R"({"model": {"merges": [7]}})", "merges[0] is number");
  ExpectInvalid(R"({"model": {"unk_token": "?"}})", "unk_token '?'");
  ExpectInvalid(R"({"model": {"fuse_unk": 1}})", "model.fuse_unk is number");
  ExpectUnimplemented(R"({"model": {"type": "Unigram"}})",
                      "model has type 'Unigram'");
  ExpectUnimplemented(R"({"model": {"dropout": 0.1}})", "dropout 0.1");
  ExpectUnimplemented(R"({"model": {"end_of_word_suffix": "</w>"}})",
                      "end_of_word_suffix '</w>'");
}

TEST(HuggingFaceTokenizerTest, RefusesMalformedAddedTokens) {
  ExpectInvalid(R"({"added_tokens": {}})", "added_tokens is object");
  ExpectInvalid(R"({"added_tokens": [1]})", "added_tokens[0] is number");
  ExpectInvalid(R"({"added_tokens": [{"content": "x"}]})", "id is missing");
  ExpectInvalid(R"({"added_tokens": [{"id": 5}]})", "content is missing");
  ExpectInvalid(R"({"added_tokens": [{"id": 5, "content": ""}]})", "0 bytes");
  ExpectInvalid(R"({"added_tokens": [{"id": 1, "content": "x"}]})",
                "'x' has id 1, which 'b' has too");
}

TEST(HuggingFaceTokenizerTest, RefusesMalformedComponents) {
  ExpectInvalid(R"({"normalizer": []})", "normalizer is array");
  ExpectInvalid(R"({"normalizer": {}})", "normalizer.type is missing");
  ExpectInvalid(R"({"normalizer": {"type": "Sequence"}})", "normalizers is m");
  ExpectInvalid(R"({"normalizer": {"type": "Sequence", "normalizers": 1}})",
                "normalizers is number");
  ExpectInvalid(R"({"normalizer": {"type": "Replace", "content": ""}})",
                "normalizer.pattern is missing");
  ExpectInvalid(
      R"({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a"},
          "behavior": "Isolated"}})",
      "pre_tokenizer.pattern.Regex '(a' is no regular expression");
  ExpectInvalid(
      R"({"pre_tokenizer": {"type": "Split", "pattern": {"String": "a"},
          "behavior": "Sideways"}})",
      "behavior 'Sideways'");
  ExpectInvalid(
      R"({"pre_tokenizer": {"type": "Metaspace", "replacement": "_",
          "prepend_scheme": "last"}})",
      "prepend_scheme 'last'");
  ExpectInvalid(R"({"decoder": {"type": "Strip", "content": "xy"}})",
                "is not one character");
  ExpectInvalid(
      R"({"decoder": {"type": "Strip", "content": "x", "start": -1}})",
      "decoder.start");
  ExpectInvalid(R"({"post_processor": {"type": "TemplateProcessing"}})",
                "single is missing");
  ExpectInvalid(
      R"({"post_processor": {"type": "TemplateProcessing", "single":
          [{"SpecialToken": {"id": "<x>"}}, {"Sequence": {"id": "A"}}]}})",
      "special_tokens['<x>'].ids");
  ExpectInvalid(
      R"({"post_processor": {"type": "TemplateProcessing", "single":
          [{"SpecialToken": {"id": "<x>"}}, {"Sequence": {"id": "A"}}],
          "special_tokens": {"<x>": {"ids": [77]}}}})",
      "adds token id 77");
  ExpectUnimplemented(
      R"({"post_processor": {"type": "TemplateProcessing", "single": []}})",
      "0 times");
  ExpectUnimplemented(
      R"({"post_processor": {"type": "Sequence", "processors": [
          {"type": "TemplateProcessing", "single": [{"Sequence": {}}]},
          {"type": "TemplateProcessing", "single": [{"Sequence": {}}]}]}})",
      "post_processor[1] is a second TemplateProcessing");
}

TEST(HuggingFaceTokenizerTest, NamesUnsupportedComponents) {
  ExpectUnimplemented(R"({"normalizer": {"type": "BertNormalizer"}})",
                      "normalizer has type 'BertNormalizer'");
  ExpectUnimplemented(
      R"({"pre_tokenizer": {"type": "Sequence", "pretokenizers":
          [{"type": "WhitespaceSplit"}, {"type": "UnicodeScripts"}]}})",
      "pre_tokenizer[1] has type 'UnicodeScripts'");
  ExpectUnimplemented(R"({"decoder": {"type": "WordPiece"}})",
                      "decoder has type 'WordPiece'");
  ExpectUnimplemented(R"({"post_processor": {"type": "BertProcessing"}})",
                      "post_processor has type 'BertProcessing'");
}

// `step` so many times in one sequence.
json StepsOf(const char* step, const char* parts, size_t count) {
  json sequence = {{"type", "Sequence"}, {parts, json::array()}};
  for (size_t i = 0; i < count; ++i) {
    sequence[parts].push_back(json::parse(step));
  }
  return sequence;
}

// A text would go through all of them, words by recursion.
TEST(HuggingFaceTokenizerTest, SequencesHaveALimit) {
  struct Kind {
    const char* field;
    const char* parts;
    const char* step;
  };
  for (const Kind& kind : std::vector<Kind>{
           {"normalizer", "normalizers", R"({"type": "NFC"})"},
           {"pre_tokenizer", "pretokenizers",
            R"({"type": "Split", "pattern": {"Regex": "a"},
                "behavior": "Isolated"})"},
           {"post_processor", "processors", R"({"type": "ByteLevel"})"},
           {"decoder", "decoders", R"({"type": "Fuse"})"}}) {
    SCOPED_TRACE(kind.field);
    json file = SmallFile();
    file[kind.field] = StepsOf(kind.step, kind.parts, 20'000);
    EXPECT_EQ(ParseJson(file).status(),
              absl::InvalidArgumentError(absl::StrCat(
                  kind.field, " has 20000 steps, the limit is 64")));
    // Those of nested sequences count together.
    json nested = StepsOf("{}", kind.parts, 0);
    nested[kind.parts] = {StepsOf(kind.step, kind.parts, 40),
                          StepsOf(kind.step, kind.parts, 24)};
    file[kind.field] = nested;
    const auto most = ParseJson(file);
    ASSERT_TRUE(most.ok()) << most.status();
    EXPECT_TRUE((*most)->Encode(std::string(2000, 'a')).ok());
    nested[kind.parts].push_back(json::parse(kind.step));
    file[kind.field] = nested;
    EXPECT_THAT(std::string(ParseJson(file).status().message()),
                HasSubstr(" has 65 steps"));
  }
}

TEST(HuggingFaceTokenizerTest, DeepNestingIsAnError) {
  std::string nested = R"({"type": "NFC"})";
  for (int i = 0; i < 20; ++i) {
    nested = R"({"type": "Sequence", "normalizers": [)" + nested + "]}";
  }
  ExpectInvalid((R"({"normalizer": )" + nested + "}").c_str(),
                "nested deeper than 16");
  std::string brackets = R"({"x": )";
  brackets += std::string(200'000, '[') + std::string(200'000, ']') + "}";
  EXPECT_EQ(ParseHuggingFaceTokenizer(brackets).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace nacre::tokenizer
