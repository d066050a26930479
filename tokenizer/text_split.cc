#include "tokenizer/text_split.h"

#include <algorithm>

namespace nacre::tokenizer {
namespace {

struct Part {
  TextRange range;
  bool is_match;
};

// The whole text as matches and what lies between them.
std::vector<Part> CutAt(size_t size, const std::vector<TextRange>& matches,
                        bool invert) {
  std::vector<Part> parts;
  parts.reserve(2 * matches.size() + 1);
  size_t done = 0;
  for (const TextRange& match : matches) {
    if (done < match.begin) parts.push_back({{done, match.begin}, invert});
    parts.push_back({match, !invert});
    done = match.end;
  }
  if (done < size) parts.push_back({{done, size}, invert});
  return parts;
}

}  // namespace

std::vector<TextRange> SplitAtMatches(size_t size,
                                      const std::vector<TextRange>& matches,
                                      SplitBehavior behavior, bool invert) {
  std::vector<Part> parts = CutAt(size, matches, invert);
  // Merging with the next part is merging with the previous one, seen from the
  // end.
  const bool backwards = behavior == SplitBehavior::kMergedWithNext;
  if (backwards) std::reverse(parts.begin(), parts.end());

  std::vector<TextRange> pieces;
  bool previous_match = false;
  for (const Part& part : parts) {
    bool join = false;
    bool keep = true;
    switch (behavior) {
      case SplitBehavior::kRemoved:
        keep = !part.is_match;
        break;
      case SplitBehavior::kIsolated:
        break;
      case SplitBehavior::kContiguous:
        join = part.is_match == previous_match;
        break;
      case SplitBehavior::kMergedWithPrevious:
      case SplitBehavior::kMergedWithNext:
        join = part.is_match && !previous_match;
        break;
    }
    previous_match = part.is_match;
    if (!keep) continue;
    if (!join || pieces.empty()) {
      pieces.push_back(part.range);
    } else if (backwards) {
      pieces.back().begin = part.range.begin;
    } else {
      pieces.back().end = part.range.end;
    }
  }
  if (backwards) std::reverse(pieces.begin(), pieces.end());
  pieces.erase(std::remove_if(pieces.begin(), pieces.end(),
                              [](const TextRange& piece) {
                                return piece.begin == piece.end;
                              }),
               pieces.end());
  return pieces;
}

}  // namespace nacre::tokenizer
