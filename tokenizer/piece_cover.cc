#include "tokenizer/piece_cover.h"

#include <algorithm>

#include "tokenizer/utf8.h"

namespace nacre::tokenizer {

bool PieceCover::NeedsMore(absl::string_view text, size_t most) const {
  size_t count = 0;
  size_t reach = 0;  // the furthest that `count` tokens can cover
  size_t next = 0;   // the furthest that one more can
  for (size_t begin = 0; begin < text.size();) {
    const absl::string_view rest = text.substr(begin);
    const Utf8Prefix prefix = ScanUtf8(rest);
    const size_t size = prefix.state == Utf8State::kComplete ? prefix.size : 1;
    next = std::max(next,
                    begin + std::max(size, pieces_.LongestPrefix(rest).size));
    if (unknown_ == Unknown::kFree &&
        pieces_.LongestPrefix(rest.substr(0, size)).size != size) {
      reach = std::max(reach, begin + size);
    }
    begin += size;
    if (begin > reach) {
      if (++count > most) return true;
      reach = std::max(reach, next);
    }
  }
  return false;
}

}  // namespace nacre::tokenizer
