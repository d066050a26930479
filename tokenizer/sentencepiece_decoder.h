// Ids of a SentencePiece model to text, one by one. One thread at a time.

#ifndef TOKENIZER_SENTENCEPIECE_DECODER_H_
#define TOKENIZER_SENTENCEPIECE_DECODER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace nacre::tokenizer {

// How ids become text; built once by the tokenizer. Immutable.
struct SentencePieceDecoding {
  enum class Kind : uint8_t { kText, kSpecial, kUnknown, kByte };
  struct Piece {
    Kind kind = Kind::kText;
    uint8_t byte = 0;  // kByte
    std::string text;  // U+2581 already a space; empty for kByte
    bool starts_with_space_symbol = false;
  };
  std::vector<Piece> pieces;  // by id
  std::string unk_surface;
  bool strip_leading_space = false;        // add_dummy_prefix or ..
  bool strip_every_leading_space = false;  // .. remove_extra_whitespaces
};

class SentencePieceDecoder : public IncrementalDecoder {
 public:
  // Borrows `decoding`.
  SentencePieceDecoder(const SentencePieceDecoding* decoding,
                       bool skip_special_tokens)
      : decoding_(decoding), skip_special_tokens_(skip_special_tokens) {}

  void Append(int32_t id, std::string* text) override;
  void Finish(std::string* text) override;

 private:
  const SentencePieceDecoding* decoding_;
  bool skip_special_tokens_;
  Utf8Assembler bytes_{Utf8Assembler::Replacement::kPerByte};
  bool any_text_ = false;  // something came out already
  bool dummy_prefix_dropped_ = false;
};

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_SENTENCEPIECE_DECODER_H_
