// Every tokenizer of tests/data/tokenizer against its library on the 2,000
// texts of corpus.jsonl. make_corpus_goldens.py says what a golden holds.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/tokenizer/goldens.h"
#include "tokenizer/hugging_face_tokenizer.h"
#include "tokenizer/sentencepiece_tokenizer.h"
#include "tokenizer/tiktoken_tokenizer.h"

namespace nacre::tokenizer {
namespace {

bool IsSentencePiece(const std::string& name) {
  return absl::StartsWith(name, "spm_");
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Parse(const std::string& name) {
  if (IsSentencePiece(name)) {
    return ParseSentencePieceTokenizer(ReadTestFile(name + ".model"));
  }
  if (name == "tiktoken") {
    return LoadTokenizer(NACRE_TEST_DATA "/tokenizer/tiktoken");
  }
  if (name == "tiktoken_llama3") {
    return ParseTiktokenTokenizer(
        TiktokenOfSize(128000),
        {.model_config = R"({"model_type": "llama", "vocab_size": 128256})"});
  }
  if (name == "tiktoken_qwen") {
    return ParseTiktokenTokenizer(
        TiktokenOfSize(151643),
        {.is_qwen = true,
         .tokenizer_config = R"({"tokenizer_class": "QWenTokenizer"})",
         .model_config = R"({"model_type": "qwen"})"});
  }
  return ParseHuggingFaceTokenizer(ReadTestFile(name + ".json"));
}

std::unique_ptr<Tokenizer> Load(const std::string& name) {
  if (name == "spm_bundled") return LoadBundled();
  auto tokenizer = Parse(name);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

void AddLittleEndian(uint64_t value, size_t bytes, std::string* to) {
  for (size_t i = 0; i < bytes; ++i) {
    to->push_back(static_cast<char>(value >> (8 * i)));
  }
}

uint64_t Fnv1a(const std::string& bytes) {
  uint64_t value = 0xCBF29CE484222325;
  for (const char byte : bytes) {
    value = (value ^ static_cast<uint8_t>(byte)) * 0x100000001B3;
  }
  return value;
}

std::vector<int32_t> RandomIds(size_t index, int vocab_size) {
  std::minstd_rand random(static_cast<uint32_t>(index + 1));
  const int top = index % 2 == 1 ? std::min(vocab_size, 300) : vocab_size;
  std::vector<int32_t> ids(1 + random() % 12);
  for (int32_t& id : ids) {
    id = static_cast<int32_t>(random() % static_cast<uint32_t>(top));
  }
  return ids;
}

// What a tokenizer makes of one text of the corpus.
struct Outcome {
  std::vector<std::vector<int32_t>> ids;  // by EncodeOptions
  std::vector<std::string> decoded;

  std::string Hash() const {
    std::string id_bytes;
    for (const std::vector<int32_t>& list : ids) {
      for (const int32_t id : list) {
        AddLittleEndian(static_cast<uint32_t>(id), 4, &id_bytes);
      }
      AddLittleEndian(0xFFFFFFFF, 4, &id_bytes);
    }
    std::string hash;
    AddLittleEndian(Fnv1a(id_bytes), 6, &hash);
    AddLittleEndian(Fnv1a(absl::StrCat(absl::StrJoin(decoded, "\xFF"), "\xFF")),
                    3, &hash);
    return absl::Base64Escape(hash);
  }
};

Outcome OutcomeOf(const Tokenizer& tokenizer, bool sentencepiece, size_t index,
                  const std::string& text) {
  std::vector<EncodeOptions> options = {
      {},
      {.add_special_tokens = false},
      {.add_special_tokens = false, .parse_special_tokens = false}};
  if (sentencepiece) options.erase(options.begin(), options.begin() + 2);
  Outcome outcome;
  for (const EncodeOptions& option : options) {
    const auto ids = tokenizer.Encode(text, option);
    EXPECT_TRUE(ids.ok()) << ids.status();
    outcome.ids.push_back(ids.value_or(std::vector<int32_t>()));
  }
  const int decodings = sentencepiece ? 1 : 2;
  for (const std::vector<int32_t>& ids :
       {outcome.ids[0], RandomIds(index, tokenizer.vocab_size())}) {
    for (int i = 0; i < decodings; ++i) {
      outcome.decoded.push_back(tokenizer.Decode(ids, i == 0));
      ExpectStreams(tokenizer, ids, i == 0, outcome.decoded.back());
    }
  }
  return outcome;
}

std::string ToString(const Outcome& outcome) {
  std::string text;
  for (const std::vector<int32_t>& ids : outcome.ids) {
    absl::StrAppend(&text, "our ids: ", absl::StrJoin(ids, " "), "\n");
  }
  for (const std::string& decoded : outcome.decoded) {
    absl::StrAppend(&text, "decoded: '", absl::CHexEscape(decoded), "'\n");
  }
  return text;
}

class CorpusTest : public ::testing::TestWithParam<const char*> {};

TEST_P(CorpusTest, HasTheIdsAndTheTextOfTheLibrary) {
  const std::string name = GetParam();
  const std::vector<std::string> goldens =
      ReadTestLines("corpus_goldens/" + name + ".txt");
  ASSERT_EQ(goldens.size(), kCorpusTexts);
  const std::unique_ptr<Tokenizer> tokenizer = Load(name);
  ASSERT_NE(tokenizer, nullptr);
  size_t whole = 0;
  size_t different = 0;
  for (size_t i = 0; i < kCorpusTexts && different < 20; ++i) {
    const std::string& text = Corpus()[i];
    SCOPED_TRACE(absl::StrCat("text ", i, ": '", text, "'"));
    const Outcome outcome =
        OutcomeOf(*tokenizer, IsSentencePiece(name), i, text);
    const size_t space = std::min(goldens[i].find(' '), goldens[i].size());
    EXPECT_EQ(outcome.Hash(), goldens[i].substr(0, space)) << ToString(outcome);
    different += outcome.Hash() != goldens[i].substr(0, space);
    if (space == goldens[i].size()) continue;
    EXPECT_EQ(absl::StrJoin(outcome.ids[0], " "), goldens[i].substr(space + 1));
    ++whole;
  }
  EXPECT_GE(whole, different == 0 ? kCorpusTexts / 60 : 0);
}

INSTANTIATE_TEST_SUITE_P(
    All, CorpusTest,
    ::testing::Values("big_code", "codellama", "deepseek_coder", "deepseek_llm",
                      "deepseek_v3", "gemma", "gpt_neox", "llama2", "llama3",
                      "mistral", "phi3", "phi4", "phi4_mini", "qwen2", "qwen3",
                      "spm_bundled", "spm_gemma", "spm_rules", "spm_suffix",
                      "starcoder2", "tekken", "tiktoken", "tiktoken_llama3",
                      "tiktoken_qwen"),
    [](const ::testing::TestParamInfo<const char*>& info) {
      return std::string(info.param);
    });

}  // namespace
}  // namespace nacre::tokenizer
