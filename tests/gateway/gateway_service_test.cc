#include "gateway/gateway_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/refusal.h"
#include "common/rpc/grpc_status.h"
#include "tests/gateway/gateway_fixture.h"

namespace nacre::gateway {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(GatewayServiceTest, ACompletionIsWholeAndCountsItsTokens) {
  StartGateway();
  const std::string answer = PostJson(
      "/v1/completions",
      R"({"prompt":["a",[1,2]],"n":2,"model":"target","x y":1,"seed":-1})");
  ASSERT_EQ(StatusOf(answer), 200) << answer;
  const OrderedJson body = JsonOf(BodyOf(answer));
  ASSERT_EQ(body["choices"].size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(body["choices"][i]["index"], i);
    EXPECT_EQ(body["choices"][i]["text"], i % 2 == 0 ? "t0" : "t1");
    EXPECT_EQ(body["choices"][i]["finish_reason"], "stop");
  }
  EXPECT_EQ(body["usage"]["prompt_tokens"], 6);
  EXPECT_EQ(body["usage"]["completion_tokens"], 4);
  EXPECT_EQ(body["object"], "text_completion");
  const v1::GenerateRequest request = coordinators_[0]->request();
  EXPECT_EQ(request.stop().max_tokens(), 16u);
  EXPECT_EQ(request.sampling().temperature(), 1.0f);
  EXPECT_EQ(request.sampling().seed(), ~uint64_t{0});
  EXPECT_EQ(request.prompt_case(), v1::GenerateRequest::kTokenIds);
}

TEST_F(GatewayServiceTest, AStreamHasEachChoiceAndItsUsage) {
  StartGateway();
  const std::vector<std::string> events = Events(
      R"({"prompt":"a","n":2,"stream":true,"echo":true,
          "stream_options":{"include_usage":true}})");
  ASSERT_EQ(events.size(), 8u);
  // What is first of a choice comes in order, whatever the service does.
  EXPECT_EQ(JsonOf(events[0])["choices"][0]["index"], 0);
  EXPECT_EQ(JsonOf(events[0])["choices"][0]["text"], "a");
  EXPECT_EQ(JsonOf(events[1])["choices"][0]["index"], 1);
  EXPECT_EQ(JsonOf(events[2])["choices"][0]["text"], "t1");
  EXPECT_EQ(JsonOf(events[3])["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(JsonOf(events[4])["choices"][0]["text"], "t0");
  EXPECT_TRUE(JsonOf(events[5])["usage"].is_null());
  EXPECT_EQ(JsonOf(events[6])["choices"].size(), 0u);
  EXPECT_EQ(JsonOf(events[6])["usage"]["completion_tokens"], 2);
  EXPECT_EQ(events[7], "data: [DONE]");
  EXPECT_TRUE(coordinators_[0]->request().output().omit_streamed());
}

// Before the first event an error has its status; after it, it is an event.
TEST_F(GatewayServiceTest, ErrorsOfTheServiceAreTold) {
  AddCoordinator([](auto*, const v1::GenerateRequest& request, auto* writer) {
    if (request.n() > 1) writer->Write(FakeCoordinator::Chunk("x", 0));
    return FakeCoordinator::QueueFull(/*retry_after_s=*/12);
  });
  StartGateway();
  for (const char* stream : {"true", "false"}) {
    const std::string answer =
        PostJson("/v1/completions",
                 absl::StrCat(R"({"prompt":"a","stream":)", stream, "}"));
    EXPECT_EQ(StatusOf(answer), 429);
    EXPECT_THAT(answer, HasSubstr("Retry-After: 12\r\n"));
    EXPECT_THAT(answer, HasSubstr("\"code\":\"queue_full\""));
  }
  const std::vector<std::string> events =
      Events(R"({"prompt":"a","n":2,"stream":true})");
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(JsonOf(events[1])["error"]["code"], "queue_full");
  EXPECT_EQ(events[2], "data: [DONE]");
}

TEST_F(GatewayServiceTest, ACallThatTheServiceCancelsHasAStatusWithAName) {
  AddCoordinator([](auto*, const auto&, auto*) {
    return grpc::Status(grpc::StatusCode::CANCELLED, "cancelled by request");
  });
  StartGateway();
  const std::string answer = PostJson("/v1/completions", R"({"prompt":"a"})");
  EXPECT_TRUE(
      absl::StartsWith(answer, "HTTP/1.1 499 Client Closed Request\r\n"))
      << answer;
  EXPECT_THAT(answer, HasSubstr("\"type\":\"cancelled_error\""));
}

TEST_F(GatewayServiceTest, SilenceIsFilledWithComments) {
  options_.ping_period = absl::Milliseconds(20);
  absl::Notification go_on;
  AddCoordinator([&](auto*, const auto&, auto* writer) {
    go_on.WaitForNotification();
    writer->Write(FakeCoordinator::Complete("", 0, /*tokens=*/0));
    return grpc::Status::OK;
  });
  StartGateway();
  nacre::testing::LoopbackConnection connection(server_->address());
  ASSERT_TRUE(connection.Send(
      PostBytes("/v1/completions", R"({"prompt":"a","stream":true})")));
  std::string text;
  while (!absl::StrContains(text, ": ping\n\n")) text += connection.Read();
  go_on.Notify();
  text += connection.ReadAll();
  EXPECT_EQ(StatusOf(text), 200);
  EXPECT_THAT(text, HasSubstr("data: [DONE]"));
}

TEST_F(GatewayServiceTest, AClientThatGoesCancelsItsCall) {
  absl::Notification asked;
  absl::Notification cancelled;
  AddCoordinator([&](grpc::ServerContext* context, const auto&, auto* writer) {
    writer->Write(FakeCoordinator::Chunk("x", 0));
    asked.Notify();
    while (!context->IsCancelled()) absl::SleepFor(absl::Milliseconds(1));
    cancelled.Notify();
    return grpc::Status::CANCELLED;
  });
  StartGateway();
  {
    nacre::testing::LoopbackConnection connection(server_->address());
    ASSERT_TRUE(connection.Send(
        PostBytes("/v1/completions", R"({"prompt":"a","stream":true})")));
    asked.WaitForNotification();
  }
  EXPECT_TRUE(cancelled.WaitForNotificationWithTimeout(absl::Minutes(1)));
}

// A client that takes nothing stops the service's writes in the end, and gets
// all of them when it goes on.
TEST_F(GatewayServiceTest, ASlowReaderHoldsTheService) {
  constexpr int kChunks = 400;
  std::atomic<int> written{0};
  AddCoordinator([&](auto*, const auto&, auto* writer) {
    const std::string text(100000, 'x');
    for (uint32_t i = 0; i < kChunks; ++i) {
      if (!writer->Write(FakeCoordinator::Chunk(text, 0, i))) break;
      ++written;
    }
    writer->Write(FakeCoordinator::Complete("", 0, kChunks));
    return grpc::Status::OK;
  });
  StartGateway();
  nacre::testing::LoopbackConnection connection(server_->address());
  ASSERT_TRUE(connection.Send(
      PostBytes("/v1/completions", R"({"prompt":"a","stream":true})")));
  ASSERT_FALSE(connection.Read().empty());
  // Until nothing moves any more.
  for (int last = -1; last != written;) {
    last = written;
    absl::SleepFor(absl::Milliseconds(200));
  }
  EXPECT_LT(written, kChunks);
  const std::string rest = connection.ReadAll();
  EXPECT_EQ(written, kChunks);
  EXPECT_THAT(rest.substr(rest.size() - 100), HasSubstr("data: [DONE]"));
}

TEST_F(GatewayServiceTest, AnotherCoordinatorTakesWhatOneDoesNot) {
  for (int i = 0; i < 3; ++i) {
    AddCoordinator([i](auto*, const auto&, auto* writer) {
      if (i < 2) {
        return grpc::Status(grpc::StatusCode::UNAVAILABLE, "shutting down");
      }
      writer->Write(FakeCoordinator::Complete("here", 0));
      return grpc::Status::OK;
    });
  }
  StartGateway();
  for (int i = 0; i < 4; ++i) {
    EXPECT_THAT(PostJson("/v1/completions", R"({"prompt":"a"})"),
                HasSubstr("\"text\":\"here\""));
  }
}

TEST_F(GatewayServiceTest, WhatNoCoordinatorTakesIsUnavailable) {
  for (int i = 0; i < 2; ++i) {
    AddCoordinator([](auto*, const auto&, auto*) {
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "shutting down");
    });
  }
  client_options_.poll_period = client_options_.resume_period =
      absl::Milliseconds(1);
  StartGateway();
  const std::string answer = PostJson("/v1/completions", R"({"prompt":"a"})");
  EXPECT_EQ(StatusOf(answer), 503) << answer;
}

TEST_F(GatewayServiceTest, TokensAreCheckedAndPassedOn) {
  const std::string file =
      ::testing::TempDir() + "/gateway_tokens_" + std::to_string(getpid());
  FILE* const out = fopen(file.c_str(), "w");
  fputs("me:0123456789abcdef\n", out);
  fclose(out);
  auto tokens = rpc::BearerTokens::Load(file);
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  options_.tokens = tokens->get();
  StartGateway();
  const std::string body = R"({"prompt":"a"})";
  for (const char* header :
       {"", "Authorization: Basic x\r\n", "Authorization: Bearer \r\n",
        "Authorization: Bearer wrong\r\n", "Authorization: Bearerx\r\n",
        "Authorization: Bearer \xc3\xa4\r\n",
        "Authorization: Bearer 0123456789abcdef\r\nAuthorization: x\r\n"}) {
    const std::string answer = PostJson("/v1/completions", body, header);
    EXPECT_EQ(StatusOf(answer), 401) << header;
    EXPECT_THAT(answer, HasSubstr("WWW-Authenticate: Bearer\r\n"));
    EXPECT_EQ(StatusOf(Get(server_->address(), "/v1/models", header)), 401);
  }
  const std::string good = "Authorization: bearer 0123456789abcdef\r\n";
  EXPECT_EQ(StatusOf(PostJson("/v1/completions", body, good)), 200);
  EXPECT_EQ(coordinators_[0]->token(), "Bearer 0123456789abcdef");
  EXPECT_EQ(StatusOf(Get(server_->address(), "/health")), 200);
}

TEST_F(GatewayServiceTest, WithoutTokensAProxysOwnHarmsNothing) {
  StartGateway();
  for (const char* header :
       {"Authorization: Basic dTpw\r\n", "Authorization: Bearerx\r\n",
        "Authorization: Basic a\r\nAuthorization: Basic b\r\n"}) {
    EXPECT_EQ(
        StatusOf(PostJson("/v1/completions", R"({"prompt":"a"})", header)), 200)
        << header;
    EXPECT_EQ(coordinators_[0]->token(), "");
  }
}

// lm-eval does so without a key.
TEST_F(GatewayServiceTest, AnEmptyTokenIsNone) {
  StartGateway();
  const std::string body = R"({"prompt":"a"})";
  EXPECT_EQ(
      StatusOf(PostJson("/v1/completions", body, "Authorization: Bearer \r\n")),
      200);
  EXPECT_EQ(coordinators_[0]->token(), "");
}

TEST_F(GatewayServiceTest, ModelsHaveTheirNames) {
  options_.served_names = {"shown", "alias", "org/name", "shown", "/path"};
  StartGateway();
  const OrderedJson list =
      JsonOf(BodyOf(Get(server_->address(), "/v1/models")));
  EXPECT_EQ(list["object"], "list");
  std::vector<std::string> listed;
  for (const OrderedJson& model : list["data"]) {
    listed.push_back(model["id"].get<std::string>());
    EXPECT_EQ(model["object"], "model");
    EXPECT_EQ(model["root"], "target");
    EXPECT_TRUE(model["parent"].is_null());
    EXPECT_EQ(model["max_model_len"], 100);
    EXPECT_EQ(model["nacre"]["fingerprint"], "f");
    const std::string path = absl::StrReplaceAll(listed.back(), {{"/", "%2F"}});
    EXPECT_EQ(JsonOf(BodyOf(
                  Get(server_->address(), absl::StrCat("/v1/models/", path)))),
              model);
  }
  EXPECT_THAT(listed, ElementsAre("shown", "alias", "org/name", "/path"));
  EXPECT_THAT(Get(server_->address(), "/v1/models/alias"),
              HasSubstr("{\"id\":\"alias\""));
  // Its own name is none of them.
  for (const char* name : {"target", "alias/", "org", "Shown"}) {
    EXPECT_THAT(Get(server_->address(), absl::StrCat("/v1/models/", name)),
                AllOf(HasSubstr("HTTP/1.1 404"),
                      HasSubstr("\"code\":\"model_not_found\"")))
        << name;
  }
  EXPECT_THAT(Get(server_->address(), "/v1/models/%61lia%73"),
              HasSubstr("{\"id\":\"alias\""));
  // Both ways to write a name with '/'.
  for (const char* name : {"org%2Fname", "org%2fname", "org/name"}) {
    EXPECT_THAT(
        Get(server_->address(), absl::StrCat("/v1/models/", name)),
        AllOf(HasSubstr("HTTP/1.1 200"), HasSubstr("{\"id\":\"org/name\"")));
  }
  EXPECT_THAT(Get(server_->address(), "/v1/models/%2Fpath"),
              HasSubstr("{\"id\":\"/path\""));
  for (const char* name : {"a%", "a%2", "a%2g", "%%20"}) {
    const std::string answer =
        Get(server_->address(), absl::StrCat("/v1/models/", name));
    EXPECT_EQ(StatusOf(answer), 400) << answer;
    EXPECT_THAT(answer, HasSubstr("without two hexadecimal digits"));
  }
  EXPECT_THAT(PostJson("/v1/completions", R"({"prompt":"a","model":"alias"})"),
              HasSubstr("\"model\":\"shown\""));
}

// Without names of its own the gateway lists the coordinator's.
TEST_F(GatewayServiceTest, AModelWithoutNamesHasItsOwn) {
  StartGateway();
  const OrderedJson list =
      JsonOf(BodyOf(Get(server_->address(), "/v1/models")));
  ASSERT_EQ(list["data"].size(), 1u);
  EXPECT_EQ(list["data"][0]["id"], "target");
}

TEST_F(GatewayServiceTest, TextBecomesTokensAndBack) {
  StartGateway();
  const std::string answer =
      PostJson("/tokenize", R"({"prompt":"def main():"})");
  EXPECT_EQ(BodyOf(answer),
            R"({"count":4,"max_model_len":100,"tokens":[1,503,2593,1006]})");
  EXPECT_EQ(BodyOf(PostJson("/tokenize",
                            R"({"prompt":"def","add_special_tokens":false,
                          "return_token_strs":true})")),
            "{\"count\":1,\"max_model_len\":100,\"tokens\":[503],"
            "\"token_strs\":[\"\xE2\x96\x81"
            "def\"]}");
  // docs/openai.md warns of this.
  EXPECT_THAT(
      PostJson("/tokenize", R"({"prompt":"</s>","add_special_tokens":false})"),
      HasSubstr(R"({"count":1,"max_model_len":100,"tokens":[2]})"));
  EXPECT_EQ(BodyOf(PostJson("/detokenize", R"({"tokens":[503,2593,1006]})")),
            R"({"prompt":"def main():"})");
  EXPECT_THAT(PostJson("/tokenize", R"({"prompt":[1,503]})"),
              HasSubstr("prompt is array of 2, expected a string\""));
  for (const char* path : {"/tokenize", "/detokenize"}) {
    EXPECT_EQ(StatusOf(PostJson(
                  path, R"({"model":"other","prompt":"a","tokens":[503]})")),
              404);
  }
  EXPECT_THAT(Get(server_->address(), "/tokenizer_info"),
              HasSubstr(R"("eos_token":"</s>")"));
}

TEST_F(GatewayServiceTest, IdsOutsideTheVocabularyBecomeNoText) {
  StartGateway();
  EXPECT_EQ(StatusOf(PostJson("/detokenize", R"({"tokens":[4095]})")), 200);
  for (const char* id : {"4096", "2147483647"}) {
    const std::string answer = PostJson(
        "/detokenize", absl::StrCat(R"({"tokens":[503,)", id, ",4096]}"));
    EXPECT_EQ(StatusOf(answer), 400);
    EXPECT_THAT(
        answer,
        AllOf(HasSubstr(absl::StrCat("tokens: token id ", id,
                                     " at index 1 is outside the vocabulary "
                                     "of 4096")),
              HasSubstr(R"("param":"tokens")")));
  }
}

// The model may have fewer tokens than the tokenizer of 4096, or more.
class VocabularyTest : public GatewayServiceTest,
                       public ::testing::WithParamInterface<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, VocabularyTest, ::testing::Values(4000, 5000));

