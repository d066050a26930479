// Streams that are cut off and resumed, by their client or the gateway.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/json.h"
#include "common/refusal.h"
#include "common/rpc/grpc_status.h"
#include "tests/gateway/gateway_fixture.h"
#include "tests/gateway/stream_so_far.h"

namespace nacre::gateway {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr uint64_t kSeed = (uint64_t{1} << 63) + 5;

// Token k of choice i of a model that says the same whatever it is asked.
uint32_t TokenOf(uint32_t choice, size_t k) {
  return 500 + 10 * choice + static_cast<uint32_t>(k);
}
size_t LengthOf(uint32_t choice) { return 3 + 2 * size_t{choice}; }

// Of a coordinator that goes on with an answer as inference.proto says.
class ResumingModel {
 public:
  explicit ResumingModel(const v1::GenerateRequest& request)
      : request_(request), next_(request.n()), done_(request.n()) {}

  grpc::Status Answer(FakeCoordinator::Writer* writer) {
    if (request_.has_resume()) {
      const grpc::Status status = Take(request_.resume());
      if (!status.ok()) return status;
    }
    bool any = true;
    while (any) {
      any = false;
      // The choices mixed, the last one ahead.
      for (uint32_t i = request_.n(); i-- > 0;) {
        if (done_[i]) continue;
        any = true;
        if (!Write(Next(i), writer)) return grpc::Status::CANCELLED;
      }
    }
    return grpc::Status::OK;
  }

 private:
  grpc::Status Take(const v1::Resume& resume) {
    if (resume.model_fingerprint() != "f") {
      return {grpc::StatusCode::FAILED_PRECONDITION, "resume: another model"};
    }
    int done = 0;
    for (uint32_t i = 0; i < request_.n(); ++i) {
      const v1::Resume::Choice& choice = resume.choices(static_cast<int>(i));
      done_[i] = choice.done();
      done += choice.done() ? 1 : 0;
      for (int k = 0; !done_[i] && k < choice.token_ids_size(); ++k) {
        if (choice.token_ids(k) != TokenOf(i, next_[i]++)) {
          return {grpc::StatusCode::INVALID_ARGUMENT, "resume: other tokens"};
        }
      }
    }
    if (done == resume.choices_size()) {
      return {grpc::StatusCode::INVALID_ARGUMENT, "resume: all are done"};
    }
    return grpc::Status::OK;
  }

  v1::GenerateResponse Next(uint32_t i) {
    v1::GenerateResponse response;
    response.set_index(i);
    if (next_[i] == LengthOf(i)) {
      done_[i] = true;
      v1::Complete* const complete = response.mutable_complete();
      complete->set_finish_reason(v1::FINISH_REASON_STOP);
      complete->mutable_usage()->set_prompt_tokens(
          static_cast<uint32_t>(request_.token_ids().ids_size()));
      complete->mutable_usage()->set_completion_tokens(
          static_cast<uint32_t>(next_[i]));
      complete->set_numerics_id("n");
      return response;
    }
    v1::Chunk* const chunk = response.mutable_chunk();
    chunk->set_first_index(static_cast<uint32_t>(next_[i]));
    const uint32_t id = TokenOf(i, next_[i]++);
    chunk->add_token_ids(id);
    chunk->set_text(absl::StrCat("<", id, ">"));
    chunk->set_numerics_id("n");
    if (request_.output().has_logprobs()) {
      v1::TokenLogprobs* const logprobs = chunk->add_logprobs();
      logprobs->set_token_id(id);
      logprobs->set_logprob(-static_cast<float>(id));
    }
    if (request_.output().has_prompt_logprobs() && next_[i] == 1) {
      for (int k = 1; k < request_.token_ids().ids_size(); ++k) {
        v1::TokenLogprobs* const logprobs = chunk->add_prompt_logprobs();
        logprobs->set_token_id(request_.token_ids().ids(k));
        logprobs->set_logprob(-1.0f);
      }
    }
    return response;
  }

  bool Write(v1::GenerateResponse response, FakeCoordinator::Writer* writer) {
    if (!std::exchange(said_start_, true)) {
      v1::Start* const start = response.mutable_start();
      start->set_seed(
          request_.sampling().has_seed() ? request_.sampling().seed() : kSeed);
      start->set_model_fingerprint("f");
      start->set_numerics_id("n");
    }
    return writer->Write(response);
  }

