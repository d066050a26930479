// What the target says of a prompt's tokens is what it says of the same tokens
// when it generates them, bit for bit.

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/integration/streams.h"

namespace nacre::integration {
namespace {

constexpr char kPrompt[] =
    "Question: A baker makes 12 loaves and sells 7 of them. How many are "
    "left?\nAnswer:";
constexpr int kTop = 4;

std::vector<std::string> Lines(
    const google::protobuf::RepeatedPtrField<v1::TokenLogprobs>& tokens) {
  std::vector<std::string> lines;
  for (const v1::TokenLogprobs& token : tokens) {
    lines.push_back(token.SerializeAsString());
  }
  return lines;
}

// Of a long text: its ids and, of those that were generated, what was said.
struct Text {
  std::vector<uint32_t> ids;
  size_t prompt_length = 0;
  std::vector<std::string> generated;
};

Text Generated(Service& service, int tokens) {
  v1::GenerateRequest request = Request(kPrompt, v1::METHOD_AR, tokens);
  request.mutable_stop()->set_ignore_eos(true);
  request.mutable_sampling()->set_temperature(0.9f);
  request.mutable_sampling()->set_seed(3);
  request.mutable_output()->set_logprobs(kTop);
  const auto complete = service.Generate(request);
  EXPECT_TRUE(complete.ok()) << complete.status();
  Text text;
  text.ids.assign(complete->prompt_token_ids().begin(),
                  complete->prompt_token_ids().end());
  text.prompt_length = text.ids.size();
  text.ids.insert(text.ids.end(), complete->token_ids().begin(),
                  complete->token_ids().end());
  text.generated = Lines(complete->logprobs());
  return text;
}

v1::GenerateRequest ScoringRequest(const Text& text, v1::Method method) {
  v1::GenerateRequest request = Request("", method, 1);
  request.mutable_token_ids()->mutable_ids()->Assign(text.ids.begin(),
                                                     text.ids.end());
  request.mutable_output()->set_prompt_logprobs(kTop);
  return request;
}

void ExpectScored(
    const Text& text,
    const google::protobuf::RepeatedPtrField<v1::TokenLogprobs>& scores) {
  ASSERT_EQ(static_cast<size_t>(scores.size()), text.ids.size() - 1);
  for (size_t i = 1; i < text.ids.size(); ++i) {
    EXPECT_EQ(scores[static_cast<int>(i - 1)].token_id(), text.ids[i]);
  }
  std::vector<std::string> lines = Lines(scores);
  lines.erase(lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(
                                                 text.prompt_length - 1));
  EXPECT_EQ(lines, text.generated);
}

TEST(PromptLogprobsTest, AreThoseOfDecodingForEveryMethodAndCacheState) {
  Service service;
  const Text text = Generated(service, 300);
  for (const v1::Method method :
       {v1::METHOD_AR, v1::METHOD_SD, v1::METHOD_PEARL, v1::METHOD_ASYNC}) {
    const auto complete = service.Generate(ScoringRequest(text, method));
    ASSERT_TRUE(complete.ok()) << complete.status();
    ExpectScored(text, complete->prompt_logprobs());
    // Whatever is cached, the rows were computed.
    EXPECT_EQ(complete->usage().cached_tokens(), 0u);
  }
  // Others find what these have computed.
  v1::GenerateRequest plain = ScoringRequest(text, v1::METHOD_AR);
  plain.mutable_output()->clear_prompt_logprobs();
  const auto cached = service.Generate(plain);
  ASSERT_TRUE(cached.ok()) << cached.status();
  EXPECT_GT(cached->usage().cached_tokens(), 0u);
  EXPECT_EQ(cached->prompt_logprobs_size(), 0);
}

TEST(PromptLogprobsTest, StreamsTellThemOnceInEachChoicesFirstChunk) {
  Service service;
  const Text text = Generated(service, 150);
  v1::GenerateRequest request = ScoringRequest(text, v1::METHOD_ASYNC);
  request.mutable_stop()->set_max_tokens(20);
  request.mutable_stop()->set_ignore_eos(true);
  request.mutable_output()->set_stream(true);
  request.mutable_output()->set_omit_streamed(true);
  request.set_n(3);
  std::vector<int> told(3);
  const auto choices = service.client().GenerateChoices(
      request, kCallTimeout, [&](uint32_t index, const v1::Chunk& chunk) {
        if (chunk.prompt_logprobs_size() == 0) return;
        EXPECT_EQ(chunk.first_index(), 0u);
        ++told[index];
        ExpectScored(text, chunk.prompt_logprobs());
      });
  ASSERT_TRUE(choices.ok()) << choices.status();
  EXPECT_EQ(told, std::vector<int>({1, 1, 1}));
  for (const v1::Complete& complete : *choices) {
    EXPECT_EQ(complete.prompt_logprobs_size(), 0);
  }
}

// Whenever the target dies: before the prompt, within it or after it.
TEST(PromptLogprobsTest, AKilledTargetLosesNone) {
  Service service;
  const Text text = Generated(service, 1500);
  v1::GenerateRequest request = ScoringRequest(text, v1::METHOD_ASYNC);
  request.mutable_stop()->set_max_tokens(30);
  request.mutable_stop()->set_ignore_eos(true);
  const auto expected = service.Generate(request);
  ASSERT_TRUE(expected.ok()) << expected.status();
  absl::StatusOr<v1::Complete> complete = absl::UnknownError("");
  std::atomic<bool> has_ended = false;
  std::thread caller([&] {
    complete = service.Generate(request);
    has_ended = true;
  });
  EXPECT_TRUE(Service::Eventually([&] {
    for (const v1::WorkerInfo& worker : service.Workers()) {
      if (worker.hello().role() == v1::WORKER_ROLE_TARGET &&
          worker.sessions() > 0) {
        return true;
      }
    }
    return has_ended.load();
  }));
  const pid_t target = service.cluster().supervisor().PidOf("target-0");
  EXPECT_EQ(kill(target, SIGKILL), 0);
  caller.join();
  ASSERT_TRUE(complete.ok()) << complete.status();
  ExpectScored(text, complete->prompt_logprobs());
  EXPECT_EQ(Ids(*complete), Ids(*expected));
}

}  // namespace
}  // namespace nacre::integration
