#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "tests/tokenizer/goldens.h"
#include "tokenizer/tokenizer.h"

namespace nacre::tokenizer {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LoadTokenizerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = ::testing::TempDir() + "/nacre_load_" + std::to_string(::getpid());
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  void Write(const std::string& name, const std::string& content) {
    std::ofstream(dir_ + "/" + name, std::ios::binary) << content;
  }

  void ExpectError(absl::StatusCode code, const std::string& file,
                   const std::string& message) {
    const auto tokenizer = LoadTokenizer(dir_);
    ASSERT_FALSE(tokenizer.ok());
    EXPECT_EQ(tokenizer.status().code(), code) << tokenizer.status();
    EXPECT_THAT(std::string(tokenizer.status().message()),
                AllOf(HasSubstr(dir_ + file), HasSubstr(message)));
  }

  std::string dir_;
};

TEST_F(LoadTokenizerTest, NamesTheFolderWithoutTokenizer) {
  ExpectError(absl::StatusCode::kNotFound, "", "no tokenizer.json");
}

TEST_F(LoadTokenizerTest, PrefersTokenizerJson) {
  Write("tokenizer.model", ReadTestFile("spm_suffix.model"));
  EXPECT_EQ((*LoadTokenizer(dir_))->vocab_size(), 620);
  Write("tokenizer.json", ReadTestFile("llama3.json"));
  EXPECT_EQ((*LoadTokenizer(dir_))->vocab_size(), 803);
}

// So a text of many bytes has many tokens, and needs no tokenizing to tell.
TEST_F(LoadTokenizerTest, NoTokenStandsForMoreThanTheLongestPiece) {
  Write("tokenizer.json", ReadTestFile("llama3.json"));
  const std::unique_ptr<Tokenizer> json = *LoadTokenizer(dir_);
  const std::unique_ptr<Tokenizer> bundled = LoadBundled();
  for (const Tokenizer* tokenizer : {json.get(), bundled.get()}) {
    size_t longest = 0;
    for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
      longest = std::max(longest, tokenizer->IdToPiece(id).size());
      const std::string piece = tokenizer->Decode({id});
      std::string text;
      for (int i = 0; i < 20; ++i) text += piece;
      const auto ids = tokenizer->Encode(text);
      if (!ids.ok()) continue;  // a part of a character
      EXPECT_LE(text.size(), ids->size() * tokenizer->longest_piece_bytes())
          << piece;
    }
    EXPECT_EQ(tokenizer->longest_piece_bytes(), longest);
  }
}

TEST_F(LoadTokenizerTest, ErrorsNameTheFile) {
  Write("tokenizer.model", "\x0A");
  ExpectError(absl::StatusCode::kDataLoss, "/tokenizer.model", "cut off");
  Write("tokenizer.json", "{");
  ExpectError(absl::StatusCode::kInvalidArgument, "/tokenizer.json",
              "not valid JSON");
  Write("tokenizer_config.json", "[]");
  ExpectError(absl::StatusCode::kInvalidArgument, "/tokenizer_config.json",
              "is array, expected an object");
}

