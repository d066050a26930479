#include "tokenizer/gguf_tokenizer.h"

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/gguf/gguf_file.h"
#include "common/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/gguf_vocabulary.h"
#include "tests/testing/gguf_writer.h"
#include "tests/tokenizer/goldens.h"
#include "tokenizer/hugging_face_tokenizer.h"
#include "tokenizer/sentencepiece_model.h"

namespace nacre::tokenizer {
namespace {

using nacre::gguf::GgufWriter;
using ::testing::HasSubstr;

constexpr int32_t kNormal = 1;
constexpr int32_t kControl = 3;
constexpr int32_t kUserDefined = 4;
constexpr int32_t kUnused = 5;

absl::StatusOr<std::unique_ptr<Tokenizer>> ParseWritten(
    const GgufWriter& writer) {
  const std::string bytes = writer.Bytes();
  const auto contents = gguf::Parse(bytes);
  EXPECT_TRUE(contents.ok()) << contents.status();
  return ParseGgufTokenizer(contents->metadata);
}

struct FileVocabulary {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
};

void Add(const FileVocabulary& vocabulary, GgufWriter* writer) {
  writer->Strings("tokenizer.ggml.tokens", vocabulary.tokens);
  writer->Numbers("tokenizer.ggml.token_type", GgufWriter::kI32,
                  vocabulary.types);
}

// What llama.cpp's converter writes of a tokenizer.json.
GgufWriter OfJson(const std::string& file, const std::string& pre) {
  const auto json = nlohmann::json::parse(ReadTestFile(file));
  FileVocabulary vocabulary;
  const auto set = [&](size_t id, const std::string& token, int32_t type) {
    for (size_t i = vocabulary.tokens.size(); i <= id; ++i) {
      vocabulary.tokens.push_back(absl::StrCat("[PAD", i, "]"));
      vocabulary.types.push_back(kUnused);
    }
    vocabulary.tokens[id] = token;
    vocabulary.types[id] = type;
  };
  for (const auto& [token, id] : json["model"]["vocab"].items()) {
    set(id, token, kNormal);
  }
  for (const auto& token : json["added_tokens"]) {
    set(token["id"], token["content"],
        token["special"] ? kControl : kUserDefined);
  }
  set(vocabulary.tokens.size() + 2, "[PAD]", kUnused);
  std::vector<std::string> merges;
  for (const auto& merge : json["model"]["merges"]) {
    merges.push_back(merge.is_string()
                         ? merge.get<std::string>()
                         : absl::StrCat(merge[0].get<std::string>(), " ",
                                        merge[1].get<std::string>()));
  }
  GgufWriter writer;
  writer.String("tokenizer.ggml.model", "gpt2");
  writer.String("tokenizer.ggml.pre", pre);
  Add(vocabulary, &writer);
  writer.Strings("tokenizer.ggml.merges", merges);
  return writer;
}

// ... and of a tokenizer.model.
GgufWriter OfSentencePiece(const std::string& bytes) {
  GgufWriter writer;
  gguf::AddVocabulary(*ParseSentencePieceModel(bytes), &writer);
  return writer;
}

// The goldens are of `tokenizers`.
TEST(GgufTokenizerTest, ByteLevelVocabulariesGiveTheIdsOfTheirJson) {
  const struct {
    const char* file;
    const char* pre;
    int bos;  // -1: none
  } kCases[] = {{"llama3", "llama-bpe", 800},
                {"qwen2", "qwen2", -1},
                {"starcoder2", "starcoder", -1},
                {"starcoder2", "smollm", -1}};
  for (const auto& tried : kCases) {
    const std::string file = absl::StrCat(tried.file, ".json");
    GgufWriter writer = OfJson(file, tried.pre);
    if (tried.bos >= 0) {
      writer.U32("tokenizer.ggml.bos_token_id",
                 static_cast<uint32_t>(tried.bos));
    }
    const auto tokenizer = ParseWritten(writer);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    ExpectGoldens(**tokenizer, ReadGoldens(absl::StrCat(tried.file, ".jsonl")),
                  {}, true);
    const auto json = *ParseHuggingFaceTokenizer(ReadTestFile(file));
    EXPECT_EQ((*tokenizer)->vocab_size(), json->vocab_size());
    EXPECT_EQ((*tokenizer)->VocabularyHash(json->vocab_size()),
              json->VocabularyHash(json->vocab_size()));
  }
}

// The shapes whose whole ids the goldens do not have. That of their json is
// compared with the library (corpus_test.cc).
TEST(GgufTokenizerTest, ByteLevelVocabulariesGiveTheIdsOfTheirJsonOnTheCorpus) {
  const struct {
    const char* file;
    const char* pre;
    const char* bos;
  } kCases[] = {{"tekken", "tekken", "<s>"},
                {"deepseek_coder", "deepseek-coder",
                 "<\uFF5Cbegin\u2581of\u2581sentence\uFF5C>"},
                {"qwen3", "qwen2", nullptr},
                {"big_code", "starcoder", nullptr}};
  const std::vector<std::string>& corpus = Corpus();
  for (const auto& tried : kCases) {
    SCOPED_TRACE(tried.pre);
    const std::string file = absl::StrCat(tried.file, ".json");
    const auto json = *ParseHuggingFaceTokenizer(ReadTestFile(file));
    GgufWriter writer = OfJson(file, tried.pre);
    if (tried.bos != nullptr) {
      writer.U32("tokenizer.ggml.bos_token_id",
                 static_cast<uint32_t>(json->PieceToId(tried.bos).value()));
      writer.Bool("tokenizer.ggml.add_bos_token", true);
    }
    const auto tokenizer = ParseWritten(writer);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    for (const std::string& text : corpus) {
      ASSERT_EQ(*(*tokenizer)->Encode(text), *json->Encode(text)) << text;
    }
  }
}

TEST(GgufTokenizerTest, TheBundledVocabularyGivesTheSameIds) {
  const auto bundled = LoadBundled();
  const auto tokenizer = ParseWritten(
      OfSentencePiece(ReadWholeFile(NACRE_MODELS "/target/tokenizer.model")));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->vocab_size(), bundled->vocab_size());
  EXPECT_EQ((*tokenizer)->VocabularyHash(bundled->vocab_size()),
            bundled->VocabularyHash(bundled->vocab_size()));
  EXPECT_EQ((*tokenizer)->bos_id(), bundled->bos_id());
  EXPECT_EQ((*tokenizer)->eos_id(), bundled->eos_id());
  size_t texts = 0;
  for (const Golden& golden : ReadGoldens("spm_bundled.jsonl")) {
    EXPECT_EQ((*tokenizer)->Decode(golden.ids), golden.decoded);
    if (!golden.text) continue;
    ++texts;
    const auto ids = (*tokenizer)->Encode(*golden.text);
    ASSERT_TRUE(ids.ok()) << ids.status();
    // "</s>" and the like in a text: a space is put after each, as llama.cpp
    // does, where the bundled files ask for none.
    if (golden.text->find('<') != std::string::npos) continue;
    EXPECT_EQ(*ids, *bundled->Encode(*golden.text)) << *golden.text;
  }
  EXPECT_GT(texts, 100u);
}

TEST(GgufTokenizerTest, OptionsOfTheFileAreHeeded) {
  GgufWriter writer =
      OfSentencePiece(ReadWholeFile(NACRE_MODELS "/target/tokenizer.model"));
  const auto ids = [](const GgufWriter& file, const char* text) {
    return *(*ParseWritten(file))->Encode(text);
  };
  const std::vector<int32_t> plain = ids(writer, "Hello");
  EXPECT_EQ(plain.front(), 1);
  GgufWriter no_bos = writer;
  no_bos.Bool("tokenizer.ggml.add_bos_token", false);
  EXPECT_EQ(ids(no_bos, "Hello"),
            std::vector<int32_t>(plain.begin() + 1, plain.end()));
  GgufWriter with_eos = writer;
  with_eos.Bool("tokenizer.ggml.add_eos_token", true);
  EXPECT_EQ(ids(with_eos, "Hello").back(), 2);
  GgufWriter no_prefix = writer;
  no_prefix.Bool("tokenizer.ggml.add_space_prefix", false);
  EXPECT_NE(ids(no_prefix, "Hello"), plain);
  EXPECT_EQ(ids(no_prefix, " Hello"), plain);
  const std::vector<int32_t> twice = ids(writer, "a</s>b");
  std::vector<int32_t> joined = ids(writer, "a");
  joined.push_back(2);
  for (const int32_t id : ids(no_bos, "b")) joined.push_back(id);
  EXPECT_EQ(twice, joined);
}

TEST(GgufTokenizerTest, WhatIsNotReadIsNamed) {
  const auto message = [](const GgufWriter& writer) {
    return std::string(ParseWritten(writer).status().message());
  };
  EXPECT_EQ(message(GgufWriter()), "metadata tokenizer.ggml.model is missing");
  EXPECT_EQ(message(GgufWriter().String("tokenizer.ggml.model", "bert")),
            "tokenizer.ggml.model \"bert\" is not supported; supported: "
            "\"llama\", \"gpt2\"");
  const std::string unknown = message(OfJson("qwen2.json", "default"));
  EXPECT_THAT(unknown, HasSubstr("tokenizer.ggml.pre \"default\" is not "
                                 "supported; supported: \"llama-bpe\""));
  GgufWriter writer;
  writer.String("tokenizer.ggml.model", "gpt2")
      .String("tokenizer.ggml.pre", "gpt-2");
  EXPECT_EQ(message(writer), "metadata tokenizer.ggml.tokens is missing");
  writer.Strings("tokenizer.ggml.tokens", {"a", "\xFF"});
  EXPECT_EQ(message(writer), "metadata tokenizer.ggml.token_type is missing");
  const auto types = [&](const std::vector<int32_t>& values) {
    return GgufWriter(writer)
        .Numbers("tokenizer.ggml.token_type", GgufWriter::kI32, values)
        .Strings("tokenizer.ggml.merges", {});
  };
  EXPECT_EQ(message(types({1})),
            "tokenizer.ggml.token_type has 1 elements, tokenizer.ggml.tokens "
            "has 2");
  EXPECT_EQ(message(types({1, 7})),
            "tokenizer.ggml.token_type[1] is 7, the known types are 1 to 6");
  EXPECT_EQ(message(types({1, 1})),
            "tokenizer.ggml.tokens[1] is \"\\xff\", no UTF-8");
  EXPECT_EQ(message(types({1, 5}).U32("tokenizer.ggml.bos_token_id", 9)),
            "metadata tokenizer.ggml.bos_token_id is 9, the vocabulary has 2 "
            "tokens");
  EXPECT_EQ(message(GgufWriter()
                        .String("tokenizer.ggml.model", "llama")
                        .Strings("tokenizer.ggml.tokens", {"a"})
                        .Numbers<int32_t>("tokenizer.ggml.token_type",
                                          GgufWriter::kI32, {1})
                        .Numbers<float>("tokenizer.ggml.scores",
                                        GgufWriter::kF32, {})),
            "tokenizer.ggml.scores has 0 elements, tokenizer.ggml.tokens has "
            "1");
}

// By its path, and with the path in what is wrong.
TEST(GgufTokenizerTest, LoadTokenizerTakesAFile) {
  const auto tokenizer = LoadTokenizer(NACRE_TEST_DATA "/model/gguf/q4_k.gguf");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->vocab_size(), 30);
  EXPECT_EQ(*(*tokenizer)->Encode("ab"), (std::vector<int32_t>{1, 4, 5}));
  const std::string path = ::testing::TempDir() + "/nacre_no_vocabulary.gguf";
  std::ofstream(path, std::ios::binary) << GgufWriter().Bytes();
  EXPECT_EQ(LoadTokenizer(path).status().message(),
            path + ": metadata tokenizer.ggml.model is missing");
}

}  // namespace
}  // namespace nacre::tokenizer