TEST_P(VocabularyTest, TheLargerOneBoundsWhatBecomesText) {
  AddCoordinator([](auto*, const auto&, auto*) { return grpc::Status::OK; });
  coordinators_[0]->SetVocabSize(GetParam());
  StartGateway();
  const uint32_t larger = std::max<uint32_t>(GetParam(), 4096);
  for (const uint32_t id : {larger - 1, larger}) {
    const std::string body = absl::StrCat("{\"tokens\":[", id, "]}");
    EXPECT_EQ(StatusOf(PostJson("/detokenize", body)), id < larger ? 200 : 400)
        << id;
  }
}

// As the client calls it.
TEST_F(GatewayServiceTest, TheParamIsAFieldOfTheClientsRequest) {
  std::string field;
  AddCoordinator([&](auto*, const auto&, auto*) {
    return rpc::ToGrpcStatus(
        WithField(absl::InvalidArgumentError("bad"), field));
  });
  StartGateway();
  const auto param = [&](const char* more) {
    return OrderedJson::parse(BodyOf(PostJson(
        "/v1/completions",
        absl::StrCat(R"({"prompt":"a")", more, "}"))))["error"]["param"];
  };
  field = "stop.max_tokens";
  EXPECT_EQ(param(R"(,"max_tokens":5)"), "max_tokens");
  EXPECT_EQ(param(R"(,"max_completion_tokens":5)"), "max_completion_tokens");
  field = "resume.numerics_id";
  EXPECT_EQ(param(""), nullptr);
}

