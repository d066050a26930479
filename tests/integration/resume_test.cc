// An answer that was cut off goes on, on another service of the same models, as
// if it had not been cut: tokens, text, log-probabilities and how it ends.

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/channel.h"
#include "tests/integration/service_fixture.h"

namespace nacre::integration {
namespace {

constexpr uint32_t kChoices = 3;

// One choice as its client has it.
struct Received {
  std::vector<uint32_t> ids;
  std::vector<std::string> logprobs;  // of each token, as bytes
  std::string text;
  std::vector<size_t> shown;  // [k]: bytes of text that came with k tokens
  absl::optional<v1::Complete> complete;
};

struct Outcome {
  v1::Start start;
  std::vector<Received> choices{kChoices};
  grpc::Status status;
};

template <typename Repeated>
std::vector<std::string> BytesOf(const Repeated& messages) {
  std::vector<std::string> bytes;
  for (const auto& message : messages) {
    bytes.push_back(message.SerializeAsString());
  }
  return bytes;
}

void Add(const v1::Chunk& chunk, Received* received) {
  received->ids.insert(received->ids.end(), chunk.token_ids().begin(),
                       chunk.token_ids().end());
  for (const std::string& bytes : BytesOf(chunk.logprobs())) {
    received->logprobs.push_back(bytes);
  }
  received->text += chunk.text();
  received->shown.resize(received->ids.size() + 1, std::string::npos);
  received->shown[0] = 0;
  received->shown.back() = received->text.size();
}

// Reads until the call ends. `on_chunk` runs after each chunk.
Outcome Call(
    Service& service, const v1::GenerateRequest& request,
    const std::function<void(const Outcome&)>& on_chunk = [](const Outcome&) {
    }) {
  const auto inference =
      v1::Inference::NewStub(rpc::CreateChannel(service.cluster().address()));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kCallTimeout));
  const auto reader = inference->Generate(&context, request);
  Outcome outcome;
  v1::GenerateResponse response;
  for (bool first = true; reader->Read(&response); first = false) {
    EXPECT_EQ(response.has_start(), first);
    if (response.has_start()) outcome.start = response.start();
    Received& received = outcome.choices.at(response.index());
    if (response.has_complete()) received.complete = response.complete();
    if (!response.has_chunk()) continue;
    Add(response.chunk(), &received);
    on_chunk(outcome);
  }
  outcome.status = reader->Finish();
  return outcome;
}

struct Setting {
  const char* name;
  float temperature = 0.0f;
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  uint32_t min_tokens = 0;
  bool has_stop = false;  // a string of the middle of an answer
};

v1::GenerateRequest NewRequest(const Setting& setting, v1::Method method,
                               uint32_t max_tokens) {
  v1::GenerateRequest request = Request(
      "Question: A baker makes 12 loaves and sells 7 of them. How many are "
      "left?\nAnswer:",
      method, static_cast<int>(max_tokens));
  request.set_n(kChoices);
  request.mutable_output()->set_stream(true);
  request.mutable_output()->set_logprobs(2);
  request.mutable_stop()->set_min_tokens(setting.min_tokens);
  v1::SamplingParams* sampling = request.mutable_sampling();
  sampling->set_temperature(setting.temperature);
  sampling->set_repetition_penalty(setting.repetition_penalty);
  sampling->set_presence_penalty(setting.presence_penalty);
  sampling->set_seed(20250101);
  return request;
}

v1::GenerateRequest ResumeOf(v1::GenerateRequest request,
                             const v1::Start& start) {
  *request.mutable_token_ids()->mutable_ids() = start.prompt_token_ids();
  request.mutable_sampling()->set_seed(start.seed());
  request.mutable_resume()->set_model_fingerprint(start.model_fingerprint());
  request.mutable_resume()->set_numerics_id(start.numerics_id());
  return request;
}

// The parts of a Complete that do not depend on speed.
std::string WithoutSpeed(v1::Complete complete) {
  complete.clear_timing();
  complete.clear_speculation();
  complete.clear_logprobs();
  complete.clear_first_index();
  complete.mutable_usage()->clear_cached_tokens();
  return complete.SerializeAsString();
}

class ResumeTest : public ::testing::Test {
 protected:
  // The answer of ar, whose chunks are of one token, with a stop string that it
  // meets if the setting wants one.
  Outcome Uncut(const Setting& setting, v1::GenerateRequest* request) {
    *request = NewRequest(setting, v1::METHOD_AR, kMaxTokens);
    Outcome uncut = Call(first_, *request);
    if (!setting.has_stop) return uncut;
    const std::string text = uncut.choices[1].complete->text();
    request->mutable_stop()->add_stop(text.substr(text.size() / 2, 9));
    request->mutable_stop()->add_stop(text.substr(text.size() / 2, 6) + "~~");
    return Call(first_, *request);
  }

