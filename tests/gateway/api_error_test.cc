#include "gateway/api_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/json.h"
#include "common/refusal.h"

namespace nacre::gateway {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

struct Case {
  absl::Status status;
  int http;
  const char* type;
  const char* code;
};

TEST(ApiErrorTest, EachStatusOfACallHasItsHttpStatus) {
  const Case cases[] = {
      {absl::InvalidArgumentError("x"), 400, "invalid_request_error", ""},
      {absl::InvalidArgumentError("CONTEXT_LENGTH_EXCEEDED: x"), 400,
       "invalid_request_error", "context_length_exceeded"},
      {absl::UnauthenticatedError("x"), 401, "authentication_error",
       "invalid_api_key"},
      {absl::PermissionDeniedError("x"), 403, "permission_error",
       "invalid_api_key"},
      {absl::NotFoundError("x"), 404, "invalid_request_error",
       "model_not_found"},
      {absl::AlreadyExistsError("x"), 409, "invalid_request_error",
       "request_id_exists"},
      {WithRefusal(absl::ResourceExhaustedError("x"), {kQueueFull}), 429,
       "rate_limit_error", "queue_full"},
      {WithRefusal(absl::ResourceExhaustedError("x"), {kQueueTimeout}), 429,
       "rate_limit_error", "queue_full"},
      // Words alone say nothing.
      {absl::ResourceExhaustedError("the queue is full: 5 requests wait"), 429,
       "rate_limit_error", "rate_limit_exceeded"},
      {absl::ResourceExhaustedError("the client has 5 streams"), 429,
       "rate_limit_error", "rate_limit_exceeded"},
      {absl::ResourceExhaustedError("need KV for 9 tokens, the largest"), 429,
       "rate_limit_error", "rate_limit_exceeded"},
      {WithRefusal(absl::ResourceExhaustedError("x"), {kNeverFits}), 400,
       "invalid_request_error", "kv_capacity"},
      {absl::ResourceExhaustedError("Received message larger than max (9)"),
       413, "invalid_request_error", ""},
      {absl::FailedPreconditionError("x"), 400, "invalid_request_error",
       "policy_unavailable"},
      {absl::UnimplementedError("x"), 400, "invalid_request_error",
       "unsupported_parameter"},
      {absl::UnavailableError("no target worker is ready"), 503,
       "service_unavailable_error", "no_target"},
      {absl::UnavailableError("the server is shutting down"), 503,
       "service_unavailable_error", "draining"},
      {absl::DeadlineExceededError("x"), 504, "timeout_error", ""},
      {absl::CancelledError("x"), 499, "cancelled_error", ""},
      {absl::InternalError("x"), 500, "server_error", ""},
      {absl::UnknownError("x"), 500, "server_error", ""},
  };
  for (const Case& test : cases) {
    const ApiError error = ErrorOf(test.status);
    EXPECT_EQ(error.status, test.http) << test.status;
    EXPECT_EQ(error.type, test.type) << test.status;
    EXPECT_EQ(error.code, test.code) << test.status;
    EXPECT_EQ(error.message.find("CONTEXT_LENGTH"), std::string::npos);
  }
}

struct ParamCase {
  const char* field;
  const char* param;
  AskedAs asked = {};
};

// As clients call it.
TEST(ApiErrorTest, TheFieldAtFaultIsItsParam) {
  const AskedAs chat = {.chat = true};
  const AskedAs newer = {.max_completion_tokens = true};
  const AskedAs resume = {.resume = true};
  const ParamCase cases[] = {
      {"", ""},
      {"n", "n"},
      {"text", "prompt"},
      {"token_ids", "prompt"},
      {"token_ids", "messages", chat},
      {"token_ids", "nacre.resume.start.prompt_token_ids", resume},
      {"sampling.logit_bias", "logit_bias"},
      {"stop.stop", "stop"},
      {"stop.max_tokens", "max_tokens"},
      {"stop.max_tokens", "max_completion_tokens", newer},
      {"output.prompt_logprobs", "prompt_logprobs"},
      {"output.logprobs", "logprobs"},
      {"output.logprobs", "top_logprobs", chat},
      {"output.spec_stats", "nacre.spec_stats"},
      {"output.trace_chunks", "nacre.trace"},
      {"speculation.tree", "nacre.tree"},
      {"speculation.oracle_token_ids", "nacre.policy"},
      {"numerics_id", "nacre.numerics_id"},
      {"resume", "nacre.resume", resume},
      {"resume.model_fingerprint", "nacre.resume.start.model_fingerprint",
       resume},
      {"resume.numerics_id", "nacre.resume.start.numerics_id", resume},
      // The gateway's own.
      {"resume", ""},
      {"resume.numerics_id", ""},
  };
  for (const ParamCase& test : cases) {
    const absl::Status status =
        WithField(absl::InvalidArgumentError("x"), test.field);
    EXPECT_EQ(ErrorOf(status, test.asked).param, test.param) << test.field;
    EXPECT_EQ(ErrorOf(status, test.asked).message, "x");
  }
  const absl::Status conflict =
      WithField(absl::FailedPreconditionError("x"), "resume.model_fingerprint");
  EXPECT_EQ(ErrorOf(conflict, resume).param,
            "nacre.resume.start.model_fingerprint");
}

TEST(ApiErrorTest, HeadersTellClientsAboutRetries) {
  EXPECT_THAT(ErrorHeaders(ErrorOf(absl::UnavailableError("x"))),
              UnorderedElementsAre(Pair("Content-Type", "application/json"),
                                   Pair("Retry-After", "1")));
  EXPECT_THAT(ErrorHeaders(ErrorOf(absl::DeadlineExceededError("x"))),
              UnorderedElementsAre(Pair("Content-Type", "application/json"),
                                   Pair("X-Should-Retry", "false")));
  EXPECT_THAT(ErrorHeaders(ErrorOf(absl::UnauthenticatedError("x"))),
              UnorderedElementsAre(Pair("Content-Type", "application/json"),
                                   Pair("WWW-Authenticate", "Bearer")));
}

TEST(ApiErrorTest, AFullQueueSaysWhenToTryAgainWhereItKnows) {
  const auto headers = [](int64_t retry_after_s) {
    return ErrorHeaders(ErrorOf(WithRefusal(absl::ResourceExhaustedError("x"),
                                            {kQueueFull, retry_after_s})));
  };
  EXPECT_THAT(headers(0), Contains(Pair("Retry-After", "1")));
  EXPECT_THAT(headers(17), Contains(Pair("Retry-After", "17")));
}

TEST(ApiErrorTest, AResumeThatNobodyCanTakeIsAConflict) {
  const AskedAs resume = {.resume = true};
  const ApiError error = ErrorOf(absl::FailedPreconditionError("x"), resume);
  EXPECT_EQ(error.status, 409);
  EXPECT_EQ(error.code, "resume_unavailable");
  EXPECT_FALSE(error.may_retry);
  EXPECT_EQ(ErrorOf(absl::InvalidArgumentError("x"), resume).status, 400);
  EXPECT_EQ(ErrorOf(absl::UnavailableError("x"), resume).status, 503);
}

// The client sent no resume: it is told what became of its answer.
TEST(ApiErrorTest, AnAnswerThatTheGatewayCannotGoOnWithIsNoFaultOfItsRequest) {
  const char* const why = "of fingerprint \"f\", the served one has \"g\"";
  for (const char* field : {"resume.model_fingerprint", "resume.numerics_id"}) {
    const absl::Status status = WithField(
        absl::FailedPreconditionError(absl::StrCat("resume: ", why)), field);
    const ApiError error = ErrorOf(status);
    EXPECT_EQ(error.status, 503);
    EXPECT_EQ(error.type, "server_error");
    EXPECT_EQ(error.code, "model_changed");
    EXPECT_EQ(error.param, "");
    EXPECT_EQ(error.message,
              absl::StrCat("the answer was cut off and cannot go on: ", why));
    // The same request gets an answer from its beginning.
    EXPECT_TRUE(error.may_retry);
    EXPECT_EQ(error.retry_after_s, 1);
    EXPECT_EQ(ErrorOf(status, {.resume = true}).code, "resume_unavailable");
  }
  // What a first call is refused for.
  for (const char* field : {"numerics_id", "speculation.policy"}) {
    const ApiError error =
        ErrorOf(WithField(absl::FailedPreconditionError("x"), field));
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(error.code, "policy_unavailable");
  }
}

TEST(ApiErrorTest, TheBodyIsJsonOfABoundedSizeWhateverTheMessage) {
  const auto body = nlohmann::json::parse(
      ErrorBody(BadRequest("a \"quoted\"\n\xff message", "prompt")));
  EXPECT_EQ(body["error"]["message"], "a \"quoted\"\n\xEF\xBF\xBD message");
  EXPECT_EQ(body["error"]["param"], "prompt");
  EXPECT_TRUE(body["error"]["code"].is_null());
  EXPECT_EQ(body["error"]["type"], "invalid_request_error");
  const std::string text = ErrorBody(BadRequest(std::string(100000, 'x')));
  EXPECT_LT(text.size(), 3000u);
  EXPECT_THAT(text, HasSubstr("... (100000 bytes)"));
}

// LiteLLM and LangChain look for these words.
TEST(ApiErrorTest, AContextThatIsTooShortIsSaidInOpenAisWords) {
  const ApiError error = ContextExceeded(100, 90, 20);
  EXPECT_EQ(error.status, 400);
  EXPECT_THAT(error.message,
              HasSubstr("This model's maximum context length is 100 tokens. "
                        "However, you requested 110 tokens (90 in the prompt, "
                        "20 for the completion)"));
  const ApiError prompt = PromptExceedsContext(100);
  EXPECT_EQ(prompt.status, 400);
  EXPECT_EQ(prompt.code, "context_length_exceeded");
  EXPECT_EQ(prompt.message,
            "This model's maximum context length is 100 tokens. However, you "
            "requested more than 100 tokens in the prompt. Please reduce its "
            "length.");
}

}  // namespace
}  // namespace nacre::gateway
