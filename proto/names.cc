#include "proto/names.h"

#include "absl/strings/str_cat.h"

namespace nacre {

absl::StatusOr<v1::Method> ParseMethod(absl::string_view name) {
  if (name == "ar") return v1::METHOD_AR;
  if (name == "sd") return v1::METHOD_SD;
  if (name == "pearl") return v1::METHOD_PEARL;
  if (name == "async") return v1::METHOD_ASYNC;
  return absl::InvalidArgumentError(
      absl::StrCat("method \"", name, "\" is not one of ar, sd, pearl, async"));
}

absl::string_view MethodName(v1::Method method) {
  switch (method) {
    case v1::METHOD_AR:
      return "ar";
    case v1::METHOD_SD:
      return "sd";
    case v1::METHOD_PEARL:
      return "pearl";
    case v1::METHOD_ASYNC:
      return "async";
    default:
      return "unknown";
  }
}

absl::StatusOr<v1::Verification> ParseVerification(absl::string_view name) {
  if (name == "exact") return v1::VERIFICATION_EXACT;
  if (name == "ratio") return v1::VERIFICATION_RATIO;
  return absl::InvalidArgumentError(
      absl::StrCat("verification \"", name, "\" is not one of exact, ratio"));
}

absl::string_view VerificationName(v1::Verification verification) {
  return verification == v1::VERIFICATION_RATIO ? "ratio" : "exact";
}

absl::string_view FinishReasonName(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_EOS:
      return "eos";
    case v1::FINISH_REASON_STOP:
      return "stop";
    case v1::FINISH_REASON_LENGTH:
      return "length";
    case v1::FINISH_REASON_CANCELLED:
      return "cancelled";
    default:
      return "unknown";
  }
}

}  // namespace nacre
