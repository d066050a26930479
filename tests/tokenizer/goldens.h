// Reads the committed goldens of tests/data/tokenizer and checks a tokenizer
// against them. For tests only; fails the running test on unreadable data.

#ifndef TESTS_TOKENIZER_GOLDENS_H_
#define TESTS_TOKENIZER_GOLDENS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/json.h"
#include "tokenizer/tokenizer.h"

namespace nacre::tokenizer {

struct Golden {
  std::optional<std::string> text;  // absent: decoding only
  std::vector<int32_t> ids;
  std::string decoded;
  std::string decoded_all;  // special tokens kept
};

// The content of a file of tests/data/tokenizer.
std::string ReadTestFile(const std::string& name);
// Of any path.
std::string ReadWholeFile(const std::string& path);

std::vector<std::string> ReadTestLines(const std::string& name);

// The texts of corpus.jsonl, on which every tokenizer is compared.
inline constexpr size_t kCorpusTexts = 2000;
const std::vector<std::string>& Corpus();

Golden ParseGolden(const nlohmann::json& line);
std::vector<Golden> ReadGoldens(const std::string& name);

// Compares encoding, decoding and streamed decoding, token by token and in
// random pieces. `check_decoded_all`: the goldens hold text with special
// tokens.
void ExpectGoldens(const Tokenizer& tokenizer,
                   const std::vector<Golden>& goldens, EncodeOptions options,
                   bool check_decoded_all);

// The small vocabulary of tiktoken, filled up to `size` tokens as
// make_tiktoken.py does.
std::string TiktokenOfSize(size_t size);

// Streamed decoding of `ids` gives `expected`, and every part is whole UTF-8.
void ExpectStreams(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                   bool skip_special_tokens, const std::string& expected);

// The bundled SentencePiece tokenizer, through its folder.
std::unique_ptr<Tokenizer> LoadBundled();

}  // namespace nacre::tokenizer

#endif  // TESTS_TOKENIZER_GOLDENS_H_
