// Errors as OpenAI's clients expect them: the one place that knows statuses,
// types and codes.
//
// Pure functions.

#ifndef GATEWAY_API_ERROR_H_
#define GATEWAY_API_ERROR_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "gateway/http_message.h"

namespace nacre::gateway {

// Status of a call that was cancelled, as nginx has it.
inline constexpr int kClientClosedRequest = 499;

struct ApiError {
  int status = 400;  // of HTTP
  std::string message;
  std::string type = "invalid_request_error";
  std::string code;           // empty: null
  std::string param;          // the field at fault; empty: null
  int64_t retry_after_s = 0;  // 0: no Retry-After
  bool may_retry = true;      // false: x-should-retry says so
};

// 400 invalid_request_error.
inline ApiError BadRequest(std::string message, std::string param = "") {
  return {.message = std::move(message), .param = std::move(param)};
}
// 400 with the code unsupported_parameter.
inline ApiError Unsupported(std::string message, std::string param) {
  return {.message = std::move(message),
          .code = "unsupported_parameter",
          .param = std::move(param)};
}
// 400 with the code that LangChain and LiteLLM look for. `context`: in tokens.
ApiError ContextExceeded(int context, int64_t prompt, int64_t wanted);
// The same of a prompt of which only the first `context` tokens were counted.
ApiError PromptExceedsContext(int context);

// What the client's own request had: its `param` names a field of that.
struct AskedAs {
  bool chat = false;
  bool max_completion_tokens = false;  // and not max_tokens
  bool resume = false;
};

// How a call of nacre.v1.Inference that failed is told over HTTP
// (docs/openai.md has the table). Where no target can go on with an answer: 409
// if the client resumes it, else 503.
ApiError ErrorOf(const absl::Status& status, const AskedAs& asked = {});

// Of a coordinator with as many waiting requests as it takes.
bool IsFullQueue(const absl::Status& status);

// {"error": {"message", "type", "param", "code"}}. Of a long message the first
// 2 KiB.
std::string ErrorBody(const ApiError& error);
// Answers with it, and with the headers that tell clients about retries.
void SendError(const ApiError& error, HttpReply* reply);
HttpHeaders ErrorHeaders(const ApiError& error);

}  // namespace nacre::gateway

#endif  // GATEWAY_API_ERROR_H_
