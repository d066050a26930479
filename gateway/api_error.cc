#include "gateway/api_error.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/json.h"
#include "common/refusal.h"

namespace nacre::gateway {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr size_t kMaxMessageBytes = 2048;
constexpr char kContextMark[] = "CONTEXT_LENGTH_EXCEEDED: ";

OrderedJson TextOrNull(const std::string& text) {
  return text.empty() ? OrderedJson() : OrderedJson(text);
}

ApiError ExhaustedError(const absl::Status& status) {
  const std::string message(status.message());
  // To wait does not help.
  if (IsRefusedFor(status, kNeverFits)) {
    return {.status = 400, .message = message, .code = "kv_capacity"};
  }
  if (absl::StrContains(message, "larger than max")) {
    return {.status = 413, .message = message};
  }
  const bool queues =
      IsFullQueue(status) || IsRefusedFor(status, kQueueTimeout);
  const int64_t retry_after_s =
      RefusalOf(status).value_or(Refusal()).retry_after_s;
  return {.status = 429,
          .message = message,
          .type = "rate_limit_error",
          .code = queues ? "queue_full" : "rate_limit_exceeded",
          .retry_after_s = std::max<int64_t>(1, retry_after_s)};
}

ApiError ContextError(int context, absl::string_view requested) {
  return {.message =
              absl::StrCat("This model's maximum context length is ", context,
                           " tokens. However, you requested ", requested),
          .code = "context_length_exceeded"};
}

ApiError InvalidError(const std::string& message) {
  if (absl::StartsWith(message, kContextMark)) {
    return {.message = message.substr(sizeof(kContextMark) - 1),
            .code = "context_length_exceeded"};
  }
  return {.message = message};
}

// A field of `resume` is the gateway's own where the client sent none.
std::string ParamOfResume(absl::string_view field, const AskedAs& asked) {
  if (!asked.resume) return "";
  if (field == "resume.model_fingerprint" || field == "resume.numerics_id") {
    absl::ConsumePrefix(&field, "resume.");
    return absl::StrCat("nacre.resume.start.", field);
  }
  return absl::StrCat("nacre.", field);
}

std::string ParamOfOutput(absl::string_view field, const AskedAs& asked) {
  if (field == "spec_stats") return "nacre.spec_stats";
  if (field == "trace" || field == "trace_chunks") return "nacre.trace";
  if (field == "logprobs" && asked.chat) return "top_logprobs";
  return std::string(field);
}

// A field of GenerateRequest by its name in OpenAI's requests, or in ours.
std::string ParamOf(absl::string_view field, const AskedAs& asked) {
  if (field == "resume" || absl::StartsWith(field, "resume.")) {
    return ParamOfResume(field, asked);
  }
  if (field == "text" || field == "token_ids") {
    if (asked.resume) return "nacre.resume.start.prompt_token_ids";
    return asked.chat ? "messages" : "prompt";
  }
  if (field == "stop.max_tokens" && asked.max_completion_tokens) {
    return "max_completion_tokens";
  }
  if (absl::ConsumePrefix(&field, "output.")) {
    return ParamOfOutput(field, asked);
  }
  if (absl::ConsumePrefix(&field, "sampling.") ||
      absl::ConsumePrefix(&field, "stop.")) {
    return std::string(field);
  }
  // What an oracle knows comes with its policy.
  if (field == "speculation.oracle_token_ids") return "nacre.policy";
  if (absl::ConsumePrefix(&field, "speculation.") || field == "numerics_id") {
    return absl::StrCat("nacre.", field);
  }
  return std::string(field);
}

// The client asked for no resume: it was the gateway's own. What the client
// asked for is right, and can be had anew.
ApiError LostAnswer(absl::string_view why) {
  absl::ConsumePrefix(&why, "resume: ");
  return {
      .status = 503,
      .message = absl::StrCat("the answer was cut off and cannot go on: ", why),
      .type = "server_error",
      .code = "model_changed",
      .retry_after_s = 1};
}

ApiError WithoutParam(const absl::Status& status) {
  const std::string message(status.message());
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return InvalidError(message);
    case absl::StatusCode::kUnauthenticated:
      return {.status = 401,
              .message = message,
              .type = "authentication_error",
              .code = "invalid_api_key"};
    case absl::StatusCode::kPermissionDenied:
      return {.status = 403,
              .message = message,
              .type = "permission_error",
              .code = "invalid_api_key"};
    case absl::StatusCode::kNotFound:
      return {.status = 404, .message = message, .code = "model_not_found"};
    case absl::StatusCode::kAlreadyExists:
      return {.status = 409,
              .message = message,
              .code = "request_id_exists",
              .may_retry = false};
    case absl::StatusCode::kResourceExhausted:
      return ExhaustedError(status);
    case absl::StatusCode::kFailedPrecondition:
      return {.message = message, .code = "policy_unavailable"};
    case absl::StatusCode::kUnimplemented:
      return {.message = message, .code = "unsupported_parameter"};
    case absl::StatusCode::kUnavailable:
      return {.status = 503,
              .message = message,
              .type = "service_unavailable_error",
              .code = absl::StrContains(message, "shutting down") ? "draining"
                                                                  : "no_target",
              .retry_after_s = 1};
    case absl::StatusCode::kDeadlineExceeded:
      return {.status = 504,
              .message = message,
              .type = "timeout_error",
              .may_retry = false};
    case absl::StatusCode::kCancelled:
      return {.status = kClientClosedRequest,
              .message = message,
              .type = "cancelled_error"};
    default:
      return {.status = 500, .message = message, .type = "server_error"};
  }
}

}  // namespace