  const v1::GenerateRequest& request_;
  std::vector<size_t> next_;
  std::vector<bool> done_;
  bool said_start_ = false;
};

class ResumeTest : public GatewayServiceTest {
 protected:
  ResumeTest() {
    for (int i = 0; i < 2; ++i) {
      AddCoordinator([](auto*, const v1::GenerateRequest& request,
                        FakeCoordinator::Writer* writer) {
        return ResumingModel(request).Answer(writer);
      });
    }
    chat_template_ = "{% for m in messages %}{{ m.content }}{% endfor %}";
  }
  static Json Body(const Json& more = Json::object()) {
    Json body = {{"prompt", "def main"},
                 {"n", 3},
                 {"stream", true},
                 {"stream_options", {{"include_usage", true}}},
                 {"nacre", {{"resumable", true}}}};
    body.update(more);
    return body;
  }
  std::string Send(const Json& body) {
    return PostJson(
        body.contains("messages") ? "/v1/chat/completions" : "/v1/completions",
        body.dump());
  }
  // A resume of which `patch` is merged in (null removes a field) is refused.
  void ExpectRefused(const Json& patch, int status, const char* message,
                     const char* code = "null") {
    StreamSoFar so_far(3);
    const auto events = StreamSoFar::EventsOf(Send(Body()));
    for (size_t i = 0; i < 7; ++i) so_far.Add(events.at(i));
    Json body = Body();
    body["nacre"]["resume"] = so_far.Resume();
    body.merge_patch(patch);
    const std::string answer = Send(body);
    EXPECT_EQ(StatusOf(answer), status) << patch;
    EXPECT_THAT(answer, HasSubstr(message)) << patch;
    EXPECT_THAT(answer, HasSubstr(absl::StrCat("\"code\":", code))) << patch;
  }
};

// However many events have come, at another coordinator than the first.
TEST_F(ResumeTest, ACutStreamGoesOnAsTheUncutOne) {
  StartGateway();
  const Json kinds[] = {
      Json::object(),
      {{"logprobs", 0}},
      {{"echo", true}, {"logprobs", 1}},
      {{"echo", true}},
      {{"prompt", Json::array({1, 503, 2593})}},
      {{"seed", 7}},
      {{"seed", -7}},
      {{"messages", Json::array({{{"role", "user"}, {"content", "hi"}}})},
       {"logprobs", true}},
      {{"n", 1}}};
  for (const Json& kind : kinds) {
    Json body = Body(kind);
    if (body.contains("messages")) body.erase("prompt");
    const auto n = body["n"].get<size_t>();
    const auto events = StreamSoFar::EventsOf(Send(body));
    StreamSoFar uncut(n);
    for (const Json& event : events) uncut.Add(event);
    ASSERT_GT(events.size(), 4u) << body;
    int resumed = 0;
    for (size_t k = 1; k < events.size(); ++k) {
      StreamSoFar so_far(n);
      for (size_t i = 0; i < k; ++i) so_far.Add(events[i]);
      if (!so_far.has_tokens()) continue;
      body["nacre"]["resume"] = so_far.Resume();
      for (const Json& event : StreamSoFar::EventsOf(Send(body))) {
        EXPECT_EQ(event["system_fingerprint"], events[0]["system_fingerprint"]);
        so_far.Add(event);
      }
      EXPECT_EQ(so_far.Shown().dump(), uncut.Shown().dump())
          << body << " after " << k;
      ++resumed;
    }
    EXPECT_GT(resumed, 2);
  }
}

TEST_F(ResumeTest, TheFirstEventSaysWhatAResumeNeeds) {
  StartGateway();
  const auto events = StreamSoFar::EventsOf(Send(Body()));
  EXPECT_EQ(events.at(0)["nacre"].dump(),
            absl::StrCat(R"({"start":{"model_fingerprint":"f",)"
                         R"("numerics_id":"n","prompt_token_ids":[1,503,2593],)"
                         R"("seed":")",
                         kSeed, "\"}}"));
  for (size_t i = 1; i < events.size(); ++i) {
    EXPECT_FALSE(events[i].contains("nacre")) << events[i];
  }
  Json body = Body();
  body["nacre"] = nullptr;
  for (const Json& event : StreamSoFar::EventsOf(Send(body))) {
    EXPECT_FALSE(event.contains("nacre")) << event;
  }
}

