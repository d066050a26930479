#include "tokenizer/tiktoken_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/tokenizer/goldens.h"

namespace nacre::tokenizer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr size_t kLlama3Ranks = 128000;
constexpr size_t kQwenRanks = 151643;

std::string Small() { return ReadTestFile("tiktoken/tokenizer.model"); }

// added_tokens_decoder of special tokens of these names, ids from `first` on.
std::string Decoder(const std::vector<std::string>& names, int first = 800) {
  std::vector<std::string> entries;
  entries.reserve(names.size());
  for (const std::string& name : names) {
    entries.push_back(absl::StrCat("\"", first++, "\": {\"content\": \"", name,
                                   "\", \"special\": true}"));
  }
  return absl::StrCat("\"added_tokens_decoder\": {",
                      absl::StrJoin(entries, ", "), "}");
}

std::unique_ptr<Tokenizer> Make(const std::string& vocabulary,
                                const TiktokenFolder& folder) {
  auto tokenizer = ParseTiktokenTokenizer(vocabulary, folder);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

void ExpectError(const std::string& vocabulary, const TiktokenFolder& folder,
                 absl::StatusCode code, const std::string& message) {
  const auto tokenizer = ParseTiktokenTokenizer(vocabulary, folder);
  EXPECT_EQ(tokenizer.status().code(), code) << tokenizer.status();
  EXPECT_THAT(std::string(tokenizer.status().message()), HasSubstr(message));
}

TEST(TiktokenTokenizerTest, HasTheListedTokensBehindTheRanks) {
  const auto tokenizer =
      Make(Small(), {.tokenizer_config = "{" + Decoder({"<a>", "<b>"}) +
                                         R"(, "bos_token": "<a>",
                                           "eos_token": {"content": "<b>"},
                                           "pad_token": null})"});
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->vocab_size(), 802);
  EXPECT_EQ(tokenizer->bos_id(), 800);
  EXPECT_EQ(tokenizer->eos_id(), 801);
  // Added only where the config says so, as `transformers` does.
  EXPECT_THAT(*tokenizer->Encode("<b><a>"), ElementsAre(801, 800));
  EXPECT_EQ(tokenizer->Decode({801, 800}), "");
}

TEST(TiktokenTokenizerTest, AppendsTokensThatOnlyTheListsHave) {
  for (const char* key :
       {"additional_special_tokens", "extra_special_tokens"}) {
    for (const std::string& decoder :
         {std::string("\"x\": 1"), Decoder({"<a>"})}) {
      const auto tokenizer = Make(
          Small(), {.tokenizer_config = absl::StrCat(
                        "{", decoder, ", \"", key, "\": [\"<a>\", \"<b>\"]}")});
      ASSERT_NE(tokenizer, nullptr);
      EXPECT_EQ(tokenizer->vocab_size(), 802);
      EXPECT_EQ(tokenizer->PieceToId("<a>"), 800);
      EXPECT_EQ(tokenizer->PieceToId("<b>"), 801);
      EXPECT_TRUE(tokenizer->IsSpecial(801));
    }
  }
}

TEST(TiktokenTokenizerTest, RefusesTokensWhoseIdsAreNotTheFiles) {
  const struct {
    std::string config;  // between the braces
    const char* message;
  } kCases[] = {
      {Decoder({"<a>"}, 801),
       "added_tokens_decoder.801 '<a>' has another id than the next behind the "
       "vocabulary, 800"},
      {Decoder({"<a>"}) + R"(, "pad_token": "<pad>")",
       "tokenizer_config.pad_token '<pad>' is none of the added tokens"},
      {Decoder({"<a>"}) + R"(, "image_token": 7)",
       "tokenizer_config.image_token is number"},
      {Decoder({"<a>"}) + R"(, "extra_special_tokens": {"x": "<x>"})",
       "tokenizer_config.extra_special_tokens.x '<x>' is none"},
      {Decoder({"<a>"}, 7),
       "added_tokens_decoder.7 '<a>' has the id of a token of the vocabulary, "
       "which has 800"},
      {Decoder({"<a>", "<a>"}),
       "added_tokens_decoder.801 '<a>' is the text of another token, too"},
      {Decoder({"in"}),
       "added_tokens_decoder.800 'in' is the text of another token, too"},
      {R"("additional_special_tokens": [{"content": "<a>"}])",
       "additional_special_tokens[0] is object, expected a string"},
      {R"("extra_special_tokens": [""])", "extra_special_tokens[0] is empty"},
      {Decoder({"<a>"}) + R"(, "tokenizer_class": 1)",
       "tokenizer_config.tokenizer_class is number"},
  };
  for (const auto& test : kCases) {
    ExpectError(Small(), {.tokenizer_config = "{" + test.config + "}"},
                absl::StatusCode::kInvalidArgument, test.message);
  }
}

TEST(TiktokenTokenizerTest, RefusesWhatTheFilesDoNotTell) {
  const struct {
    TiktokenFolder folder;
    const char* reason;
  } kCases[] = {
      {{}, "lists none (added_tokens_decoder), and it is not Llama 3's"},
      {{.tokenizer_config = R"({"bos_token": null})"}, "lists none"},
      {{.model_config = R"({"model_type": "llama", "vocab_size": 128256})"},
       "lists none"},
      {{.tokenizer_config = "{" + Decoder({"<a>"}) +
                            R"(, "auto_map": {"AutoTokenizer": ["x", null]}})"},
       "names code of its own (auto_map)"},
      {{.tokenizer_config = "{" + Decoder({"<a>"}) +
                            R"(, "tokenizer_class": "LlamaTokenizer"})"},
       "tokenizer_class is 'LlamaTokenizer', which may have others"},
      {{.tokenizer_config = R"({"extra_special_tokens": ["<a>"]})",
        .has_token_maps = true},
       "special_tokens_map.json or added_tokens.json is there"},
      {{.is_qwen = true}, "it is not the first Qwen's of 151643 tokens"},
  };
  for (const auto& test : kCases) {
    ExpectError(Small(), test.folder, absl::StatusCode::kUnimplemented,
                test.reason);
    ExpectError(Small(), test.folder, absl::StatusCode::kUnimplemented,
                "a tiktoken vocabulary of 800 tokens");
    ExpectError(Small(), test.folder, absl::StatusCode::kUnimplemented,
                "A tokenizer.json beside it is read in its place");
  }
}

