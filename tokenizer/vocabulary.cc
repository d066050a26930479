#include "tokenizer/vocabulary.h"

#include <openssl/evp.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/escaping.h"
#include "common/check.h"

namespace nacre::tokenizer {

Vocabulary::Vocabulary(std::vector<std::string> pieces,
                       const std::vector<bool>& preferred)
    : pieces_(std::move(pieces)) {
  ids_.reserve(pieces_.size());
  for (int32_t id = 0; id < size(); ++id) {
    if (pieces_[id].empty()) continue;
    longest_piece_bytes_ = std::max(longest_piece_bytes_, pieces_[id].size());
    const auto [entry, inserted] = ids_.try_emplace(pieces_[id], id);
    if (inserted || preferred.empty()) continue;
    if (preferred[id] && !preferred[entry->second]) entry->second = id;
  }
}

absl::string_view Vocabulary::IdToPiece(int32_t id) const {
  if (id < 0 || id >= size()) return {};
  return pieces_[id];
}

std::optional<int32_t> Vocabulary::PieceToId(absl::string_view piece) const {
  const auto entry = ids_.find(piece);
  if (entry == ids_.end()) return std::nullopt;
  return entry->second;
}

std::string Vocabulary::Hash(int common_size) const {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(
      EVP_MD_CTX_new(), EVP_MD_CTX_free);
  NACRE_CHECK(context != nullptr, "out of memory");
  bool ok = EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
  for (int32_t id = 0; id < common_size; ++id) {
    const absl::string_view piece = IdToPiece(id);
    const uint32_t length = static_cast<uint32_t>(piece.size());
    const unsigned char prefix[4] = {static_cast<unsigned char>(length),
                                     static_cast<unsigned char>(length >> 8),
                                     static_cast<unsigned char>(length >> 16),
                                     static_cast<unsigned char>(length >> 24)};
    ok = ok && EVP_DigestUpdate(context.get(), prefix, sizeof(prefix)) == 1 &&
         EVP_DigestUpdate(context.get(), piece.data(), piece.size()) == 1;
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  ok = ok && EVP_DigestFinal_ex(context.get(), digest, &size) == 1;
  NACRE_CHECK(ok, "SHA-256 failed");
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest), size));
}

}  // namespace nacre::tokenizer
