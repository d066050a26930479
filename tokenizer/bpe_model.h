// The "BPE" model of a tokenizer.json: merges by rank over a vocabulary.
// Immutable, thread-safe.

#ifndef TOKENIZER_BPE_MODEL_H_
#define TOKENIZER_BPE_MODEL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tokenizer/bpe_merge.h"
#include "tokenizer/json_fields.h"
#include "tokenizer/limited_ids.h"
#include "tokenizer/piece_cover.h"
#include "tokenizer/vocabulary.h"

namespace nacre::tokenizer {

class BpeModel {
 public:
  // `json` is the "model" object. *pieces becomes the pieces by id.
  // INVALID_ARGUMENT: a field is missing or of the wrong type, two pieces have
  // one id, or a merge names an unknown piece. UNIMPLEMENTED: another model
  // type, dropout, or sub-word prefixes and suffixes.
  static absl::StatusOr<BpeModel> Parse(const Json& json,
                                        std::vector<std::string>* pieces);

  // Merges as tiktoken does: of the pairs whose text is a piece, the one with
  // the lowest id of that; a word that is a piece is that piece. `pieces` by
  // id, in the alphabet of byte_level.h, none empty or there twice.
  static BpeModel OfRanks(const std::vector<std::string>& pieces);

  // Adds the ids of one word of valid UTF-8. Characters without a piece become
  // bytes (byte_fallback), the unknown token, or nothing. Errors: of *ids.
  absl::Status Encode(absl::string_view word, LimitedIds* ids) const;

 private:
  absl::Status ParseVocabulary(const Json& json,
                               std::vector<std::string>* pieces);
  absl::Status ParseOptions(const Json& json);
  absl::Status ParseMerges(const Json& json);
  absl::Status AddMerge(absl::string_view left, absl::string_view right,
                        size_t index);

  void BuildCover();

  // The ids of the bytes of `character`, or nothing when one has no piece.
  bool ByteIds(absl::string_view character, std::vector<int32_t>* ids) const;
  // The word certainly has more than `most` ids.
  bool HasMore(absl::string_view word, size_t most) const;
  // The word without the characters that become nothing.
  std::string WithoutDropped(absl::string_view word) const;
  std::vector<Symbol> SplitSymbols(absl::string_view word) const;

  static uint64_t Pair(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 |
           static_cast<uint32_t>(right);
  }

  struct RankedMerge {
    uint32_t rank;
    int32_t id;
  };

  absl::flat_hash_map<std::string, int32_t> ids_;
  absl::flat_hash_map<uint64_t, RankedMerge> merges_;  // by Pair
  std::vector<int32_t> byte_ids_;  // [256] or empty; -1: no such piece
  std::optional<int32_t> unk_id_;
  bool fuse_unk_ = false;
  // Of the pieces; none where tokens may stand for other texts than theirs.
  std::optional<PieceCover> cover_;
  bool may_drop_ = false;       // characters
  bool ignore_merges_ = false;  // a word that is a piece is that piece
};

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_BPE_MODEL_H_
