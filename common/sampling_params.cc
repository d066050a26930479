#include "common/sampling_params.h"

#include <array>
#include <charconv>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/refusal.h"

namespace nacre {
namespace {

// The shortest text that is read as the same number: what is just outside its
// limits is not shown as the limit.
std::string NumberText(float value) {
  std::array<char, 32> text;
  const std::to_chars_result end =
      std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end.ptr};
}

template <typename... Parts>
absl::Status Invalid(const char* field, const Parts&... parts) {
  return WithField(absl::InvalidArgumentError(absl::StrCat(field, parts...)),
                   absl::StrCat("sampling.", field));
}

absl::Status OutOfRange(const char* field, float value, const char* expected) {
  return Invalid(field, " is ", NumberText(value), ", expected ", expected);
}

}  // namespace

absl::Status ValidateSamplingParams(const SamplingParams& params) {
  // Written so that NaN fails every one.
  if (!(params.temperature >= 0 &&
        params.temperature < std::numeric_limits<float>::infinity())) {
    return OutOfRange("temperature", params.temperature,
                      "a finite number >= 0");
  }
  if (params.top_k < 0) {
    return Invalid("top_k", " is ", params.top_k,
                   ", expected a number >= 0 (0 keeps all)");
  }
  if (!(params.top_p > 0 && params.top_p <= 1)) {
    return OutOfRange("top_p", params.top_p, "a number > 0 and <= 1");
  }
  if (!(params.min_p >= 0 && params.min_p <= 1)) {
    return OutOfRange("min_p", params.min_p, "a number from 0 to 1");
  }
  if (!(params.repetition_penalty > 0 &&
        params.repetition_penalty < std::numeric_limits<float>::infinity())) {
    return OutOfRange("repetition_penalty", params.repetition_penalty,
                      "a finite number > 0");
  }
  if (!(params.frequency_penalty >= -2 && params.frequency_penalty <= 2)) {
    return OutOfRange("frequency_penalty", params.frequency_penalty,
                      "a number from -2 to 2");
  }
  if (!(params.presence_penalty >= -2 && params.presence_penalty <= 2)) {
    return OutOfRange("presence_penalty", params.presence_penalty,
                      "a number from -2 to 2");
  }
  if (params.logit_bias.size() > size_t{kMaxLogitBiases}) {
    return Invalid("logit_bias", " has ", params.logit_bias.size(),
                   " entries, at most ", kMaxLogitBiases, " are allowed");
  }
  for (const auto& [id, bias] : params.logit_bias) {
    if (!(bias >= -kMaxLogitBias && bias <= kMaxLogitBias)) {
      return Invalid("logit_bias", " of token ", id, " is ", NumberText(bias),
                     ", expected a number from ", -kMaxLogitBias, " to ",
                     kMaxLogitBias);
    }
  }
  return absl::OkStatus();
}

}  // namespace nacre
