// The ratio test through the real processes: three sampled tokens follow the
// target's own law with every method, also while drafts die; at temperature 0
// the answer is ar's; what it refuses.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <cmath>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/integration/call.h"
#include "tests/integration/service_fixture.h"
#include "tests/testing/chi_square.h"

namespace nacre::integration {
namespace {

using testing::ChiSquareDeviation;
using testing::kCriticalDeviation;

constexpr int kTopK = 3;
constexpr int kTokens = 3;
constexpr int kCells = 3 * 3 * 3;
constexpr int kChoices = 16;
constexpr int kCalls = 80;
constexpr float kTemperature = 1.4f;  // more than one token is likely

using Ids = std::vector<uint32_t>;

v1::GenerateRequest Ask(const Ids& prompt, v1::Method method) {
  v1::GenerateRequest request;
  for (const uint32_t id : prompt) request.mutable_token_ids()->add_ids(id);
  request.mutable_stop()->set_max_tokens(kTokens);
  request.mutable_stop()->set_ignore_eos(true);
  request.mutable_sampling()->set_temperature(kTemperature);
  request.mutable_sampling()->set_top_k(kTopK);
  request.mutable_speculation()->set_method(method);
  request.mutable_speculation()->set_window(2);
  request.mutable_speculation()->set_verification(v1::VERIFICATION_RATIO);
  return request;
}

// What the target draws from after `prompt`: (id, probability), kTopK of them.
std::vector<std::pair<uint32_t, double>> LawBehind(Service& service,
                                                   const Ids& prompt) {
  v1::GenerateRequest request = Ask(prompt, v1::METHOD_AR);
  request.mutable_stop()->set_max_tokens(1);
  request.mutable_sampling()->set_temperature(0.0f);
  request.mutable_output()->set_logprobs(kTopK);
  const auto complete = service.Generate(request);
  EXPECT_TRUE(complete.ok()) << complete.status();
  std::vector<std::pair<uint32_t, double>> law;
  double sum = 0;
  for (int i = 0; i < kTopK; ++i) {
    const double weight =
        std::exp(complete->logprobs(0).top_logprobs(i) / kTemperature);
    law.emplace_back(complete->logprobs(0).top_ids(i), weight);
    sum += weight;
  }
  for (auto& [id, weight] : law) weight /= sum;
  return law;
}

class Law {
 public:
  Law(Service& service, Ids prompt) : exact_(kCells, 0.0) {
    Fill(service, prompt, 1.0, {});
  }
  int CellOf(const Ids& tokens) const {
    const auto found = cells_.find(tokens);
    return found == cells_.end() ? -1 : found->second;
  }
  const std::vector<double>& exact() const { return exact_; }

 private:
  void Fill(Service& service, Ids& prompt, double probability, Ids tokens) {
    if (static_cast<int>(tokens.size()) == kTokens) {
      const int cell = static_cast<int>(cells_.size());
      cells_[tokens] = cell;
      exact_[static_cast<size_t>(cell)] = probability;
      return;
    }
    for (const auto& [id, p] : LawBehind(service, prompt)) {
      prompt.push_back(id);
      tokens.push_back(id);
      Fill(service, prompt, probability * p, tokens);
      prompt.pop_back();
      tokens.pop_back();
    }
  }

