// Of a set of names those that an error's message has room for.

#ifndef COMMON_SOME_OF_H_
#define COMMON_SOME_OF_H_

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace nacre {

// "a, b, c, d and 3 more": messages travel in trailers, of which clients take
// some kilobytes.
inline std::string SomeOf(const std::set<std::string>& names,
                          absl::string_view separator) {
  constexpr size_t kMost = 8;
  const size_t shown = std::min(names.size(), kMost);
  const auto end = std::next(names.begin(), static_cast<int>(shown));
  std::string text = absl::StrJoin(names.begin(), end, separator);
  if (shown < names.size()) {
    absl::StrAppend(&text, " and ", names.size() - shown, " more");
  }
  return text;
}

}  // namespace nacre

#endif  // COMMON_SOME_OF_H_
