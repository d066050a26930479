// The names that flags, JSON and HTTP use for the enumerations of the API.

#ifndef PROTO_NAMES_H_
#define PROTO_NAMES_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/inference.pb.h"

namespace nacre {

// "ar", "sd", "pearl", "async". INVALID_ARGUMENT for others.
absl::StatusOr<v1::Method> ParseMethod(absl::string_view name);
absl::string_view MethodName(v1::Method method);

// "exact", "ratio". INVALID_ARGUMENT for others.
absl::StatusOr<v1::Verification> ParseVerification(absl::string_view name);
absl::string_view VerificationName(v1::Verification verification);

// "eos", "stop", "length", "cancelled"; "unknown" for others.
absl::string_view FinishReasonName(v1::FinishReason reason);

// What a worker did, as "verify" or "wait_verdict"; "unknown" for others, as of
// a newer worker.
absl::string_view SpanKindName(v1::Span::Kind kind);

// What proposed a token: "target", "draft", "branch", "suffix"; "unknown" for
// others.
absl::string_view TokenOriginName(v1::TokenOrigin origin);

}  // namespace nacre

#endif  // PROTO_NAMES_H_