TEST_F(LoadTokenizerTest, RefusesADeepFile) {
  const std::string deep =
      R"({"a":)" + std::string(200'000, '[') + std::string(200'000, ']') + "}";
  Write("tokenizer.json", deep);
  ExpectError(absl::StatusCode::kInvalidArgument, "/tokenizer.json",
              "nested deeper than 64");
  Write("tokenizer_config.json", deep);
  ExpectError(absl::StatusCode::kInvalidArgument, "/tokenizer_config.json",
              "nested deeper than 64");
}

TEST_F(LoadTokenizerTest, SaysHowFormsThatAreUnreadAreConverted) {
  Write("other.tiktoken", "IQ== 0\nIg== 1\n");
  ExpectError(absl::StatusCode::kNotFound, "; other.tiktoken is a tiktoken",
              "A tokenizer.json beside it is read in its place");
  Write("vocab.json", "{}");
  ExpectError(absl::StatusCode::kNotFound, "; vocab.json and merges.txt",
              "save_pretrained");
  Write("tokenizer.model", ReadTestFile("tiktoken/tokenizer.model"));
  ExpectError(absl::StatusCode::kUnimplemented,
              "/tokenizer.model: a tiktoken vocabulary",
              "A tokenizer.json beside it is read in its place");
}

TEST_F(LoadTokenizerTest, ReadsTiktoken) {
  Write("tokenizer.model", TiktokenOfSize(128000));
  Write("config.json", R"({"model_type": "llama", "vocab_size": 128256})");
  EXPECT_EQ((*LoadTokenizer(dir_))->vocab_size(), 128256);
  Write("tokenizer.model", ReadTestFile("tiktoken/tokenizer.model"));
  Write("tokenizer_config.json",
        R"({"additional_special_tokens": ["<a>"], "eos_token": "<a>"})");
  EXPECT_EQ((*LoadTokenizer(dir_))->eos_id(), 800);
  Write("added_tokens.json", "{}");
  ExpectError(absl::StatusCode::kUnimplemented, "/tokenizer.model",
              "special_tokens_map.json or added_tokens.json is there");
  Write("tokenizer.model", "IQ== 0\nIg== 2\n");
  ExpectError(absl::StatusCode::kInvalidArgument,
              "/tokenizer.model: line 2: rank 2 of a file of 2", "");
  std::filesystem::remove(dir_ + "/tokenizer.model");
  Write("tokenizer_config.json", R"({"tokenizer_class": "QWenTokenizer"})");
  Write("qwen.tiktoken", TiktokenOfSize(151643));
  EXPECT_EQ((*LoadTokenizer(dir_))->vocab_size(), 151851);
  Write("qwen.tiktoken", "IQ== 0\r\n");
  ExpectError(absl::StatusCode::kInvalidArgument,
              "/qwen.tiktoken: line 1: rank '0\\r' is no number", "");
}

// A file that waits for a writer, or never ends.
TEST_F(LoadTokenizerTest, RefusesWhatIsNoRegularFile) {
  for (const char* name :
       {"/tokenizer.model", "/tokenizer.json", "/tokenizer_config.json"}) {
    const std::string path = dir_ + name;
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    ExpectError(absl::StatusCode::kInvalidArgument, name,
                "is not a regular file");
    std::filesystem::remove(path);
    std::filesystem::create_symlink("/dev/zero", path);
    ExpectError(absl::StatusCode::kInvalidArgument, name,
                "is not a regular file");
    std::filesystem::remove(path);
    std::filesystem::create_symlink(dir_ + "/elsewhere", path);
  }
  Write("elsewhere", "{");
  ExpectError(absl::StatusCode::kInvalidArgument, "/tokenizer_config.json",
              "not valid JSON");
}

TEST_F(LoadTokenizerTest, ReadsTokensAsStringsAndAsObjects) {
  Write("tokenizer.json", ReadTestFile("llama3.json"));
  Write("tokenizer_config.json",
        R"({"bos_token": {"content": "<|begin_of_text|>", "lstrip": false},
            "eos_token": "<|eot_id|>", "add_bos_token": false,
            "add_eos_token": true})");
  const auto tokenizer = *LoadTokenizer(dir_);
  EXPECT_EQ(tokenizer->bos_id(), 800);
  EXPECT_EQ(tokenizer->eos_id(), 802);
  EXPECT_THAT(*tokenizer->Encode(""), ElementsAre(802));
}

TEST_F(LoadTokenizerTest, RefusesConfigFieldsOfTheWrongType) {
  const struct {
    const char* config;
    const char* message;
  } kCases[] = {
      {R"({"add_bos_token": "yes"})", "tokenizer_config.add_bos_token is str"},
      {R"({"bos_token": 1})", "tokenizer_config.bos_token is number"},
      {R"({"eos_token": {"text": "x"}})", "eos_token.content is missing"},
      {R"({"legacy": 0})", "tokenizer_config.legacy is number"},
      {R"({"added_tokens_decoder": []})", "added_tokens_decoder is array"},
      {R"({"added_tokens_decoder": {"x": {"content": "y"}}})",
       "added_tokens_decoder.x: the key is no token id"},
      {R"({"added_tokens_decoder": {"7": {"content": 7}}})",
       "added_tokens_decoder.7.content is number"},
  };
  Write("tokenizer.model", ReadTestFile("spm_suffix.model"));
  for (const auto& test : kCases) {
    Write("tokenizer_config.json", test.config);
    ExpectError(absl::StatusCode::kInvalidArgument, "/tokenizer_config.json",
                test.message);
  }
}

TEST_F(LoadTokenizerTest, VocabularyHashTellsCommonIdsApart) {
  const auto target = *LoadTokenizer(NACRE_MODELS "/target");
  const auto draft = *LoadTokenizer(NACRE_MODELS "/draft");
  EXPECT_EQ(target->VocabularyHash(4096), draft->VocabularyHash(4096));
  EXPECT_NE(target->VocabularyHash(4096), target->VocabularyHash(4095));
  EXPECT_EQ(target->VocabularyHash(4096).size(), 64u);
  // A padded head counts more ids than there are pieces.
  EXPECT_NE(target->VocabularyHash(4096), target->VocabularyHash(4097));
  // SHA-256 of nothing, and of 05 00 00 00 "<unk>".
  EXPECT_EQ(target->VocabularyHash(0),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(target->VocabularyHash(1),
            "f39d795c6b5cffd682883d32bbf2425a8606174c82d7dcce6fb417a223ec3889");
}

}  // namespace
}  // namespace nacre::tokenizer
