#include "gateway/token_text.h"

#include <cstdlib>
#include <memory>

#include "absl/strings/match.h"
#include "tokenizer/byte_level.h"

namespace nacre::gateway {
namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";

// What `id` adds to a text that begins with `first`: a decoder may drop the
// blank of a first token.
std::string TextAfter(const tokenizer::Tokenizer& tokenizer, int32_t first,
                      int32_t id) {
  const std::string before =
      tokenizer.Decode({first}, /*skip_special_tokens=*/false);
  std::string both =
      tokenizer.Decode({first, id}, /*skip_special_tokens=*/false);
  return absl::StartsWith(both, before) ? both.substr(before.size()) : both;
}

// A piece with a text of its own.
int32_t SomeWord(const tokenizer::Tokenizer& tokenizer) {
  for (const char* word : {"a", "e", "x", "0"}) {
    if (const auto id = tokenizer.PieceToId(word)) return *id;
  }
  return 0;
}

}  // namespace

TokenText TextOf(const tokenizer::Tokenizer& tokenizer, uint32_t id) {
  TokenText token;
  if (id >= static_cast<uint32_t>(tokenizer.vocab_size())) return token;
  const auto number = static_cast<int32_t>(id);
  const std::string piece(tokenizer.IdToPiece(number));
  token.text = TextAfter(tokenizer, SomeWord(tokenizer), number);
  token.bytes = token.text;
  if (!absl::StrContains(token.text, kReplacement)) return token;
  // Half a character: "<0xE2>" of SentencePiece, else GPT-2's alphabet.
  if (piece.size() == 6 && absl::StartsWith(piece, "<0x")) {
    token.bytes.assign(
        1, static_cast<char>(std::strtoul(piece.c_str() + 3, nullptr, 16)));
  } else {
    token.bytes = tokenizer::DecodeByteLevel(piece);
  }
  return token;
}

}  // namespace nacre::gateway
