#include "tokenizer/sentencepiece_decoder.h"

#include "absl/strings/str_cat.h"

namespace nacre::tokenizer {

void SentencePieceDecoder::Append(int32_t id, std::string* text) {
  if (id < 0 || static_cast<size_t>(id) >= decoding_->pieces.size()) return;
  const SentencePieceDecoding::Piece& piece = decoding_->pieces[id];
  const size_t size_before = text->size();
  if (piece.kind == SentencePieceDecoding::Kind::kByte) {
    const char byte = static_cast<char>(piece.byte);
    bytes_.Append(absl::string_view(&byte, 1), text);
    any_text_ |= text->size() > size_before;
    return;
  }
  bytes_.Finish(text);
  any_text_ |= text->size() > size_before;
  const bool at_start = !any_text_ && !dummy_prefix_dropped_;
  switch (piece.kind) {
    case SentencePieceDecoding::Kind::kSpecial:
      if (!skip_special_tokens_) text->append(piece.text);
      break;
    case SentencePieceDecoding::Kind::kUnknown:
      text->append(decoding_->unk_surface);
      break;
    default: {
      absl::string_view surface = piece.text;
      if (at_start && piece.starts_with_space_symbol &&
          decoding_->strip_leading_space) {
        surface.remove_prefix(1);
        // With remove_extra_whitespaces the library goes on stripping until
        // text comes; otherwise one space was the dummy prefix.
        dummy_prefix_dropped_ = !decoding_->strip_every_leading_space;
      }
      absl::StrAppend(text, surface);
    }
  }
  any_text_ |= text->size() > size_before;
}

void SentencePieceDecoder::Finish(std::string* text) { bytes_.Finish(text); }

}  // namespace nacre::tokenizer
