// Bytes to the tokenizer readers, the config reader and the translator of
// patterns; what parses then encodes and decodes a short text, and encodes
// longer ones: what a file makes of them takes too long, or too much memory, if
// it has no limit. The first byte chooses the reader.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/check.h"
#include "tokenizer/hugging_face_tokenizer.h"
#include "tokenizer/regex.h"
#include "tokenizer/sentencepiece_tokenizer.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tiktoken_tokenizer.h"
#include "tokenizer/tiktoken_vocabulary.h"
#include "tokenizer/tokenizer_config.h"
#include "tokenizer/utf8.h"

namespace {

using nacre::tokenizer::Tokenizer;

constexpr char kText[] =
    "Hello <s>world</s>  123\n\t\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80 a\xCC\x81";

// One character, many words, and what normalization makes most of.
const std::vector<std::string>& LongTexts() {
  static const std::vector<std::string>* const texts = [] {
    auto* result = new std::vector<std::string>(4);
    while ((*result)[0].size() < 4000) {
      (*result)[0] += "a";
      (*result)[1] += "a b";
      (*result)[2] += "\xEF\xB7\xBA";  // U+FDFA
      (*result)[3] += kText;
    }
    return result;
  }();
  return *texts;
}

void UseTokenizer(const Tokenizer& tokenizer) {
  for (const std::string& text : LongTexts()) {
    const auto ids = tokenizer.Encode(text, {.max_ids = 100'000});
    NACRE_CHECK(!ids.ok() || ids->size() <= 100'000, "more ids than asked for");
  }
  for (const bool special : {false, true}) {
    const auto ids = tokenizer.Encode(kText, {.add_special_tokens = special,
                                              .parse_special_tokens = special});
    if (!ids.ok()) continue;
    for (const int32_t id : *ids) {
      NACRE_CHECK(id >= 0 && id < tokenizer.vocab_size(), "id out of range");
    }
    nacre::tokenizer::StreamDecoder stream(&tokenizer, special);
    std::string text;
    for (const int32_t id : *ids) text += stream.Append({id});
    text += stream.Flush();
    NACRE_CHECK(text == tokenizer.Decode(*ids, special),
                "the streamed text differs");
  }
  std::vector<int32_t> all(std::min(tokenizer.vocab_size(), 300) + 2);
  std::iota(all.begin(), all.end(), -1);
  (void)tokenizer.Decode(all);
  (void)tokenizer.VocabularyHash(8);
}

// A pattern of a file, for a text with and without new characters.
void UsePattern(absl::string_view pattern) {
  const auto regex = nacre::tokenizer::Regex::Compile(pattern, "fuzz");
  if (!regex.ok()) return;
  for (const std::string& text :
       {std::string(kText), std::string(kText) + "\xF0\xB1\x8D\x90"}) {
    const auto matches = regex->FindAll(text);
    if (!matches.ok()) continue;
    size_t done = 0;
    for (const nacre::tokenizer::TextRange& match : *matches) {
      NACRE_CHECK(done <= match.begin && match.begin <= match.end &&
                      match.end <= text.size(),
                  "matches overlap");
      done = match.end;
    }
  }
}

// Lines of a vocabulary, a tokenizer_config.json and a config.json, with a zero
// byte between them. Only some have lines for all bytes.
void UseTiktoken(absl::string_view parts, bool adds_bytes) {
  std::string vocabulary;
  for (int byte = 0; adds_bytes && byte < 256; ++byte) {
    const char token = static_cast<char>(byte);
    absl::StrAppend(&vocabulary,
                    absl::Base64Escape(absl::string_view(&token, 1)), " ", byte,
                    "\n");
  }
  const std::vector<std::string> texts =
      absl::StrSplit(parts, absl::MaxSplits('\0', 2));
  nacre::tokenizer::TiktokenFolder folder;
  if (texts.size() > 1) folder.tokenizer_config = texts[1];
  if (texts.size() > 2) folder.model_config = texts[2];
  (void)nacre::tokenizer::IsTiktoken(texts[0]);
  const auto tokenizer =
      nacre::tokenizer::ParseTiktokenTokenizer(vocabulary + texts[0], folder);
  if (tokenizer.ok()) UseTokenizer(**tokenizer);
}

// tokenizer_config.json, special_tokens_map.json and added_tokens.json, with a
// zero byte between them, beside a tokenizer of two pieces and one added token.
void UseConfig(absl::string_view parts) {
  constexpr absl::string_view kTokenizer =
      R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []},
          "added_tokens": [{"id": 2, "content": "<s>", "special": true}]})";
  const std::vector<std::string> texts =
      absl::StrSplit(parts, absl::MaxSplits('\0', 2));
  auto config = nacre::tokenizer::ParseTokenizerConfig(texts[0]);
  if (!config.ok()) return;
  if (texts.size() > 1 &&
      !nacre::tokenizer::AddSpecialTokensMap(texts[1], &*config).ok()) {
    return;
  }
  if (texts.size() > 2 &&
      !nacre::tokenizer::AddAddedTokensFile(texts[2], &*config).ok()) {
    return;
  }
  const auto tokenizer =
      nacre::tokenizer::ParseHuggingFaceTokenizer(kTokenizer, *config);
  if (tokenizer.ok()) UseTokenizer(**tokenizer);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const absl::string_view bytes(reinterpret_cast<const char*>(data) + 1,
                                size - 1);
  if (data[0] % 8 == 4) {
    UsePattern(bytes);
    return 0;
  }
  if (data[0] % 8 == 7) {
    UseTiktoken(bytes, data[0] % 16 == 7);
    return 0;
  }
  if (data[0] % 4 == 0) {
    UseConfig(bytes);
    return 0;
  }
  const auto tokenizer =
      data[0] % 2 == 0 ? nacre::tokenizer::ParseSentencePieceTokenizer(bytes)
                       : nacre::tokenizer::ParseHuggingFaceTokenizer(bytes);
  if (tokenizer.ok()) UseTokenizer(**tokenizer);
  return 0;
}
