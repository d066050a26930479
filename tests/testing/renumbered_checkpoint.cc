#include "tests/testing/renumbered_checkpoint.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/check.h"
#include "model/safetensors.h"
#include "model/safetensors_writer.h"
#include "tests/testing/tiny_checkpoint.h"
#include "tokenizer/proto_wire.h"

namespace nacre::testing {
namespace {

using tokenizer::ProtoField;
using tokenizer::ProtoReader;
using tokenizer::WireType;

constexpr uint32_t kPieces = 1;     // of a ModelProto
constexpr uint32_t kPieceText = 1;  // of a piece
// <unk>, <s>, </s> and 256 bytes; and some more.
constexpr int32_t kKept = 300;
constexpr int64_t kStride = 1007;  // has no factor in common with the rest

int32_t NewId(int32_t old_id, int32_t size) {
  if (old_id < kKept) return old_id;
  return static_cast<int32_t>(kKept +
                              (old_id - kKept) * kStride % (size - kKept));
}

void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) {
    out->push_back(static_cast<char>(value | 0x80));
  }
  out->push_back(static_cast<char>(value));
}

void AppendBytes(uint32_t number, absl::string_view bytes, std::string* out) {
  AppendVarint(number << 3 | static_cast<uint32_t>(WireType::kBytes), out);
  AppendVarint(bytes.size(), out);
  absl::StrAppend(out, bytes);
}

// The message with another text; what else it says stays as it was written.
std::string WithText(absl::string_view piece, absl::string_view text) {
  std::string changed;
  ProtoReader reader(piece, "piece");
  size_t end = 0;
  while (!reader.done()) {
    const auto field = reader.Next();
    NACRE_CHECK(field.ok(), "a piece that cannot be read");
    if (field->number == kPieceText) {
      const auto at = static_cast<size_t>(field->bytes.data() - piece.data());
      end = at + field->bytes.size();
      AppendBytes(kPieceText, text, &changed);
    }
  }
  return absl::StrCat(changed, piece.substr(end));
}

// Returns how many pieces there are.
int32_t RenumberPieces(const std::string& model, int renamed_every,
                       const std::string& path) {
  std::vector<absl::string_view> pieces;
  std::string rest;
  ProtoReader reader(model, "model");
  while (!reader.done()) {
    const auto field = reader.Next();
    NACRE_CHECK(field.ok(), "a SentencePiece model that cannot be read");
    if (field->number == kPieces) {
      pieces.push_back(field->bytes);
    } else if (field->type == WireType::kBytes) {
      AppendBytes(field->number, field->bytes, &rest);
    }
  }
  const auto size = static_cast<int32_t>(pieces.size());
  std::vector<std::string> renumbered(pieces.size());
  for (int32_t id = 0; id < size; ++id) {
    const bool renames =
        id >= kKept && renamed_every > 0 && id % renamed_every == 0;
    const absl::string_view piece = pieces[static_cast<size_t>(id)];
    renumbered[static_cast<size_t>(NewId(id, size))] =
        renames ? WithText(piece, absl::StrCat("\u2581zqx", id))
                : std::string(piece);
  }
  std::string written;
  for (const std::string& piece : renumbered) {
    AppendBytes(kPieces, piece, &written);
  }
  WriteFile(path, absl::StrCat(written, rest));
  return size;
}

void RenumberRows(const std::string& from, int32_t vocab_size,
                  const std::string& to) {
  const auto file = model::SafetensorsFile::Open(from);
  NACRE_CHECK(file.ok(), "a checkpoint that cannot be read");
  std::vector<model::TensorSpec> specs;
  for (const auto& [name, entry] : (*file)->tensors()) {
    NACRE_CHECK(entry.dtype == "BF16", "a checkpoint of another type");
    specs.push_back({name, kernels::DType::kBF16, entry.shape});
  }
  auto writer = model::SafetensorsWriter::Create(to, specs);
  NACRE_CHECK(writer.ok(), "a test file cannot be written");
  for (const auto& [name, entry] : (*file)->tensors()) {
    const absl::string_view old_rows = (*file)->Bytes(entry);
    std::string rows(old_rows);
    if (entry.shape.size() == 2 && entry.shape[0] == vocab_size) {
      const size_t row_bytes = rows.size() / static_cast<size_t>(vocab_size);
      for (int32_t id = 0; id < vocab_size; ++id) {
        const auto at = static_cast<size_t>(NewId(id, vocab_size));
        const absl::string_view row =
            old_rows.substr(static_cast<size_t>(id) * row_bytes, row_bytes);
        std::copy(row.begin(), row.end(), rows.begin() + at * row_bytes);
      }
    }
    NACRE_CHECK((*writer)->Append(rows.data(), rows.size()).ok(),
                "a test file cannot be written");
  }
  NACRE_CHECK((*writer)->Finish().ok(), "a test file cannot be written");
}

}  // namespace

std::vector<int32_t> WriteRenumberedCheckpoint(const std::string& from,
                                               int renamed_every,
                                               const std::string& dir) {
  for (const char* name :
       {"config.json", "generation_config.json", "tokenizer_config.json"}) {
    WriteFile(absl::StrCat(dir, "/", name),
              ReadFile(absl::StrCat(from, "/", name)));
  }
  const int32_t size = RenumberPieces(ReadFile(from + "/tokenizer.model"),
                                      renamed_every, dir + "/tokenizer.model");
  RenumberRows(from + "/model.safetensors", size, dir + "/model.safetensors");
  std::vector<int32_t> new_ids;
  for (int32_t id = 0; id < size; ++id) new_ids.push_back(NewId(id, size));
  return new_ids;
}

}  // namespace nacre::testing
