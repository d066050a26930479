// How long the answer of a chat may become whose request does not say.

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/gateway/gateway_fixture.h"

namespace nacre::gateway {
namespace {

// The coordinator's model has a context of 100.
class ChatLimitTest : public GatewayServiceTest {
 protected:
  ChatLimitTest() {
    chat_template_ = "{% for m in messages %}{{ m.content }}{% endfor %}";
    AddCoordinator([](auto*, const auto&, auto* writer) {
      writer->Write(FakeCoordinator::Complete("t", 0));
      return grpc::Status::OK;
    });
  }

  // What the service is asked for beyond the prompt.
  uint32_t AskedFor(const std::string& fields = "") {
    const std::string answer = PostJson(
        "/v1/chat/completions",
        absl::StrCat(R"({"messages":[{"role":"user","content":"a b c"}])",
                     fields, "}"));
    EXPECT_EQ(StatusOf(answer), 200) << answer;
    return coordinators_[0]->request().stop().max_tokens();
  }
  uint32_t prompt_tokens() {
    return static_cast<uint32_t>(
        coordinators_[0]->request().token_ids().ids_size());
  }
};

TEST_F(ChatLimitTest, IsWhatTheContextLeaves) {
  StartGateway();
  const uint32_t asked = AskedFor();
  EXPECT_EQ(asked, 100 - prompt_tokens());
}

TEST_F(ChatLimitTest, IsWhatTheLargestTargetHasKvFor) {
  coordinators_[0]->SetKvCapacity(64);
  StartGateway();
  const uint32_t asked = AskedFor();
  EXPECT_EQ(asked, 64 - prompt_tokens());
  EXPECT_EQ(AskedFor(R"(,"max_tokens":70)"), 70u) << "the client said so";
}

// Whichever coordinator answered last: the request may go to any of them.
TEST_F(ChatLimitTest, IsWhatEachCoordinatorHasKvFor) {
  AddCoordinator([](auto*, const auto&, auto*) { return grpc::Status::OK; });
  coordinators_[0]->SetKvCapacity(64);
  coordinators_[1]->SetKvCapacity(48);
  StartGateway();
  const uint32_t asked = AskedFor();
  EXPECT_EQ(asked, 48 - prompt_tokens());
}

TEST_F(ChatLimitTest, IsForEachChoiceItsPartOfTheKv) {
  coordinators_[0]->SetKvCapacity(64);
  StartGateway();
  PostJson("/v1/chat/completions",
           R"({"messages":[{"role":"user","content":"a b c"}],"n":2})");
  EXPECT_EQ(coordinators_[0]->request().stop().max_tokens(),
            32 - prompt_tokens());
}

TEST_F(ChatLimitTest, IsWhatTheOperatorSays) {
  options_.default_max_tokens = 20;
  coordinators_[0]->SetKvCapacity(64);
  StartGateway();
  EXPECT_EQ(AskedFor(), 20u);
  EXPECT_EQ(AskedFor(R"(,"min_tokens":30)"), 30u);
  // The service says that it has no KV for them.
  EXPECT_EQ(AskedFor(R"(,"min_tokens":90)"), 90u);
  EXPECT_EQ(AskedFor(R"(,"max_completion_tokens":5)"), 5u);
}

// Nothing is left: the service says so.
TEST_F(ChatLimitTest, APromptThatFillsTheKvAsksForTheContext) {
  coordinators_[0]->SetKvCapacity(1);
  StartGateway();
  const uint32_t asked = AskedFor();
  EXPECT_EQ(asked, 100 - prompt_tokens());
}

}  // namespace
}  // namespace nacre::gateway
