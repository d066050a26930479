// Finds stop strings in text that arrives piece by piece, and holds back text
// that may begin one. Pure; one stream and one thread each.
// Source: Aho and Corasick, "Efficient string matching", 1975.

#ifndef TOKENIZER_STOP_MATCHER_H_
#define TOKENIZER_STOP_MATCHER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace nacre::tokenizer {

class StopMatcher {
 public:
  struct Result {
    std::string emit;                    // text that may be shown now
    std::optional<std::string> matched;  // the stop string that ended the text
  };

  // Empty strings are ignored. With `include_stop` the stop string is emitted,
  // otherwise the text ends right before it.
  explicit StopMatcher(const std::vector<std::string>& stops,
                       bool include_stop = false);

  // Adds text. The stop string that is complete first wins; of several that end
  // at the same place the longest, so that the least text is shown. The result
  // does not depend on how the text is cut into pieces. After a match all
  // results are empty. O(length of text).
  Result Push(absl::string_view text);

  // The text ends: returns what was held back. Nothing may follow.
  std::string Flush();

 private:
  // A node of the trie of stop strings: the longest suffix of the text that
  // begins one.
  struct Node {
    size_t depth = 0;      // bytes of that suffix
    uint32_t failure = 0;  // node of the next shorter such suffix
    int32_t stop = -1;     // longest stop string that is a suffix of this node
  };

  static uint64_t Edge(uint32_t node, char byte) {
    return uint64_t{node} << 8 | static_cast<uint8_t>(byte);
  }
  uint32_t Next(uint32_t node, char byte) const;
  void LinkFailures();

  std::vector<std::string> stops_;
  std::vector<Node> nodes_;
  absl::flat_hash_map<uint64_t, uint32_t> edges_;
  bool include_stop_;
  uint32_t state_ = 0;
  std::string held_;  // always nodes_[state_].depth bytes between calls
  bool finished_ = false;
};

}  // namespace nacre::tokenizer

#endif  // TOKENIZER_STOP_MATCHER_H_
