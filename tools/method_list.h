// Lists of methods on the command line, as in "ar,sd:4,async".

#ifndef TOOLS_METHOD_LIST_H_
#define TOOLS_METHOD_LIST_H_

#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"

namespace nacre::tools {

// Parses each entry with parse(text), an absl::StatusOr<Method>.
// INVALID_ARGUMENT where it fails or where same(a, b) holds for two entries.
template <class Method, class Parse, class Same>
absl::StatusOr<std::vector<Method>> ParseMethodList(absl::string_view text,
                                                    Parse parse, Same same) {
  std::vector<Method> methods;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    NACRE_ASSIGN_OR_RETURN(Method entry, parse(part));
    for (const Method& other : methods) {
      if (same(other, entry)) {
        return absl::InvalidArgumentError(
            absl::StrCat("method \"", part, "\" is given twice"));
      }
    }
    methods.push_back(std::move(entry));
  }
  return methods;
}

}  // namespace nacre::tools

#endif  // TOOLS_METHOD_LIST_H_
