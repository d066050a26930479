// Added tokens outside the tokenizer's own file. make_added_tokens.py makes the
// folders and what transformers makes of them.

#include "tokenizer/configured_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/json.h"
#include "tests/tokenizer/goldens.h"
#include "tokenizer/tokenizer.h"

namespace nacre::tokenizer {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kBundled[] = "tokenizer.model";

class ConfiguredTokensTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = absl::StrCat(::testing::TempDir(), "/nacre_added_", ::getpid());
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  void Write(const std::string& name, const std::string& content) {
    std::ofstream(dir_ + "/" + name, std::ios::binary) << content;
  }

  // A folder of that tokenizer alone: a file of the test's data, or the bundled
  // model's.
  void Begin(const std::string& tokenizer) {
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    if (tokenizer == kBundled) {
      Write(kBundled, ReadWholeFile(NACRE_MODELS "/target/tokenizer.model"));
    } else {
      Write("tokenizer.json", ReadTestFile(tokenizer));
    }
  }

  std::unique_ptr<Tokenizer> Load() {
    auto tokenizer = LoadTokenizer(dir_);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
  }

  void ExpectError(const std::string& file, const std::string& message) {
    const auto tokenizer = LoadTokenizer(dir_);
    EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument)
        << tokenizer.status();
    EXPECT_THAT(std::string(tokenizer.status().message()),
                AllOf(HasSubstr(absl::StrCat(dir_, "/", file, ": ")),
                      HasSubstr(message)));
  }

  std::string dir_;
};

void ExpectFolder(const Tokenizer& tokenizer,
                  const nlohmann::ordered_json& folder) {
  for (const auto& [id, content] : folder["tokens"].items()) {
    const int32_t number = std::stoi(id);
    EXPECT_EQ(tokenizer.IdToPiece(number), content.get<std::string>());
    EXPECT_EQ(tokenizer.PieceToId(content.get<std::string>()), number);
    EXPECT_LT(number, tokenizer.vocab_size());
  }
  for (const nlohmann::ordered_json& line : folder["texts"]) {
    const std::string text = line["text"];
    SCOPED_TRACE(text);
    const auto ids = line["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(*tokenizer.Encode(text), ids);
    if (!line.contains("decoded")) continue;
    for (const bool skip : {true, false}) {
      const std::string decoded = line[skip ? "decoded" : "decoded_all"];
      EXPECT_EQ(tokenizer.Decode(ids, skip), decoded);
      ExpectStreams(tokenizer, ids, skip, decoded);
    }
  }
}

TEST_F(ConfiguredTokensTest, HasTheIdsAndTheTextOfTransformers) {
  const nlohmann::ordered_json folders =
      nlohmann::ordered_json::parse(ReadTestFile("added_tokens.json"));
  ASSERT_GE(folders.size(), 30u);
  for (const nlohmann::ordered_json& folder : folders) {
    const std::string file = folder["tokenizer"];
    SCOPED_TRACE(absl::StrCat(file, " ", folder["name"].get<std::string>()));
    Begin(file);
    for (const auto& [name, content] : folder["files"].items()) {
      Write(name, content.dump());
    }
    const auto tokenizer = Load();
    ASSERT_NE(tokenizer, nullptr);
    ExpectFolder(*tokenizer, folder);
  }
}

// As most published folders have them.
TEST_F(ConfiguredTokensTest, TokensThatBothFilesHaveChangeNothing) {
  for (const char* file : {"deepseek_v3.json", "gemma.json", "gpt_neox.json",
                           "llama2.json", "phi3.json", "qwen3.json"}) {
    SCOPED_TRACE(file);
    Begin(file);
    const auto plain = Load();
    ASSERT_NE(plain, nullptr);
    auto own = nlohmann::ordered_json::parse(ReadTestFile(file));
    nlohmann::ordered_json config;
    for (nlohmann::ordered_json& token : own["added_tokens"]) {
      const std::string id = token["id"].dump();
      token.erase("id");
      config["additional_special_tokens"].push_back(token["content"]);
      config["added_tokens_decoder"][id] = std::move(token);
    }
    Write("tokenizer_config.json", config.dump());
    Write("added_tokens.json", R"({"<unread>": 0})");
    ASSERT_FALSE(config["added_tokens_decoder"].empty());
    const auto both = Load();
    ASSERT_NE(both, nullptr);
    EXPECT_EQ(both->VocabularyHash(plain->vocab_size()),
              plain->VocabularyHash(plain->vocab_size()));
    EXPECT_EQ(both->vocab_size(), plain->vocab_size());
    for (int id = 0; id < plain->vocab_size(); ++id) {
      EXPECT_EQ(both->IsSpecial(id), plain->IsSpecial(id)) << id;
    }
    for (const std::string& text : Corpus()) {
      const std::vector<int32_t> ids = *plain->Encode(text);
      EXPECT_EQ(*both->Encode(text), ids) << text;
      EXPECT_EQ(both->Decode(ids), plain->Decode(ids)) << text;
    }
  }
}

// All of them are found in a prompt, and decoded to their names.
TEST_F(ConfiguredTokensTest, ChatTokensOfAModelAreTheirIds) {
  Begin(kBundled);
  Write("added_tokens.json", R"({"<|im_start|>": 4096, "<|im_end|>": 4097})");
  const auto tokenizer = Load();
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->vocab_size(), 4098);
  const std::vector<int32_t> ids =
      *tokenizer->Encode("a<|im_start|>user\nHi<|im_end|>");
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 4096), 1);
  EXPECT_EQ(ids.back(), 4097);
  EXPECT_EQ(tokenizer->Decode({4096, 4097}), "<|im_start|><|im_end|>");
  // What a user wrote is none, also where the folder does not call it special.
  const TextRange all = {0, 12};
  const std::vector<int32_t> letters =
      *tokenizer->Encode("<|im_start|>", {.user_text = {&all, 1}});
  EXPECT_EQ(std::count(letters.begin(), letters.end(), 4096), 0);
  // The file's ids, also behind a gap.
  Write("added_tokens.json", R"({"<|im_start|>": 4100})");
  EXPECT_THAT(*Load()->Encode("<|im_start|>", {.add_special_tokens = false}),
              ElementsAre(4100));
}