  std::map<Ids, int> cells_;
  std::vector<double> exact_;
};

Ids PromptIds(Service& service) {
  v1::GenerateRequest request =
      Request(LoadPrompts("gsm8k_100.jsonl", 1)[0].text, v1::METHOD_AR, 1);
  const auto complete = service.Generate(request);
  EXPECT_TRUE(complete.ok()) << complete.status();
  return {complete->prompt_token_ids().begin(),
          complete->prompt_token_ids().end()};
}

struct Counts {
  std::vector<int> cells = std::vector<int>(kCells, 0);
  uint64_t verified = 0;
  uint64_t accepted = 0;
};

// kCalls calls of kChoices seeds each.
Counts Sample(Service& service, const Ids& prompt, const Law& law,
              v1::Method method, uint64_t seed) {
  Counts counts;
  const auto stub =
      v1::Inference::NewStub(rpc::CreateChannel(service.cluster().address()));
  for (int call = 0; call < kCalls; ++call) {
    v1::GenerateRequest request = Ask(prompt, method);
    request.set_n(kChoices);
    request.mutable_sampling()->set_seed(seed);
    seed += kChoices;
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kCallTimeout));
    const auto reader = stub->Generate(&context, request);
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
      if (!response.has_complete()) continue;
      const v1::Complete& complete = response.complete();
      EXPECT_EQ(complete.speculation().verification(), v1::VERIFICATION_RATIO);
      const int cell = law.CellOf(
          {complete.token_ids().begin(), complete.token_ids().end()});
      EXPECT_GE(cell, 0) << "a token outside the top " << kTopK;
      if (cell >= 0) ++counts.cells[static_cast<size_t>(cell)];
      counts.verified += complete.speculation().verified();
      counts.accepted += complete.speculation().accepted();
    }
    const grpc::Status status = reader->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  return counts;
}

TEST(RatioServiceTest, FollowsTheTargetsLaw) {
  Service service(/*drafts=*/2);
  const Ids prompt = PromptIds(service);
  const Law law(service, prompt);
  for (const v1::Method method :
       {v1::METHOD_SD, v1::METHOD_PEARL, v1::METHOD_ASYNC}) {
    const Counts counts = Sample(service, prompt, law, method,
                                 1000 * static_cast<uint64_t>(method));
    EXPECT_LT(ChiSquareDeviation(law.exact(), counts.cells), kCriticalDeviation)
        << v1::Method_Name(method);
    EXPECT_GT(counts.accepted, uint64_t{kCalls}) << v1::Method_Name(method);
    EXPECT_LT(counts.accepted, counts.verified) << v1::Method_Name(method);
  }
}

TEST(RatioServiceTest, FollowsItWhileDraftsDie) {
  Service service(/*drafts=*/2);
  const Ids prompt = PromptIds(service);
  const Law law(service, prompt);
  std::atomic<bool> done = false;
  std::thread killer([&] {
    // One of the two, as soon as both are there.
    while (!done) {
      Service::Eventually(
          [&] { return done || service.Workers().size() == 3; });
      const pid_t pid = service.cluster().supervisor().PidOf("draft-0");
      if (pid > 0) kill(pid, SIGKILL);
      Service::Eventually([&] { return done || service.Workers().size() < 3; });
    }
  });
  const Counts counts = Sample(service, prompt, law, v1::METHOD_PEARL, 50000);
  done = true;
  killer.join();
  EXPECT_LT(ChiSquareDeviation(law.exact(), counts.cells), kCriticalDeviation);
}

TEST(RatioServiceTest, IsGreedyAtTemperatureZero) {
  Service service;
  const Ids prompt = PromptIds(service);
  v1::GenerateRequest request = Ask(prompt, v1::METHOD_AR);
  request.mutable_stop()->set_max_tokens(40);
  request.mutable_sampling()->set_temperature(0.0f);
  const auto ar = service.Generate(request);
  ASSERT_TRUE(ar.ok()) << ar.status();
  for (const v1::Method method :
       {v1::METHOD_SD, v1::METHOD_PEARL, v1::METHOD_ASYNC}) {
    request.mutable_speculation()->set_method(method);
    request.mutable_speculation()->set_policy("confidence");
    const auto complete = service.Generate(request);
    ASSERT_TRUE(complete.ok()) << complete.status();
    EXPECT_EQ(Ids(complete->token_ids().begin(), complete->token_ids().end()),
              Ids(ar->token_ids().begin(), ar->token_ids().end()));
    EXPECT_EQ(complete->speculation().verification(), v1::VERIFICATION_EXACT);
  }
  request.mutable_sampling()->set_temperature(0.7f);
  const auto refused = service.Generate(request);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()),
              ::testing::HasSubstr("looks at the tokens drawn"));
}

}  // namespace
}  // namespace nacre::integration