std::string OnesOf(int count) {
  std::string ids = R"({"tokens":[1)";
  for (int i = 1; i < count; ++i) ids += ",1";
  return ids + "]}";
}

// The coordinator's model has a context of 100.
TEST_F(GatewayServiceTest, TheContextLimitsWhatBecomesTextOrTokens) {
  StartGateway();
  EXPECT_EQ(StatusOf(PostJson("/detokenize", OnesOf(100))), 200);
  const std::string answer = PostJson("/detokenize", OnesOf(101));
  EXPECT_EQ(StatusOf(answer), 400);
  EXPECT_THAT(answer, HasSubstr("tokens is array of 101, expected a list of at "
                                "most 100 token ids"));
  std::string words = R"({"prompt":"a)";
  for (int i = 0; i < 300; ++i) words += " a";
  for (const char* path : {"/tokenize", "/v1/completions"}) {
    const std::string refused = PostJson(path, words + "\"}");
    EXPECT_EQ(StatusOf(refused), 400) << path;
    EXPECT_THAT(refused,
                AllOf(HasSubstr("context_length_exceeded"),
                      HasSubstr("you requested more than 100 tokens")));
  }
}

struct BadRequestCase {
  const char* method;
  const char* path;
  std::string body;
  int status;
};

// Of completions.
constexpr const char* kBadFields[] = {
    R"("temperature":-1)",
    R"("temperature":2.1)",
    R"("temperature":"1")",
    R"("temperature":true)",
    R"("temperature":1e999)",
    R"("top_p":0)",
    R"("top_p":1.1)",
    R"("min_p":-0.1)",
    R"("min_p":2)",
    R"("top_k":-2)",
    R"("top_k":1.5)",
    R"("repetition_penalty":0)",
    R"("frequency_penalty":3)",
    R"("presence_penalty":-3)",
    R"("seed":1.5)",
    R"("seed":"x")",
    R"("seed":1e30)",
    R"("n":0)",
    R"("n":17)",
    R"("n":"2")",
    R"("max_tokens":0)",
    R"("max_tokens":-1)",
    R"("max_tokens":1000)",
    R"("max_tokens":"5")",
    R"("max_tokens":1e30)",
    R"("max_completion_tokens":0)",
    R"("min_tokens":-1)",
    R"("stop":1)",
    R"("stop":[1])",
    R"("stop":"")",
    R"("stop":[""])",
    R"("stop":{})",
    R"("stop_token_ids":[-1])",
    R"("stop_token_ids":["a"])",
    R"("stop_token_ids":5)",
    R"("logit_bias":[])",
    R"("logit_bias":{"a":1})",
    R"("logit_bias":{"+1":1})",
    R"("logit_bias":{" 1":1})",
    R"("logit_bias":{"01":1})",
    R"("logit_bias":{"1":101})",
    R"("logit_bias":{"1":"x"})",
    R"("logit_bias":{"-1":1})",
    R"("logprobs":21)",
    R"("logprobs":-1)",
    R"("logprobs":true)",
    R"("stream":"yes")",
    R"("stream":1)",
    R"("stream_options":{"include_usage":true})",
    R"("stream_options":{"continuous_usage_stats":true})",
    R"("stream_options":{"include_usage":1})",
    R"("stream":true,"stream_options":5)",
    R"("stream":true,"stream_options":{"include_usage":1})",
    R"("echo":true,"logprobs":21)",
    R"("echo":"x")",
    R"("ignore_eos":1)",
    R"("suffix":"x")",
    R"("best_of":2)",
    R"("response_format":{"type":"json_object"})",
    R"("response_format":"text")",
    R"("tools":[{}])",
    R"("tools":{})",
    R"("tool_choice":"required")",
    R"("prompt_logprobs":21)",
    R"("prompt_logprobs":-1)",
    R"("prompt_logprobs":true)",
    R"("prompt_logprobs":1,"stream":true)",
    R"("guided_json":{})",
    R"("guided_whitespace_pattern":"x")",
    R"("guided_whitespace_pattern":" ")",
    R"("grammar":"root ::= x")",
    R"("json_schema":{})",
    R"("prompt_embeds":"AAAA")",
    R"("cache_salt":"s")",
    R"("top_logprobs":2)",
    R"("use_beam_search":true)",
    R"("length_penalty":2)",
    R"("nacre":1)",
    R"("nacre":{"method":"x"})",
    R"("nacre":{"window":0})",
    R"("nacre":{"window":65})",
    R"("nacre":{"policy":1})",
    R"("nacre":{"tree":{}})",
    R"("nacre":{"resume":{}})",
    R"("nacre":{"resumable":true})",
    R"("nacre":{"trace":true})",
    R"("nacre":{"trace":1},"stream":true)",
    R"("nacre":{"verification":"x"})",
    R"("model":5)",
    R"("request_id":5)"};