// transformers 4 calls them special, 5 does not: the folder says it.
TEST_F(ConfiguredTokensTest, TokensListedInTheMapAreSpecial) {
  for (const char* tokenizer : {"llama3.json", kBundled}) {
    Begin(tokenizer);
    const int first = tokenizer == kBundled ? 4096 : 803;
    Write("special_tokens_map.json",
          R"({"additional_special_tokens": ["<x>", {"content": "<y>"}, ""],
              "pad_token": {"content": "<z>"}, "eos_token": null})");
    Write("added_tokens.json",
          absl::StrCat(R"({"<x>": )", first, R"(, "<z>": )", first + 1, "}"));
    const auto loaded = Load();
    ASSERT_NE(loaded, nullptr);
    EXPECT_EQ(loaded->vocab_size(), first + 3);
    EXPECT_EQ(loaded->PieceToId("<y>"), first + 2);
    for (int id = first; id < first + 3; ++id) {
      EXPECT_TRUE(loaded->IsSpecial(id));
    }
  }
}

// A model finds these itself, with the space that it puts in front.
TEST_F(ConfiguredTokensTest, ListedSymbolsOfAModelStayWhatTheyAre) {
  Begin("llama3.json");
  std::filesystem::remove(dir_ + "/tokenizer.json");
  Write(kBundled, ReadTestFile("spm_rules.model"));
  const auto plain = Load();
  ASSERT_NE(plain, nullptr);
  Write("tokenizer_config.json", R"({"additional_special_tokens": ["<sep>"]})");
  const auto listed = Load();
  ASSERT_NE(listed, nullptr);
  EXPECT_EQ(listed->vocab_size(), plain->vocab_size());
  EXPECT_EQ(*listed->Encode("a<sep>b"), *plain->Encode("a<sep>b"));
}

// Files that transformers does not read beside added_tokens_decoder.
TEST_F(ConfiguredTokensTest, TheDecoderComesBeforeOlderFiles) {
  Begin("llama3.json");
  Write("tokenizer_config.json", R"({"added_tokens_decoder": {}})");
  Write("added_tokens.json", "[");
  Write("special_tokens_map.json", "[");
  EXPECT_EQ(Load()->vocab_size(), 803);
}

// A name that no file gives an id stays text. No model needs to have a row.
TEST_F(ConfiguredTokensTest, ANamedTokenAloneAddsNone) {
  for (const char* tokenizer : {"llama3.json", kBundled}) {
    Begin(tokenizer);
    const int size = Load()->vocab_size();
    Write("tokenizer_config.json", R"({"pad_token": "<pad>"})");
    EXPECT_EQ(Load()->vocab_size(), size);
  }
}