// Neither prompt nor messages are read again: a template may know the time.
TEST_F(ResumeTest, ThePromptIsTheAnswers) {
  StartGateway();
  StreamSoFar so_far(3);
  const auto events = StreamSoFar::EventsOf(Send(Body()));
  for (size_t i = 0; i < 6; ++i) so_far.Add(events.at(i));
  for (const char* change :
       {R"({"prompt":"another"})", R"({"prompt":null})",
        R"({"prompt":null,"messages":[{"role":"user","content":"x"}]})"}) {
    Json body = Body();
    body["nacre"]["resume"] = so_far.Resume();
    body.merge_patch(Json::parse(change));
    ASSERT_EQ(StatusOf(Send(body)), 200) << change;
    for (const auto& coordinator : coordinators_) {
      const v1::GenerateRequest request = coordinator->request();
      EXPECT_EQ(std::vector<uint32_t>(request.token_ids().ids().begin(),
                                      request.token_ids().ids().end()),
                (std::vector<uint32_t>{1, 503, 2593}));
    }
  }
  EXPECT_EQ(coordinators_[0]->request().sampling().seed(), kSeed);
  // The last was a chat: what the context leaves.
  EXPECT_EQ(coordinators_[0]->request().stop().max_tokens() +
                coordinators_[1]->request().stop().max_tokens(),
            16u + 97u);
}

TEST_F(ResumeTest, WhatIsNoResumeIsRefused) {
  StartGateway();
  const auto in_resume = [](const char* patch) {
    return Json{{"nacre", {{"resume", Json::parse(patch)}}}};
  };
  const auto in_start = [&](const char* patch) {
    return Json{{"nacre", {{"resume", {{"start", Json::parse(patch)}}}}}};
  };
  ExpectRefused({{"nacre", {{"resume", 1}}}}, 400, "nacre.resume is 1");
  ExpectRefused(in_resume(R"({"start":null})"), 400,
                "nacre.resume.start is missing");
  ExpectRefused(in_resume(R"({"choices":null})"), 400,
                "nacre.resume.choices is missing");
  ExpectRefused(in_resume(R"({"choices":5})"), 400, "expected a list");
  ExpectRefused(in_resume(R"({"choices":[{},{},{}]})"), 400,
                "have no token: send the request anew");
  ExpectRefused(in_resume(R"({"choices":[{"token_ids":[500]}]})"), 400,
                "has 1 choices, expected n, 3");
  ExpectRefused(in_resume(R"({"choices":[{"token_ids":["x"]},{},{}]})"), 400,
                "nacre.resume.choices[0].token_ids is array of 1");
  ExpectRefused(in_resume(R"({"choices":[{"done":1},{},{}]})"), 400,
                "nacre.resume.choices[0].done is 1");
  ExpectRefused(in_resume(R"({"choices":[{"ids":[1]},{},{}]})"), 400,
                "nacre.resume.choices[0].ids is not known",
                "\"unsupported_parameter\"");
  ExpectRefused(in_resume(R"({"more":1})"), 400, "nacre.resume.more",
                "\"unsupported_parameter\"");
  ExpectRefused(in_resume(R"({"choices":[{"done":true},{"done":true},
                                         {"done":true}]})"),
                400, "all are done");
  ExpectRefused(in_resume(R"({"choices":[{"token_ids":[501]},{},{}]})"), 400,
                "other tokens");
  Json long_one = in_resume(R"({"choices":[{"token_ids":[500,501],
                                            "done":true},{},{}]})");
  long_one["max_tokens"] = 1;
  ExpectRefused(long_one, 400,
                "nacre.resume.choices[0] has 2 token ids, at most max_tokens, "
                "1");
  ExpectRefused(in_start(R"({"seed":null})"), 400, "start.seed is missing");
  ExpectRefused(in_start(R"({"seed":5})"), 400, "start.seed is 5");
  ExpectRefused(in_start(R"({"numerics_id":null})"), 400,
                "start.numerics_id is missing");
  ExpectRefused(in_start(R"({"numerics_id":""})"), 400, "start.numerics_id is");
  ExpectRefused(in_start(R"({"model_fingerprint":7})"), 400,
                "start.model_fingerprint is 7");
  ExpectRefused(in_start(R"({"prompt_token_ids":[]})"), 400,
                "start.prompt_token_ids is");
  ExpectRefused(in_start(R"({"prompt_token_ids":[-1]})"), 400,
                "start.prompt_token_ids is");
  ExpectRefused({{"seed", 6}}, 400, "seed is 6, that of the answer is");
  ExpectRefused({{"stream", false}, {"stream_options", nullptr}}, 400,
                "nacre.resume is set without stream");
  ExpectRefused({{"prompt", Json::array({"a", "b"})}}, 400,
                "nacre.resume is set with more than one prompt");
  ExpectRefused({{"nacre", {{"verification", "ratio"}}}}, 400,
                "with verification ratio");
}

