// What `nacre bench --match-trace` records through the real processes, ranks
// and scores included, is what the draft says when each prefix of the answer is
// put before it, computed here without any service.

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "model/load_model.h"
#include "model/model_backend.h"
#include "model/sampler.h"
#include "speculation/ranks.h"
#include "tests/integration/service_fixture.h"
#include "tools/bench/bench_matches.h"

namespace nacre::integration {
namespace {

using simulation::MatchTrace;

constexpr int kMaxTokens = 96;
constexpr int kPrompts = 6;

// The draft alone, fed what the target said.
class DraftAlone {
 public:
  DraftAlone() {
    auto backend = model::CreateBackendFor(DraftModel(), {});
    EXPECT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
    auto model = model::LoadModel(DraftModel(), backend_.get(), {});
    EXPECT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }

  MatchTrace Matches(const v1::Complete& answer,
                     const SamplingParams& sampling) {
    const int prompt_length = answer.prompt_token_ids_size();
    auto sequence =
        model_->NewSequence(prompt_length + answer.token_ids_size());
    EXPECT_TRUE(sequence.ok()) << sequence.status();
    model::Sampler sampler(sampling, model_->info().vocab_size);
    model::TokenHistory history(prompt_length);
    std::vector<int32_t> fed(answer.prompt_token_ids().begin(),
                             answer.prompt_token_ids().end());
    for (const int32_t id : fed) history.Push(id);
    MatchTrace matches;
    for (const uint32_t id : answer.token_ids()) {
      const auto logits = model_->Forward({{{sequence->get(), fed, 1}}});
      EXPECT_TRUE(logits.ok()) << logits.status();
      const int32_t target_id = static_cast<int32_t>(id);
      std::array<model::ScoredToken, speculation::kRanks> best;
      const int count = sampler.Rank(*logits, history.length(), history,
                                     absl::MakeSpan(best));
      simulation::Guess& guess = matches.emplace_back(false);
      for (int i = 0; i < count; ++i) {
        guess.scores.push_back(
            std::round((best[i].score - best[0].score) * 1000.0f) / 1000.0f);
        if (best[i].token_id == target_id) guess.rank = i + 1;
      }
      history.Push(target_id);
      fed = {target_id};
    }
    return matches;
  }

 private:
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<model::LanguageModel> model_;
};

class MatchTraceTest : public ::testing::TestWithParam<float> {};

TEST_P(MatchTraceTest, IsWhatTheDraftAloneWouldSay) {
  const SamplingParams sampling = {.temperature = GetParam(), .seed = 5};
  Service service;
  tools::BenchPlan plan;
  plan.prompts = LoadPrompts("gsm8k_100.jsonl", kPrompts);
  plan.methods = *tools::ParseBenchMethods("async", std::nullopt);
  plan.request.mutable_stop()->set_max_tokens(kMaxTokens);
  plan.request.mutable_sampling()->set_temperature(sampling.temperature);
  plan.request.mutable_sampling()->set_seed(sampling.seed);
  const auto ignore = [](const std::string&) {};
  const auto result = tools::RunBench(plan, &service.client(), ignore);
  ASSERT_TRUE(result.ok()) << result.status();
  const auto recorded =
      tools::RecordMatches(plan, *result, 0, &service.client(), ignore);
  ASSERT_TRUE(recorded.ok()) << recorded.status();
  DraftAlone draft;
  int tokens = 0;
  int matches = 0;
  int branches = 0;
  for (const tools::BenchAnswer& answer : result->answers) {
    const MatchTrace expected = draft.Matches(answer.complete, sampling);
    EXPECT_EQ((*recorded)[answer.prompt], expected)
        << plan.prompts[answer.prompt].id;
    for (const simulation::Guess& guess : expected) {
      ++tokens;
      matches += guess.matches() ? 1 : 0;
      branches += !guess.matches() && guess.rank <= speculation::kRanks ? 1 : 0;
    }
  }
  // None is trivial.
  EXPECT_GT(matches, tokens / 4);
  EXPECT_LT(matches, tokens);
  EXPECT_GT(branches, (tokens - matches) / 4);
}

INSTANTIATE_TEST_SUITE_P(Temperature, MatchTraceTest,
                         ::testing::Values(0.0f, 0.8f));

}  // namespace
}  // namespace nacre::integration
