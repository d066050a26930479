// The pieces of a vocabulary by id and by text. Immutable, thread-safe; owns
// the pieces.

#ifndef TOKENIZER_VOCABULARY_H_
#define TOKENIZER_VOCABULARY_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace nacre::tokenizer {

// Ids of a file lie below this, so that a lying id cannot ask for gigabytes.
inline constexpr int32_t kMaxVocabularySize = 1 << 22;

class Vocabulary {
 public:
  Vocabulary() = default;
  // pieces[id]; an empty piece is an unused id. Of equal pieces the lowest id
  // is found by text, unless `preferred[id]` (same size, or empty) marks one.
  explicit Vocabulary(std::vector<std::string> pieces,
                      const std::vector<bool>& preferred = {});
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  int size() const { return static_cast<int>(pieces_.size()); }
  // Empty when there is no such id.
  absl::string_view IdToPiece(int32_t id) const;
  std::optional<int32_t> PieceToId(absl::string_view piece) const;

  size_t longest_piece_bytes() const { return longest_piece_bytes_; }

  // SHA-256, in hex, over ids 0 .. common_size - 1: each piece preceded by its
  // length as four little-endian bytes. Missing ids count as empty pieces.
  std::string Hash(int common_size) const;

 private:
  std::vector<std::string> pieces_;
  size_t longest_piece_bytes_ = 0;
  // Views into pieces_, which is never changed: moving a vector keeps them.
  absl::flat_hash_map<absl::string_view, int32_t> ids_;
};

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_VOCABULARY_H_
