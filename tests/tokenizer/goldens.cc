#include "tests/tokenizer/goldens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <sstream>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/utf8.h"

namespace nacre::tokenizer {

std::string ReadWholeFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

std::string ReadTestFile(const std::string& name) {
  return ReadWholeFile(NACRE_TEST_DATA "/tokenizer/" + name);
}

std::vector<std::string> ReadTestLines(const std::string& name) {
  std::istringstream content(ReadTestFile(name));
  std::vector<std::string> lines;
  for (std::string line; std::getline(content, line);) lines.push_back(line);
  return lines;
}

const std::vector<std::string>& Corpus() {
  static const auto* const texts = [] {
    auto* const read = new std::vector<std::string>;
    for (const std::string& line : ReadTestLines("corpus.jsonl")) {
      read->push_back(nlohmann::json::parse(line).get<std::string>());
    }
    return read;
  }();
  EXPECT_EQ(texts->size(), kCorpusTexts);
  return *texts;
}

Golden ParseGolden(const nlohmann::json& line) {
  Golden golden;
  if (line.contains("text")) golden.text = line["text"].get<std::string>();
  golden.ids = line["ids"].get<std::vector<int32_t>>();
  golden.decoded = line["decoded"].get<std::string>();
  golden.decoded_all = line.value("decoded_all", golden.decoded);
  return golden;
}

std::vector<Golden> ReadGoldens(const std::string& name) {
  std::vector<Golden> goldens;
  for (const std::string& line : ReadTestLines(name)) {
    goldens.push_back(ParseGolden(nlohmann::json::parse(line)));
  }
  EXPECT_GT(goldens.size(), 150u) << name;
  return goldens;
}

void ExpectStreams(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                   bool skip_special_tokens, const std::string& expected) {
  std::mt19937 random(static_cast<uint32_t>(ids.size()));
  for (const size_t longest : {1, 5}) {
    StreamDecoder stream(&tokenizer, skip_special_tokens);
    std::string text;
    for (size_t i = 0; i < ids.size();) {
      const size_t count =
          std::min<size_t>(1 + random() % longest, ids.size() - i);
      const std::string part =
          stream.Append(absl::MakeConstSpan(ids).subspan(i, count));
      EXPECT_EQ(FindInvalidUtf8(part), absl::string_view::npos);
      text += part;
      i += count;
    }
    text += stream.Flush();
    EXPECT_EQ(text, expected);
  }
}

void ExpectGoldens(const Tokenizer& tokenizer,
                   const std::vector<Golden>& goldens, EncodeOptions options,
                   bool check_decoded_all) {
  for (size_t i = 0; i < goldens.size(); ++i) {
    const Golden& golden = goldens[i];
    SCOPED_TRACE("golden " + std::to_string(i) + ": " +
                 golden.text.value_or("(ids only)"));
    if (golden.text) {
      const auto ids = tokenizer.Encode(*golden.text, options);
      ASSERT_TRUE(ids.ok()) << ids.status();
      EXPECT_EQ(*ids, golden.ids);
    }
    EXPECT_EQ(tokenizer.Decode(golden.ids), golden.decoded);
    ExpectStreams(tokenizer, golden.ids, true, golden.decoded);
    if (!check_decoded_all) continue;
    EXPECT_EQ(tokenizer.Decode(golden.ids, false), golden.decoded_all);
    ExpectStreams(tokenizer, golden.ids, false, golden.decoded_all);
  }
}

std::string TiktokenOfSize(size_t size) {
  std::string text = ReadTestFile("tiktoken/tokenizer.model");
  const size_t ranks = std::count(text.begin(), text.end(), '\n');
  for (size_t rank = ranks; rank < size; ++rank) {
    const char token[] = {'\xFF', static_cast<char>(rank >> 16),
                          static_cast<char>(rank >> 8),
                          static_cast<char>(rank)};
    absl::StrAppend(&text,
                    absl::Base64Escape(absl::string_view(token, sizeof(token))),
                    " ", rank, "\n");
  }
  return text;
}

std::unique_ptr<Tokenizer> LoadBundled() {
  auto tokenizer = LoadTokenizer(NACRE_MODELS "/target");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

}  // namespace nacre::tokenizer
