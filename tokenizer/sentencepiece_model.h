// The content of a SentencePiece `tokenizer.model`: pieces and the settings
// that encoding and decoding need. Plain data.
// Field numbers: sentencepiece_model.proto of the SentencePiece project.

#ifndef TOKENIZER_SENTENCEPIECE_MODEL_H_
#define TOKENIZER_SENTENCEPIECE_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace nacre::tokenizer {

enum class PieceType {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

struct SentencePiece {
  std::string text;
  float score = 0.0f;  // larger merges first
  PieceType type = PieceType::kNormal;
};

struct SentencePieceNormalization {
  std::string name;
  std::string precompiled_charsmap;  // empty: identity
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
  bool treat_whitespace_as_suffix = false;  // of the trainer's settings
};

struct SentencePieceModel {
  std::vector<SentencePiece> pieces;  // by id
  bool byte_fallback = false;
  std::string unk_surface = " \xE2\x81\x87 ";  // what <unk> decodes to
  std::string bos_piece = "<s>";
  std::string eos_piece = "</s>";
  SentencePieceNormalization normalization;

  int32_t unk_id = -1;              // set by ParseSentencePieceModel
  std::vector<int32_t> byte_to_id;  // [256] with byte_fallback, else empty
};

// The value of a byte piece such as "<0x0A>", or -1.
int BytePieceValue(absl::string_view piece);

// Reads and checks a model. DATA_LOSS: bytes that are no such message.
// INVALID_ARGUMENT: no unknown piece or two, an empty or repeated piece, a
// score that is no number, missing byte pieces. UNIMPLEMENTED: a model type
// other than BPE, or a denormalizer.
absl::StatusOr<SentencePieceModel> ParseSentencePieceModel(
    absl::string_view bytes);

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_SENTENCEPIECE_MODEL_H_
