// What a caller wrote, as a part of an error's message.

#ifndef COMMON_QUOTED_H_
#define COMMON_QUOTED_H_

#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace nacre {

// In quotes. Of a long text its beginning and its size: messages travel in
// trailers, of which clients take some kilobytes.
inline std::string Quoted(absl::string_view text) {
  constexpr size_t kMaxBytes = 64;
  if (text.size() <= kMaxBytes) return absl::StrCat("\"", text, "\"");
  size_t size = kMaxBytes;
  // No part of a UTF-8 character.
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) {
    --size;
  }
  return absl::StrCat("\"", text.substr(0, size), "...\" of ", text.size(),
                      " bytes");
}

}  // namespace nacre

#endif  // COMMON_QUOTED_H_