TEST_F(ConfiguredTokensTest, RefusesIdsThatAreNotToBeTold) {
  const struct {
    const char* config;
    const char* added;  // none: ""
    const char* message;
  } kCases[] = {
      {R"({"added_tokens_decoder": {"259": {"content": "<x>"}}})", "",
       "tokenizer_config.added_tokens_decoder.259: added token '<x>' has id "
       "259, which is 'in' in the vocabulary"},
      {R"({"added_tokens_decoder": {"800": {"content": "<x>"}}})", "",
       "added token '<x>' has id 800, which is '<|begin_of_text|>' in"},
      {R"({"added_tokens_decoder": {"804": {"content": "<x>"}}})", "",
       "added token '<x>' has id 804, but the next one behind the vocabulary "
       "is 803"},
      {"{}", R"({"<x>": 800})",
       "added_tokens.<x>: added token '<x>' has id 800, which is "
       "'<|begin_of_text|>'"},
      {"{}", R"({"<x>": 803, "<y>": 803})", "has id 803, which is '<x>'"},
      {"{}", R"({"<x>": 4000000})", "the next one behind the vocabulary is"},
      {R"({"pad_token": "<p>", "extra_special_tokens": ["<x>"]})", "",
       "tokenizer_config.extra_special_tokens[0]: added token '<x>' has no id, "
       "nor has tokenizer_config.pad_token '<p>'"},
  };
  for (const auto& test : kCases) {
    Begin("llama3.json");
    Write("tokenizer_config.json", test.config);
    if (*test.added != 0) Write("added_tokens.json", test.added);
    ExpectError("tokenizer.json", test.message);
  }
  Begin(kBundled);
  Write("added_tokens.json", R"({"<x>": 300})");
  ExpectError(kBundled,
              "added_tokens.<x>: added token '<x>' has id 300, which");
}

TEST_F(ConfiguredTokensTest, RefusesMalformedFilesByPath) {
  const struct {
    const char* file;
    std::string content;
    const char* message;
  } kCases[] = {
      {"added_tokens.json", "{", "added_tokens is not valid JSON (1 bytes)"},
      {"added_tokens.json", "[]", "added_tokens is array, expected an object"},
      {"added_tokens.json", R"({"<x>": "7"})",
       "added_tokens.<x> is string, expected a token id"},
      {"added_tokens.json", R"({"<x>": -1})", "added_tokens.<x> is number"},
      {"added_tokens.json", R"({"<x>": 4194304})",
       "added_tokens.<x> is token id 4194304, the limit is 4194303"},
      {"added_tokens.json", R"({"": 803})",
       "added_tokens. has 0 bytes, expected 1 to 4096"},
      {"added_tokens.json",
       absl::StrCat("{\"", std::string(4097, 'x'), "\": 803}"),
       " has 4097 bytes, expected 1 to 4096"},
      {"special_tokens_map.json", "7", "special_tokens_map is number"},
      {"special_tokens_map.json", R"({"additional_special_tokens": "<x>"})",
       "special_tokens_map.additional_special_tokens is string"},
      {"special_tokens_map.json", R"({"additional_special_tokens": [7]})",
       "special_tokens_map.additional_special_tokens[0] is number"},
      {"tokenizer_config.json", R"({"extra_special_tokens": [{"x": "<x>"}]})",
       "tokenizer_config.extra_special_tokens[0].content is missing"},
      {"tokenizer_config.json", R"({"extra_special_tokens": {"x_token": 7}})",
       "tokenizer_config.extra_special_tokens.x_token is number"},
  };
  for (const auto& test : kCases) {
    for (const char* tokenizer : {"llama3.json", kBundled}) {
      Begin(tokenizer);
      Write(test.file, test.content);
      ExpectError(test.file, test.message);
    }
  }
}

// Their vocabularies tell all special tokens in one place.
TEST_F(ConfiguredTokensTest, RefusesFurtherTokensBesideTiktoken) {
  Begin("llama3.json");
  std::filesystem::remove(dir_ + "/tokenizer.json");
  Write("qwen.tiktoken", TiktokenOfSize(151643));
  Write("config.json", R"({"model_type": "qwen"})");
  Write("tokenizer_config.json", R"({"tokenizer_class": "QWenTokenizer"})");
  Write("added_tokens.json", R"({"<|im_start|>": 151644})");
  EXPECT_EQ(Load()->vocab_size(), 151851);
  Write("added_tokens.json", R"({"<|im_start|>": 151645})");
  ExpectError("qwen.tiktoken", "or has another id than 151645");
  Write("added_tokens.json", R"({"<x>": 151851})");
  ExpectError("qwen.tiktoken",
              "added_tokens.<x>: '<x>' is no special token of this vocabulary");
}

}  // namespace
}  // namespace nacre::tokenizer
