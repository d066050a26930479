// absl::StrCat for std::string_view too, which is another type than Abseil's in
// Debian's build of it.
//
// Pure functions.

#ifndef CHAT_CONCAT_H_
#define CHAT_CONCAT_H_

#include <string>
#include <string_view>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace nacre::chat {

inline absl::string_view AbslView(std::string_view text) {
  return absl::string_view(text.data(), text.size());
}

template <typename T>
decltype(auto) ConcatPart(const T& part) {
  if constexpr (std::is_same_v<T, std::string_view>) {
    return AbslView(part);
  } else {
    return (part);
  }
}

template <typename... Parts>
std::string Concat(const Parts&... parts) {
  return absl::StrCat(ConcatPart(parts)...);
}

}  // namespace nacre::chat

#endif  // CHAT_CONCAT_H_