void AddBadChats(std::vector<BadRequestCase>* cases) {
  for (const char* messages :
       {"null", "1", "{}", "[]", "[1]", "[{}]", R"([{"role":"x"}])",
        R"([{"role":1}])", R"([{"role":"user","content":1}])",
        R"([{"role":"user","content":{}}])",
        R"([{"role":"user","content":[1]}])",
        R"([{"role":"user","content":[{"type":"image_url"}]}])",
        R"([{"role":"user","content":[{"type":"text","text":1}]}])"}) {
    cases->push_back({"POST", "/v1/chat/completions",
                      absl::StrCat("{\"messages\":", messages, "}"), 400});
  }
  for (const char* field :
       {R"("logprobs":1)", R"("top_logprobs":2)",
        R"("logprobs":true,"top_logprobs":21)", R"("chat_template":"x")",
        R"("chat_template_kwargs":1)", R"("modalities":["audio"])",
        R"("function_call":"auto")", R"("echo":true)", R"("prompt":"b")",
        R"("max_tokens":0)", R"("guided_regex":"a*")"}) {
    cases->push_back(
        {"POST", "/v1/chat/completions",
         absl::StrCat(R"({"messages":[{"role":"user","content":"a"}],)", field,
                      "}"),
         400});
  }
}

std::vector<BadRequestCase> BadRequests() {
  std::vector<BadRequestCase> cases = {
      {"GET", "/ui/none", "", 404},
      {"GET", "/v1", "", 404},
      {"GET", "/v1/completions", "", 405},
      {"PUT", "/v1/completions", "{}", 405},
      {"DELETE", "/v1/models", "", 405},
      {"POST", "/health", "{}", 405},
      {"POST", "/", "{}", 405},
      {"GET", "/nacre/fleet", "", 404},
      {"GET", "/v1/models/none", "", 404},
      {"POST", "/v1/completions/", "{}", 404},
  };
  const std::string deep(65, '[');
  const std::string deep_end(65, ']');
  for (const std::string& body :
       {std::string(),
        std::string("x"),
        std::string("{"),
        std::string("[]"),
        std::string("null"),
        std::string("1"),
        std::string("\"a\""),
        std::string("{}"),
        std::string("{\"prompt\":\"a\"} x"),
        std::string("{\"prompt\":\"\xff\"}"),
        std::string("{\"prompt\":\"\\ud800\"}"),
        std::string("{'prompt':'a'}"),
        std::string("{\"prompt\":\"a\",}"),
        std::string("\xEF\xBB\xBF{") + "x",
        std::string(1, '\0'),
        std::string("\xFF\xFE{\0}\0", 6),
        std::string("{\"prompt\":\"\xC0\x80\"}"),
        std::string("{\"prompt\":\"\xED\xA0\x80\"}"),
        std::string("{\"prompt\":\"a\nb\"}"),
        std::string("{\"prompt\":\"\\x\"}"),
        std::string("{\"prompt\":\"\\u12\"}"),
        std::string("{\"prompt\":NaN}"),
        std::string("{\"prompt\":Infinity}"),
        std::string("{\"prompt\":01}"),
        std::string("{prompt:\"a\"}"),
        std::string("{\"prompt\":\"a\"}{\"prompt\":\"a\"}"),
        std::string("{\"prompt\":\"a\""),
        std::string("//c\n{\"prompt\":\"a\"}"),
        "{\"prompt\":\"a\",\"x\":" + deep + deep_end + "}",
        "{\"prompt\":\"a\",\"x\":" + std::string(100000, '[')}) {
    cases.push_back({"POST", "/v1/completions", body, 400});
    cases.push_back({"POST", "/tokenize", body, 400});
    cases.push_back({"POST", "/detokenize", body, 400});
  }
  for (const char* field : kBadFields) {
    cases.push_back({"POST", "/v1/completions",
                     absl::StrCat(R"({"prompt":"a",)", field, "}"), 400});
  }
  for (const char* prompt :
       {"null", "1", "{}", "[]", "[null]", "[{}]", "[-1]", "[1.5]", "[1,\"a\"]",
        "[\"a\",1]", "[[1],[\"a\"]]", "[[]]", "true", "[3000000000]"}) {
    cases.push_back({"POST", "/v1/completions",
                     absl::StrCat("{\"prompt\":", prompt, "}"), 400});
  }
  AddBadChats(&cases);
  cases.push_back(
      {"POST", "/v1/completions", R"({"prompt":"a","model":"none"})", 404});
  return cases;
}

