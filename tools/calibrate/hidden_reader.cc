#include "tools/calibrate/hidden_reader.h"

#include <cmath>
#include <cstring>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker/recording/hidden_file.h"

namespace nacre::tools {
namespace {

using worker::kHiddenHeaderBytes;
using worker::kHiddenMagic;
using worker::kHiddenVersion;

// No model's states are wider.
constexpr uint32_t kMaxSize = 1 << 20;

absl::Status Bad(absl::string_view name, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(name, ": ", what));
}

}  // namespace

absl::StatusOr<HiddenStates> HiddenStates::Parse(absl::string_view name,
                                                 absl::string_view content) {
  if (content.size() < kHiddenHeaderBytes ||
      !absl::StartsWith(content, kHiddenMagic)) {
    return Bad(name, absl::StrCat("no file of hidden states: it does not begin "
                                  "with ",
                                  kHiddenMagic, " and a header of ",
                                  kHiddenHeaderBytes, " bytes"));
  }
  uint32_t version = 0;
  uint32_t size = 0;
  std::memcpy(&version, &content[kHiddenMagic.size()], sizeof(version));
  std::memcpy(&size, &content[kHiddenMagic.size() + sizeof(version)],
              sizeof(size));
  if (version != kHiddenVersion) {
    return Bad(name,
               absl::StrCat("version ", version, ", not ", kHiddenVersion));
  }
  if (size < 1 || size > kMaxSize) {
    return Bad(name, absl::StrCat("states of ", size, " numbers, not of 1 to ",
                                  kMaxSize));
  }
  content.remove_prefix(kHiddenHeaderBytes);
  if (content.size() % (size * sizeof(float)) != 0) {
    return Bad(name, absl::StrCat(content.size(),
                                  " bytes are no whole states "
                                  "of ",
                                  size, " numbers: it was cut off"));
  }
  std::vector<float> values(content.size() / sizeof(float));
  if (!values.empty()) {
    std::memcpy(values.data(), content.data(), content.size());
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      return Bad(name, absl::StrCat("number ", i % size, " of state ", i / size,
                                    " is ", values[i], ", not finite"));
    }
  }
  return HiddenStates(size, std::move(values));
}

}  // namespace nacre::tools