ApiError ContextExceeded(int context, int64_t prompt, int64_t wanted) {
  return ContextError(
      context,
      absl::StrCat(prompt + wanted, " tokens (", prompt, " in the prompt, ",
                   wanted,
                   " for the completion). Please reduce the length of the "
                   "prompt or of the completion."));
}

ApiError PromptExceedsContext(int context) {
  return ContextError(
      context,
      absl::StrCat("more than ", context,
                   " tokens in the prompt. Please reduce its length."));
}

ApiError ErrorOf(const absl::Status& status, const AskedAs& asked) {
  const std::string field = FieldOf(status);
  ApiError error = WithoutParam(status);
  error.param = ParamOf(field, asked);
  if (!absl::IsFailedPrecondition(status)) return error;
  if (asked.resume) {
    error.status = 409;
    error.code = "resume_unavailable";
    error.may_retry = false;
  } else if (absl::StartsWith(field, "resume.")) {
    return LostAnswer(status.message());
  }
  return error;
}

bool IsFullQueue(const absl::Status& status) {
  return IsRefusedFor(status, kQueueFull);
}

std::string ErrorBody(const ApiError& error) {
  std::string message = error.message;
  if (message.size() > kMaxMessageBytes) {
    const size_t size = message.size();
    message.resize(kMaxMessageBytes);
    absl::StrAppend(&message, "... (", size, " bytes)");
  }
  const OrderedJson body = {{"error",
                             {{"message", message},
                              {"type", error.type},
                              {"param", TextOrNull(error.param)},
                              {"code", TextOrNull(error.code)}}}};
  return body.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

HttpHeaders ErrorHeaders(const ApiError& error) {
  HttpHeaders headers = {{"Content-Type", "application/json"}};
  if (error.retry_after_s > 0) {
    headers.emplace_back("Retry-After", absl::StrCat(error.retry_after_s));
  }
  if (!error.may_retry) headers.emplace_back("X-Should-Retry", "false");
  if (error.status == 401) headers.emplace_back("WWW-Authenticate", "Bearer");
  return headers;
}

void SendError(const ApiError& error, HttpReply* reply) {
  reply->Send(error.status, ErrorHeaders(error), ErrorBody(error));
}

}  // namespace nacre::gateway