  // All choices were cut after `cut` tokens, in turn with and without the
  // Complete of those that had ended.
  void CheckCut(const v1::GenerateRequest& request, const Outcome& uncut,
                size_t cut) {
    v1::GenerateRequest resumed = ResumeOf(request, uncut.start);
    bool all_done = true;
    std::vector<size_t> have;
    for (uint32_t i = 0; i < kChoices; ++i) {
      const std::vector<uint32_t>& ids = uncut.choices[i].ids;
      have.push_back(std::min(cut, ids.size()));
      v1::Resume::Choice* choice = resumed.mutable_resume()->add_choices();
      for (size_t k = 0; k < have[i]; ++k) choice->add_token_ids(ids[k]);
      choice->set_done(have[i] == ids.size() && (cut + i) % 2 == 0);
      all_done = all_done && choice->done();
    }
    if (all_done) return;
    const Outcome outcome = Call(second_, resumed);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.error_message();
    EXPECT_EQ(outcome.start.SerializeAsString(),
              uncut.start.SerializeAsString());
    for (uint32_t i = 0; i < kChoices; ++i) {
      SCOPED_TRACE(absl::StrCat("choice ", i));
      if (resumed.resume().choices(i).done()) {
        EXPECT_FALSE(outcome.choices[i].complete.has_value());
        continue;
      }
      CheckRest(uncut.choices[i], have[i], outcome.choices[i]);
    }
  }

  static void CheckRest(const Received& uncut, size_t have,
                        const Received& rest) {
    EXPECT_EQ(rest.ids,
              std::vector<uint32_t>(uncut.ids.begin() + have, uncut.ids.end()));
    EXPECT_EQ(rest.text, uncut.text.substr(uncut.shown.at(have)));
    const std::vector<std::string> logprobs(uncut.logprobs.begin() + have,
                                            uncut.logprobs.end());
    EXPECT_EQ(rest.logprobs, logprobs);
    ASSERT_TRUE(rest.complete.has_value());
    EXPECT_EQ(WithoutSpeed(*rest.complete), WithoutSpeed(*uncut.complete));
    EXPECT_EQ(rest.complete->first_index(), have);
    EXPECT_EQ(BytesOf(rest.complete->logprobs()), logprobs);
    EXPECT_EQ(rest.complete->speculation().committed(),
              uncut.ids.size() - have);
  }

  static constexpr uint32_t kMaxTokens = 20;
  Service first_;
  Service second_;
};

TEST_F(ResumeTest, EveryMethodGoesOnFromEveryToken) {
  const std::vector<Setting> settings = {
      {.name = "greedy"},
      {.name = "T1", .temperature = 1.0f},
      {.name = "greedy, penalties, stop",
       .repetition_penalty = 1.2f,
       .has_stop = true},
      {.name = "T1, penalties, stop, min_tokens",
       .temperature = 1.0f,
       .repetition_penalty = 1.1f,
       .presence_penalty = 0.5f,
       .min_tokens = 4,
       .has_stop = true}};
  int stops = 0;
  for (const Setting& setting : settings) {
    SCOPED_TRACE(setting.name);
    v1::GenerateRequest request;
    const Outcome uncut = Uncut(setting, &request);
    ASSERT_TRUE(uncut.status.ok()) << uncut.status.error_message();
    for (const Received& choice : uncut.choices) {
      if (!choice.complete->stop_match().empty()) ++stops;
    }
    for (const v1::Method method :
         {v1::METHOD_AR, v1::METHOD_SD, v1::METHOD_PEARL, v1::METHOD_ASYNC}) {
      request.mutable_speculation()->set_method(method);
      for (size_t cut = 0; cut <= kMaxTokens; ++cut) {
        SCOPED_TRACE(absl::StrCat(v1::Method_Name(method), " cut at ", cut));
        CheckCut(request, uncut, cut);
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GT(stops, 1);
  EXPECT_TRUE(second_.KvReturnsToEmpty());
}

// The client sees what it would have seen without the coordinator's death.
TEST_F(ResumeTest, AnotherCoordinatorGoesOnWhereOneDied) {
  constexpr uint32_t kLong = 400;
  const Setting setting = {
      .name = "T1", .temperature = 1.0f, .repetition_penalty = 1.1f};
  v1::GenerateRequest request = NewRequest(setting, v1::METHOD_ASYNC, kLong);
  request.mutable_stop()->set_ignore_eos(true);
  const Outcome uncut = Call(second_, request);
  ASSERT_TRUE(uncut.status.ok()) << uncut.status.error_message();
  bool killed = false;
  const Outcome cut = Call(first_, request, [&](const Outcome& outcome) {
    if (killed || outcome.choices[1].ids.size() < 50) return;
    const pid_t pid = first_.cluster().supervisor().PidOf("coordinator");
    killed = pid > 0 && kill(pid, SIGKILL) == 0;
  });
  ASSERT_TRUE(killed);
  EXPECT_EQ(cut.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  v1::GenerateRequest resumed = ResumeOf(request, cut.start);
  for (const Received& received : cut.choices) {
    v1::Resume::Choice* choice = resumed.mutable_resume()->add_choices();
    choice->mutable_token_ids()->Add(received.ids.begin(), received.ids.end());
    EXPECT_LT(received.ids.size(), kLong);
  }
  const Outcome rest = Call(second_, resumed);
  ASSERT_TRUE(rest.status.ok()) << rest.status.error_message();
  for (uint32_t i = 0; i < kChoices; ++i) {
    std::vector<uint32_t> ids = cut.choices[i].ids;
    ids.insert(ids.end(), rest.choices[i].ids.begin(),
               rest.choices[i].ids.end());
    EXPECT_EQ(ids, uncut.choices[i].ids);
    EXPECT_EQ(cut.choices[i].text + rest.choices[i].text,
              uncut.choices[i].text);
    EXPECT_EQ(WithoutSpeed(*rest.choices[i].complete),
              WithoutSpeed(*uncut.choices[i].complete));
  }
  EXPECT_TRUE(second_.KvReturnsToEmpty());
}

}  // namespace
}  // namespace nacre::integration
