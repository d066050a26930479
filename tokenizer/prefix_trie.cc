#include "tokenizer/prefix_trie.h"

#include "common/check.h"

namespace nacre::tokenizer {

void PrefixTrie::Add(absl::string_view key, int32_t value) {
  NACRE_CHECK(!key.empty(), "an empty key would match everywhere");
  first_bytes_.set(static_cast<uint8_t>(key[0]));
  uint32_t node = 0;
  for (const char byte : key) {
    const auto [edge, inserted] =
        edges_.try_emplace(Edge(node, byte), node_count_);
    if (inserted) ++node_count_;
    node = edge->second;
  }
  values_[node] = value;
}

PrefixTrie::Match PrefixTrie::LongestPrefix(
    absl::string_view text,
    absl::FunctionRef<bool(const Match&)> accept) const {
  Match match;
  if (text.empty() || !first_bytes_.test(static_cast<uint8_t>(text[0]))) {
    return match;
  }
  uint32_t node = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto edge = edges_.find(Edge(node, text[i]));
    if (edge == edges_.end()) break;
    node = edge->second;
    const auto value = values_.find(node);
    if (value == values_.end()) continue;
    const Match found{i + 1, value->second};
    if (accept(found)) match = found;
  }
  return match;
}

}  // namespace nacre::tokenizer
