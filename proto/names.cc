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

absl::string_view SpanKindName(v1::Span::Kind kind) {
  switch (kind) {
    case v1::Span::KIND_PREFILL:
      return "prefill";
    case v1::Span::KIND_DRAFT:
      return "draft";
    case v1::Span::KIND_VERIFY:
      return "verify";
    case v1::Span::KIND_WAIT_DRAFT_TOKENS:
      return "wait_draft_tokens";
    case v1::Span::KIND_WAIT_VERDICT:
      return "wait_verdict";
    case v1::Span::KIND_WAIT_ACKNOWLEDGE:
      return "wait_acknowledge";
    case v1::Span::KIND_ROLLBACK:
      return "rollback";
    case v1::Span::KIND_HIDDEN:
      return "hidden";
    default:
      return "unknown";
  }
}

absl::string_view TokenOriginName(v1::TokenOrigin origin) {
  switch (origin) {
    case v1::TOKEN_ORIGIN_TARGET:
      return "target";
    case v1::TOKEN_ORIGIN_DRAFT:
      return "draft";
    case v1::TOKEN_ORIGIN_BRANCH:
      return "branch";
    case v1::TOKEN_ORIGIN_SUFFIX:
      return "suffix";
    default:
      return "unknown";
  }
}

}  // namespace nacre