TEST(TiktokenTokenizerTest, TellsLlama3ByConfig) {
  const std::string vocabulary = TiktokenOfSize(kLlama3Ranks);
  const auto first =
      Make(vocabulary, {.model_config = R"({"model_type": "llama",
          "vocab_size": 128256, "rope_scaling": null})"});
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->vocab_size(), 128256);
  EXPECT_EQ(first->bos_id(), 128000);
  EXPECT_EQ(first->eos_id(), 128001);
  EXPECT_THAT(*first->Encode("<|eot_id|>"), ElementsAre(128000, 128009));
  EXPECT_EQ(first->IdToPiece(128004), "<|reserved_special_token_2|>");
  EXPECT_EQ(first->IdToPiece(128006), "<|start_header_id|>");
  EXPECT_EQ(first->IdToPiece(128008), "<|reserved_special_token_4|>");
  EXPECT_EQ(first->IdToPiece(128255), "<|reserved_special_token_250|>");
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto later =
        Make(vocabulary,
             {.tokenizer_config = R"({"add_bos_token": false})",
              .model_config = absl::StrCat(
                  R"({"model_type": "llama", "vocab_size": 128256, ")", key,
                  R"(": {"rope_type": "llama3", "factor": 8.0}})")});
    ASSERT_NE(later, nullptr);
    EXPECT_THAT(*later->Encode("<|eot_id|>"), ElementsAre(128009));
    EXPECT_EQ(later->IdToPiece(128003), "<|reserved_special_token_1|>");
    EXPECT_EQ(later->IdToPiece(128004), "<|finetune_right_pad_id|>");
    EXPECT_EQ(later->IdToPiece(128005), "<|reserved_special_token_2|>");
    EXPECT_EQ(later->IdToPiece(128008), "<|eom_id|>");
    EXPECT_EQ(later->IdToPiece(128009), "<|eot_id|>");
    EXPECT_EQ(later->IdToPiece(128010), "<|python_tag|>");
    EXPECT_EQ(later->IdToPiece(128011), "<|reserved_special_token_3|>");
    EXPECT_EQ(later->IdToPiece(128255), "<|reserved_special_token_247|>");
  }
  for (const char* config :
       {R"({"model_type": "llama", "vocab_size": 128257})",
        R"({"model_type": "mllama", "vocab_size": 128256})",
        R"({"vocab_size": 128256})", ""}) {
    ExpectError(vocabulary, {.model_config = config},
                absl::StatusCode::kUnimplemented, "it is not Llama 3's");
  }
  ExpectError(vocabulary, {.model_config = "{"},
              absl::StatusCode::kInvalidArgument, "config.json");
}

TEST(TiktokenTokenizerTest, TellsTheFirstQwenByConfig) {
  const std::string vocabulary = TiktokenOfSize(kQwenRanks);
  const TiktokenFolder qwen = {
      .is_qwen = true,
      .tokenizer_config = R"({"tokenizer_class": "QWenTokenizer",
          "auto_map": {"AutoTokenizer": ["tokenization_qwen.QWenTokenizer"]}})",
      .model_config = R"({"model_type": "qwen"})"};
  const auto tokenizer = Make(vocabulary, qwen);
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->vocab_size(), 151851);
  EXPECT_EQ(tokenizer->bos_id(), std::nullopt);
  EXPECT_EQ(tokenizer->eos_id(), 151643);
  EXPECT_EQ(tokenizer->IdToPiece(151645), "<|im_end|>");
  EXPECT_EQ(tokenizer->IdToPiece(151850), "<|extra_204|>");
  // A text is normalized before its special tokens are looked for.
  EXPECT_THAT(*tokenizer->Encode("<|im_end|>"), ElementsAre(151645));
  EXPECT_EQ(*tokenizer->Encode("<|im_end|>\u0338"),
            *tokenizer->Encode("<|im_end|\u226F"));
  const struct {
    const char* tokenizer_config;
    const char* model_config;
  } kOthers[] = {
      {R"({"tokenizer_class": "QWenTokenizer"})", ""},
      {R"({"tokenizer_class": "QWenTokenizer"})", R"({"visual": {"x": 1}})"},
      {R"({"tokenizer_class": "QWenTokenizer"})", R"({"audio": {"x": 1}})"},
      {R"({"tokenizer_class": "Emu3Tokenizer"})", R"({"x": 1})"},
      {R"({"tokenizer_class": "QWenTokenizer",
           "additional_special_tokens": ["<a>"]})",
       R"({"x": 1})"},
      {"", R"({"x": 1})"},
  };
  for (const auto& other : kOthers) {
    ExpectError(vocabulary,
                {.is_qwen = true,
                 .tokenizer_config = other.tokenizer_config,
                 .model_config = other.model_config},
                absl::StatusCode::kUnimplemented, "it is not the first Qwen's");
  }
}

}  // namespace
}  // namespace nacre::tokenizer
