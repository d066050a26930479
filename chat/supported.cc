#include "chat/supported.h"

#include <algorithm>
#include <iterator>

namespace nacre::chat {
namespace {

constexpr std::string_view kRefusedNames[] = {"cycler", "joiner", "lipsum"};

constexpr std::string_view kRefusedMethods[] = {
    "casefold",    "encode",    "expandtabs", "format",
    "format_map",  "fromkeys",  "isascii",    "isidentifier",
    "isprintable", "maketrans", "translate",
};

constexpr std::string_view kConstants[] = {"true", "false", "none",
                                           "True", "False", "None"};

template <size_t kSize>
bool Has(const std::string_view (&names)[kSize], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

bool IsRefusedName(std::string_view name) { return Has(kRefusedNames, name); }
bool IsRefusedMethod(std::string_view name) {
  return Has(kRefusedMethods, name);
}
bool IsConstantName(std::string_view name) { return Has(kConstants, name); }

}  // namespace nacre::chat
