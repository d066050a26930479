#include "telemetry/otel_variables.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace nacre::telemetry {
namespace {

// "%2C" is a comma. False where what follows a % is no hexadecimal number.
bool DecodePercent(absl::string_view text, std::string* decoded) {
  decoded->clear();
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded->push_back(text[i]);
      continue;
    }
    int byte = 0;
    if (i + 2 >= text.size() || !absl::ascii_isxdigit(text[i + 1]) ||
        !absl::ascii_isxdigit(text[i + 2]) ||
        !absl::SimpleHexAtoi(text.substr(i + 1, 2), &byte)) {
      return false;
    }
    decoded->push_back(static_cast<char>(byte));
    i += 2;
  }
  return true;
}

}  // namespace

absl::Status Setting::Invalid(absl::string_view why) const {
  return absl::InvalidArgumentError(
      absl::StrCat(name, " \"", value, "\" ", why));
}

Setting OtelVariables::Get(const std::string& name) const {
  const char* value = environment_(name.c_str());
  return {name, value == nullptr ? "" : value};
}

absl::optional<std::pair<std::string, std::string>> ParseKeyValue(
    absl::string_view entry) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(entry, absl::MaxSplits('=', 1));
  std::pair<std::string, std::string> result;
  result.first = std::string(absl::StripAsciiWhitespace(parts.first));
  if (result.first.empty() || !absl::StrContains(entry, '=') ||
      !DecodePercent(absl::StripAsciiWhitespace(parts.second),
                     &result.second)) {
    return absl::nullopt;
  }
  return result;
}

}  // namespace nacre::telemetry
