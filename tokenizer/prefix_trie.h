// A set of byte strings searched by longest prefix: added tokens in a text,
// user-defined symbols. Immutable after the last Add; then thread-safe.

#ifndef TOKENIZER_PREFIX_TRIE_H_
#define TOKENIZER_PREFIX_TRIE_H_

#include <bitset>
#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace nacre::tokenizer {

class PrefixTrie {
 public:
  // Adds `key` (not empty) with its value; an equal key takes the new value.
  void Add(absl::string_view key, int32_t value);

  struct Match {
    size_t size = 0;  // bytes; 0: no key is a prefix
    int32_t value = -1;
  };
  // The longest key that `text` starts with. O(length of the longest key).
  Match LongestPrefix(absl::string_view text) const {
    return LongestPrefix(text, [](const Match&) { return true; });
  }
  // The longest of those that `accept` takes.
  Match LongestPrefix(absl::string_view text,
                      absl::FunctionRef<bool(const Match&)> accept) const;

  bool empty() const { return values_.empty(); }

 private:
  static uint64_t Edge(uint32_t node, char byte) {
    return uint64_t{node} << 8 | static_cast<uint8_t>(byte);
  }

  // Nodes are numbered from the root, 0. Most texts leave at the first byte,
  // which the bit set answers without hashing.
  std::bitset<256> first_bytes_;
  absl::flat_hash_map<uint64_t, uint32_t> edges_;
  absl::flat_hash_map<uint32_t, int32_t> values_;
  uint32_t node_count_ = 1;
};

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_PREFIX_TRIE_H_
