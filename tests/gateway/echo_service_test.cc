// The prompt alone: echo with max_tokens 0.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/gateway/gateway_fixture.h"

namespace nacre::gateway {
namespace {

class EchoServiceTest : public GatewayServiceTest {
 protected:
  // One token comes, which ends the answer; with what is asked for of the
  // prompt's tokens but the first.
  EchoServiceTest() {
    AddCoordinator([](auto*, const v1::GenerateRequest& request, auto* writer) {
      v1::GenerateResponse chunk = FakeCoordinator::Chunk("new", 0);
      v1::GenerateResponse complete = FakeCoordinator::Complete("new", 0);
      const auto describe = [&](auto* answer) {
        if (!request.output().has_prompt_logprobs()) return;
        for (int i = 1; i < request.token_ids().ids_size(); ++i) {
          v1::TokenLogprobs* const token = answer->add_prompt_logprobs();
          token->set_token_id(request.token_ids().ids(i));
          token->set_logprob(-0.5f);
        }
        v1::TokenLogprobs* const token = answer->add_logprobs();
        token->set_token_id(300);
        token->set_logprob(-0.25f);
      };
      describe(complete.mutable_complete());
      if (request.output().stream()) {
        describe(chunk.mutable_chunk());
        writer->Write(chunk);
      }
      writer->Write(complete);
      return grpc::Status::OK;
    });
    StartGateway();
  }
};

TEST_F(EchoServiceTest, HasThePromptAndItsLogprobsOnly) {
  const std::string answer =
      PostJson("/v1/completions",
               R"({"prompt":"a b","echo":true,"logprobs":0,"max_tokens":0,
          "return_token_ids":true})");
  ASSERT_EQ(StatusOf(answer), 200) << answer;
  const OrderedJson body = JsonOf(BodyOf(answer));
  const OrderedJson& choice = body["choices"][0];
  EXPECT_EQ(choice["text"], "a b");
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["stop_reason"], nullptr);
  EXPECT_EQ(choice["token_ids"].size(), 0u);
  const size_t prompt = choice["prompt_token_ids"].size();
  EXPECT_EQ(choice["logprobs"]["tokens"].size(), prompt);
  EXPECT_EQ(choice["logprobs"]["token_logprobs"][0], nullptr);
  EXPECT_EQ(choice["logprobs"]["token_logprobs"][prompt - 1], -0.5);
  EXPECT_EQ(body["usage"]["completion_tokens"], 0);
  EXPECT_EQ(coordinators_[0]->request().stop().max_tokens(), 1u);
}

TEST_F(EchoServiceTest, StreamsThePromptOnly) {
  for (const char* logprobs : {"null", "0"}) {
    std::string text;
    size_t tokens = 0;
    for (const std::string& event : Events(absl::StrCat(
             R"({"prompt":"a b","echo":true,"max_tokens":0,"stream":true,
                 "logprobs":)",
             logprobs, "}"))) {
      if (event == "data: [DONE]") continue;
      const OrderedJson choice = JsonOf(event)["choices"][0];
      text += choice["text"].get<std::string>();
      if (choice["logprobs"].is_object()) {
        tokens += choice["logprobs"]["tokens"].size();
      }
    }
    EXPECT_EQ(text, "a b");
    EXPECT_EQ(tokens > 0, std::string(logprobs) == "0");
  }
}

}  // namespace
}  // namespace nacre::gateway
