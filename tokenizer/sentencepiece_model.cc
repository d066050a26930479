#include "tokenizer/sentencepiece_model.h"

#include <cmath>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "tokenizer/proto_wire.h"
#include "tokenizer/vocabulary.h"

namespace nacre::tokenizer {
namespace {

constexpr int64_t kModelTypeBpe = 2;
// The library's own limit.
constexpr size_t kMaxPieceBytes = 8000;

std::string ModelTypeName(int64_t type) {
  switch (type) {
    case 1:
      return "UNIGRAM";
    case 3:
      return "WORD";
    case 4:
      return "CHAR";
    default:
      return absl::StrCat(type);
  }
}

absl::StatusOr<SentencePiece> ParsePiece(absl::string_view bytes,
                                         size_t index) {
  SentencePiece piece;
  ProtoReader reader(bytes, absl::StrCat("piece ", index));
  while (!reader.done()) {
    NACRE_ASSIGN_OR_RETURN(const ProtoField field, reader.Next());
    if (field.number == 1) {
      NACRE_ASSIGN_OR_RETURN(const absl::string_view text, reader.Bytes(field));
      piece.text = std::string(text);
    } else if (field.number == 2) {
      NACRE_ASSIGN_OR_RETURN(piece.score, reader.Float(field));
    } else if (field.number == 3) {
      NACRE_ASSIGN_OR_RETURN(const int64_t type, reader.Varint(field));
      if (type < 1 || type > 6) {
        return absl::InvalidArgumentError(
            absl::StrCat("piece ", index, " has type ", type,
                         ", the known types are 1 to 6"));
      }
      piece.type = static_cast<PieceType>(type);
    }
  }
  return piece;
}

absl::Status ParseTrainerSpec(absl::string_view bytes,
                              SentencePieceModel* model) {
  ProtoReader reader(bytes, "trainer_spec");
  int64_t model_type = 1;
  while (!reader.done()) {
    NACRE_ASSIGN_OR_RETURN(const ProtoField field, reader.Next());
    const auto read_flag = [&](bool* flag) -> absl::Status {
      NACRE_ASSIGN_OR_RETURN(const int64_t value, reader.Varint(field));
      *flag = value != 0;
      return absl::OkStatus();
    };
    const auto read_text = [&](std::string* text) -> absl::Status {
      NACRE_ASSIGN_OR_RETURN(const absl::string_view value,
                             reader.Bytes(field));
      *text = std::string(value);
      return absl::OkStatus();
    };
    absl::Status status;
    switch (field.number) {
      case 3: {
        NACRE_ASSIGN_OR_RETURN(model_type, reader.Varint(field));
        break;
      }
      case 24:
        status = read_flag(&model->normalization.treat_whitespace_as_suffix);
        break;
      case 35:
        status = read_flag(&model->byte_fallback);
        break;
      case 44:
        status = read_text(&model->unk_surface);
        break;
      case 46:
        status = read_text(&model->bos_piece);
        break;
      case 47:
        status = read_text(&model->eos_piece);
        break;
      default:
        break;
    }
    NACRE_RETURN_IF_ERROR(status);
  }
  if (model_type != kModelTypeBpe) {
    return absl::UnimplementedError(
        absl::StrCat("SentencePiece model type ", ModelTypeName(model_type),
                     " is not supported, only BPE"));
  }
  return absl::OkStatus();
}

absl::Status ParseNormalizerSpec(absl::string_view bytes,
                                 absl::string_view name,
                                 SentencePieceNormalization* spec) {
  ProtoReader reader(bytes, std::string(name));
  while (!reader.done()) {
    NACRE_ASSIGN_OR_RETURN(const ProtoField field, reader.Next());
    if (field.number == 1 || field.number == 2) {
      NACRE_ASSIGN_OR_RETURN(const absl::string_view value,
                             reader.Bytes(field));
      (field.number == 1 ? spec->name : spec->precompiled_charsmap) =
          std::string(value);
    } else if (field.number >= 3 && field.number <= 5) {
      NACRE_ASSIGN_OR_RETURN(const int64_t value, reader.Varint(field));
      bool* const flags[] = {&spec->add_dummy_prefix,
                             &spec->remove_extra_whitespaces,
                             &spec->escape_whitespaces};
      *flags[field.number - 3] = value != 0;
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPieces(SentencePieceModel* model) {
  // The library keeps pieces that text can become apart from the reserved ones;
  // a text may occur once in each.
  absl::flat_hash_set<absl::string_view> normal;
  absl::flat_hash_set<absl::string_view> reserved;
  if (model->byte_fallback) model->byte_to_id.assign(256, -1);
  for (size_t id = 0; id < model->pieces.size(); ++id) {
    const SentencePiece& piece = model->pieces[id];
    const auto error = [&](absl::string_view what) {
      return absl::InvalidArgumentError(absl::StrCat(
          "piece ", id, " ('",
          absl::Utf8SafeCHexEscape(piece.text.substr(0, 64)), "') ", what));
    };
    if (piece.text.empty()) return error("is empty");
    if (piece.text.size() >= kMaxPieceBytes) {
      return error(absl::StrCat("has ", piece.text.size(),
                                " bytes, the limit is ", kMaxPieceBytes - 1));
    }
    if (piece.text.find('\0') != std::string::npos) {
      return error("holds a NUL byte");
    }
    if (!std::isfinite(piece.score))
      return error("has a score that is no number");
    const bool is_reserved = piece.type == PieceType::kUnknown ||
                             piece.type == PieceType::kControl ||
                             piece.type == PieceType::kByte;
    if (!(is_reserved ? reserved : normal).insert(piece.text).second) {
      return error("is there twice");
    }
    if (piece.type == PieceType::kUnknown) {
      if (model->unk_id >= 0) return error("is a second unknown piece");
      model->unk_id = static_cast<int32_t>(id);
    }
    if (piece.type == PieceType::kByte) {
      const int value = BytePieceValue(piece.text);
      if (value < 0) return error("is no byte piece such as <0x0A>");
      if (!model->byte_fallback) {
        return error("is a byte piece, but byte_fallback is off");
      }
      model->byte_to_id[value] = static_cast<int32_t>(id);
    }
  }
  if (model->unk_id < 0) {
    return absl::InvalidArgumentError("the model has no unknown piece");
  }
  for (size_t byte = 0; byte < model->byte_to_id.size(); ++byte) {
    if (model->byte_to_id[byte] < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "byte_fallback is on, but there is no piece for byte ", byte));
    }
  }
  return absl::OkStatus();
}

}  // namespace

int BytePieceValue(absl::string_view piece) {
  if (piece.size() != 6 || piece.substr(0, 3) != "<0x" || piece[5] != '>') {
    return -1;
  }
  int value = 0;
  for (const char c : piece.substr(3, 2)) {
    if (c >= '0' && c <= '9') {
      value = value * 16 + (c - '0');
    } else if (c >= 'A' && c <= 'F') {
      value = value * 16 + (c - 'A' + 10);
    } else {
      return -1;
    }
  }
  return value;
}

absl::StatusOr<SentencePieceModel> ParseSentencePieceModel(
    absl::string_view bytes) {
  SentencePieceModel model;
  SentencePieceNormalization denormalization;
  bool has_trainer_spec = false;
  ProtoReader reader(bytes, "SentencePiece model");
  while (!reader.done()) {
    NACRE_ASSIGN_OR_RETURN(const ProtoField field, reader.Next());
    if (field.number != 1 && field.number != 2 && field.number != 3 &&
        field.number != 5) {
      continue;
    }
    NACRE_ASSIGN_OR_RETURN(const absl::string_view message,
                           reader.Bytes(field));
    if (field.number == 1) {
      if (model.pieces.size() == kMaxVocabularySize) {
        return absl::InvalidArgumentError(absl::StrCat(
            "the model has more than ", kMaxVocabularySize, " pieces"));
      }
      NACRE_ASSIGN_OR_RETURN(SentencePiece piece,
                             ParsePiece(message, model.pieces.size()));
      model.pieces.push_back(std::move(piece));
    } else if (field.number == 2) {
      has_trainer_spec = true;
      NACRE_RETURN_IF_ERROR(ParseTrainerSpec(message, &model));
    } else if (field.number == 3) {
      NACRE_RETURN_IF_ERROR(ParseNormalizerSpec(message, "normalizer_spec",
                                                &model.normalization));
    } else {
      NACRE_RETURN_IF_ERROR(
          ParseNormalizerSpec(message, "denormalizer_spec", &denormalization));
    }
  }
  if (!has_trainer_spec) {
    return absl::InvalidArgumentError(
        "SentencePiece model: there is no trainer_spec, so the model type is "
        "not known");
  }
  if (!denormalization.precompiled_charsmap.empty()) {
    return absl::UnimplementedError(absl::StrCat(
        "SentencePiece denormalizer '",
        absl::Utf8SafeCHexEscape(denormalization.name), "' is not supported"));
  }
  NACRE_RETURN_IF_ERROR(CheckPieces(&model));
  return model;
}

}  // namespace nacre::tokenizer