TEST_F(GatewayServiceTest, EachBadRequestGetsItsStatus) {
  StartGateway();
  const std::vector<BadRequestCase> cases = BadRequests();
  EXPECT_GE(cases.size(), 200u);
  for (const BadRequestCase& test : cases) {
    const std::string bytes =
        absl::StrReplaceAll(PostBytes(test.path, test.body),
                            {{"POST ", absl::StrCat(test.method, " ")}});
    const std::string answer = Exchange(server_->address(), bytes);
    EXPECT_EQ(StatusOf(answer), test.status)
        << test.method << " " << test.path << " " << test.body.substr(0, 100)
        << "\n"
        << answer;
    EXPECT_THAT(answer, HasSubstr("{\"error\":{\"message\":\""));
  }
  EXPECT_EQ(
      StatusOf(Post(server_->address(), "/v1/completions", "prompt=a",
                    "Content-Type: application/x-www-form-urlencoded\r\n")),
      415);
  EXPECT_EQ(
      StatusOf(Post(server_->address(), "/v1/completions", R"({"prompt":"a"})",
                    "Content-Type: application/json\r\n"
                    "Content-Type: text/plain\r\n")),
      415);
}

TEST_F(GatewayServiceTest, NeutralAndUnknownFieldsPass) {
  StartGateway();
  const std::string answer = PostJson("/v1/completions", R"({"prompt":"a",
    "n":1,"best_of":1,"logprobs":false,"logit_bias":{},"stop":null,"tools":[],
    "response_format":{"type":"text"},"suffix":"","modalities":[],
    "allowed_token_ids":[],"functions":[],"tool_choice":"auto",
    "top_k":-1,"min_tokens":0,"use_beam_search":false,"length_penalty":1.0,
    "user":"u","store":false,"metadata":{},"stream":false,
    "stream_options":{"include_usage":false},"guided_json":null,"bad_words":[],
    "guided_backend":"","guided_x":false,"grammar":"","top_logprobs":0,
    "cache_salt":null,
    "mystery":1,"evil\r\nheader":2})");
  EXPECT_EQ(StatusOf(answer), 200) << answer;
  EXPECT_THAT(answer, HasSubstr("X-Nacre-Ignored: mystery\r\n"));
  for (const char* name :
       {"response_format", "tool_choice", "best_of", "guided_x"}) {
    const std::string empty = PostJson(
        "/v1/completions", absl::StrCat(R"({"prompt":"a",")", name, "\":[]}"));
    EXPECT_EQ(StatusOf(empty), 200) << empty;
  }
  const auto families = metrics_.collectable()->Collect();
  EXPECT_EQ(families.size(), 2u);
}