// A parser of numbers would take more.
TEST_F(ResumeTest, ASeedIsTakenAsAnswersHaveIt) {
  StartGateway();
  const auto start = [](const std::string& seed) {
    return Json{{"nacre", {{"resume", {{"start", {{"seed", seed}}}}}}}};
  };
  for (const std::string seed :
       {"", " 5", "5 ", " 5 ", "\t5", "5\n", "+5", "-1", "-0", "05", "00",
        "0x5", "5.0", "5e0", "five", "18446744073709551616",
        "99999999999999999999"}) {
    const std::string shown = Json(absl::StrCat("\"", seed, "\"")).dump();
    ExpectRefused(start(seed), 400,
                  absl::StrCat("nacre.resume.start.seed is ",
                               shown.substr(1, shown.size() - 2), ", expected")
                      .c_str());
  }
  StreamSoFar so_far(3);
  const auto events = StreamSoFar::EventsOf(Send(Body()));
  for (size_t i = 0; i < 7; ++i) so_far.Add(events.at(i));
  for (const char* seed :
       {"0", "5", "9223372036854775808", "18446744073709551615"}) {
    Json body = Body();
    body["nacre"]["resume"] = so_far.Resume();
    body.merge_patch(start(seed));
    const auto rest = StreamSoFar::EventsOf(Send(body));
    ASSERT_FALSE(rest.empty()) << seed;
    EXPECT_EQ(rest[0]["nacre"]["start"]["seed"], seed);
  }
}

// Another checkpoint is served, or no target of that kind: what was not wrong
// when the stream began, and what another try will not change.
TEST_F(ResumeTest, WhatNoTargetCanGoOnWithIsAConflict) {
  StartGateway();
  ExpectRefused(
      {{"nacre", {{"resume", {{"start", {{"model_fingerprint", "g"}}}}}}}}, 409,
      "another model", "\"resume_unavailable\"");
  ExpectRefused(
      {{"nacre", {{"resume", {{"start", {{"model_fingerprint", "g"}}}}}}}}, 409,
      "X-Should-Retry: false\r\n", "\"resume_unavailable\"");
}

TEST_F(ResumeTest, OnlyAStreamOfOnePromptIsResumable) {
  StartGateway();
  for (const Json& more :
       {Json{{"stream", false}, {"stream_options", nullptr}},
        Json{{"prompt", Json::array({"a", "b"})}},
        Json{{"nacre", {{"resumable", true}, {"verification", "ratio"}}}},
        Json{{"nacre", {{"resumable", 1}}}}}) {
    const std::string answer = Send(Body(more));
    EXPECT_EQ(StatusOf(answer), 400) << more;
    EXPECT_THAT(answer, HasSubstr("nacre.resumable is ")) << more;
  }
  // At temperature 0 both rules are one.
  EXPECT_EQ(
      StatusOf(Send(
          Body({{"temperature", 0},
                {"nacre", {{"resumable", true}, {"verification", "ratio"}}}}))),
      200);
}