// One thread for work is busy for good, the other until the client has gone.
TEST_F(GatewayServiceTest, WhatNoClientWaitsForIsNotRead) {
  StartGateway();
  absl::Notification client_gone;
  absl::Notification end;
  ASSERT_TRUE(loop_.PostWork([&] { client_gone.WaitForNotification(); }));
  ASSERT_TRUE(loop_.PostWork([&] { end.WaitForNotification(); }));
  {
    nacre::testing::LoopbackConnection connection(server_->address());
    ASSERT_TRUE(connection.Send(
        PostBytes("/v1/completions", R"({"prompt":"a","unread":1})")));
    while (server_->running() == 0) std::this_thread::yield();
  }
  while (server_->running() != 0) std::this_thread::yield();
  client_gone.Notify();
  EXPECT_EQ(
      StatusOf(PostJson("/v1/completions", R"({"prompt":"a","is_read":1})")),
      200);
  end.Notify();
  loop_.StopWork();  // nothing waits on what is of this test
  std::vector<std::string> counted;
  for (const auto& family : metrics_.collectable()->Collect()) {
    for (const auto& metric : family.metric) {
      for (const auto& label : metric.label) {
        if (label.name == "field") counted.push_back(label.value);
      }
    }
  }
  EXPECT_THAT(counted, ElementsAre("is_read"));
}

}  // namespace
}  // namespace nacre::gateway