// A resumed call whose coordinator goes is resumed by the gateway.
TEST_F(ResumeTest, AResumedAnswerIsResumedByTheGatewayToo) {
  std::atomic<int> calls{0};
  coordinators_.clear();
  client_options_.addresses.clear();
  client_options_.poll_period = client_options_.resume_period =
      absl::Milliseconds(1);
  // From the second call on each ends after one response.
  AddCoordinator([&](auto*, const v1::GenerateRequest& request,
                     FakeCoordinator::Writer* writer) {
    if (calls++ == 0) return ResumingModel(request).Answer(writer);
    v1::GenerateResponse response;
    response.mutable_start()->set_seed(kSeed);
    response.mutable_start()->set_model_fingerprint("f");
    response.mutable_start()->set_numerics_id("n");
    for (int i = 0; i < request.resume().choices_size(); ++i) {
      const v1::Resume::Choice& choice = request.resume().choices(i);
      if (choice.done()) continue;
      const auto index = static_cast<uint32_t>(i);
      const auto next = static_cast<size_t>(choice.token_ids_size());
      response.set_index(index);
      if (next == LengthOf(index)) {
        response.mutable_complete()->set_finish_reason(v1::FINISH_REASON_STOP);
        response.mutable_complete()->set_numerics_id("n");
        v1::Usage* const usage = response.mutable_complete()->mutable_usage();
        usage->set_prompt_tokens(3);
        usage->set_completion_tokens(static_cast<uint32_t>(next));
      } else {
        const uint32_t id = TokenOf(index, next);
        response.mutable_chunk()->set_first_index(static_cast<uint32_t>(next));
        response.mutable_chunk()->add_token_ids(id);
        response.mutable_chunk()->set_text(absl::StrCat("<", id, ">"));
      }
      writer->Write(response);
      break;
    }
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone");
  });
  StartGateway();
  const auto events = StreamSoFar::EventsOf(Send(Body()));
  StreamSoFar uncut(3);
  for (const Json& event : events) uncut.Add(event);
  StreamSoFar so_far(3);
  for (size_t i = 0; i < 10; ++i) so_far.Add(events.at(i));
  Json body = Body();
  body["nacre"]["resume"] = so_far.Resume();
  for (const Json& event : StreamSoFar::EventsOf(Send(body))) {
    so_far.Add(event);
  }
  EXPECT_EQ(so_far.Shown().dump(), uncut.Shown().dump());
  EXPECT_GT(calls, 3);
}

// The model was rolled while the answer ran: its client learns that, and that
// the request may be sent anew.
TEST_F(GatewayServiceTest, ACutAnswerWhoseModelIsGoneEndsWithThatReason) {
  client_options_.poll_period = client_options_.resume_period =
      absl::Milliseconds(1);
  AddCoordinator([](auto*, const v1::GenerateRequest& request, auto* writer) {
    if (request.has_resume()) {
      EXPECT_EQ(request.resume().model_fingerprint(), "f");
      return rpc::ToGrpcStatus(
          WithField(absl::FailedPreconditionError(
                        "resume: the answer is of a model with fingerprint "
                        "\"f\", the served one has \"g\""),
                    "resume.model_fingerprint"));
    }
    v1::GenerateResponse response = FakeCoordinator::Chunk("x", 0);
    response.mutable_start()->set_seed(5);
    response.mutable_start()->set_model_fingerprint("f");
    response.mutable_start()->set_numerics_id("n");
    writer->Write(response);
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone");
  });
  StartGateway();
  const char* const message =
      "the answer was cut off and cannot go on: the answer is of a model with "
      "fingerprint \"f\", the served one has \"g\"";
  const std::string whole = PostJson("/v1/completions", R"({"prompt":"a"})");
  EXPECT_EQ(StatusOf(whole), 503) << whole;
  EXPECT_THAT(whole, AllOf(HasSubstr("Retry-After: 1\r\n"),
                           Not(HasSubstr("X-Should-Retry"))));
  const std::vector<std::string> events =
      Events(R"({"prompt":"a","stream":true})");
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(JsonOf(events[0])["choices"][0]["text"], "x");
  EXPECT_EQ(events[2], "data: [DONE]");
  for (const std::string& told : {BodyOf(whole), events[1]}) {
    const OrderedJson error = JsonOf(told)["error"];
    EXPECT_EQ(error["code"], "model_changed");
    EXPECT_EQ(error["type"], "server_error");
    EXPECT_EQ(error["message"], message);
    EXPECT_TRUE(error["param"].is_null());
  }
}

}  // namespace
}  // namespace nacre::gateway
