// Log-probabilities of prompts: whole, bit for bit those of the model, however
// the prompt is cut into chunks and whatever is decoded beside.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/logprobs.h"
#include "tests/target_worker/target_fixture.h"

namespace nacre::target_worker {
namespace {

using ::testing::HasSubstr;

OpenTarget TellingOpen(uint64_t session_id, int prompt_length,
                       int max_tokens = 5) {
  OpenTarget open =
      MakeOpen(session_id, Prompt(prompt_length, session_id), max_tokens);
  open.prompt_logprobs = 3;
  open.first_prompt_logprob = 1;
  return open;
}

// What was told, in one, from `first` on.
std::vector<TokenLogprobs> Told(TargetFixture& fixture, uint64_t session_id,
                                int first = 1) {
  std::vector<TokenLogprobs> all;
  for (const wire::PromptLogprobs& told : fixture.of_prompts[session_id]) {
    EXPECT_EQ(told.first_position, first + static_cast<int>(all.size()));
    EXPECT_LE(told.logprobs.size(), size_t{wire::kMaxPromptLogprobs});
    EXPECT_FALSE(told.logprobs.empty());
    all.insert(all.end(), told.logprobs.begin(), told.logprobs.end());
  }
  return all;
}

std::vector<TokenLogprobs> Expected(const TargetFixture& fixture,
                                    const OpenTarget& open) {
  std::vector<TokenLogprobs> all;
  model::SamplingScratch scratch;
  const absl::Span<const int32_t> ids = open.token_ids;
  for (int i = open.first_prompt_logprob; i < open.prompt_length; ++i) {
    const size_t position = static_cast<size_t>(i);
    all.push_back(model::ComputeLogprobs(
        fixture.model.Logits(ids.first(position)), ids[position], 3, &scratch));
  }
  return all;
}

TEST(EnginePromptTest, LogprobsAreThoseOfTheModelForEveryLengthAndChunk) {
  for (const bool draws_tokens : {false, true}) {
    for (const int chunk : {1, 7, 512}) {
      for (const int length : {1, 2, 3, 64, 65, 66, 130, 300}) {
        nacre::testing::TableModelOptions options;
        options.draws_tokens = draws_tokens;
        TargetFixture fixture(options, {chunk, chunk});
        const OpenTarget open = TellingOpen(1, length);
        fixture.Open(open);
        fixture.RunToEnd(1);
        EXPECT_EQ(Told(fixture, 1), Expected(fixture, open))
            << length << " by " << chunk;
        EXPECT_EQ(fixture.tokens[1], Autoregressive(fixture.model, open));
      }
    }
  }
}

// Rows with logits take memory: those of all prompts of a step are bounded.
TEST(EnginePromptTest, AStepHasFewRowsWithLogits) {
  TargetFixture fixture({}, {512, 512});
  for (uint64_t id = 1; id <= 4; ++id) fixture.Open(TellingOpen(id, 100));
  int64_t before = 0;
  while (fixture.of_prompts.size() < 4 || Told(fixture, 4).size() < 99) {
    ASSERT_TRUE(fixture.engine->RunOnce().ok());
    // And one for each session that verifies, or is only fed.
    EXPECT_LE(fixture.model.num_logit_rows() - before,
              wire::kMaxPromptLogprobs + 4);
    before = fixture.model.num_logit_rows();
  }
  for (uint64_t id = 1; id <= 4; ++id) {
    EXPECT_EQ(Told(fixture, id), Expected(fixture, TellingOpen(id, 100)));
  }
}

// Another target had told the first ones, and had said some of the answer.
TEST(EnginePromptTest, ALaterTargetTellsTheRest) {
  for (const int first : {1, 2, 70, 149, 150}) {
    TargetFixture fixture({}, {40, 40});
    OpenTarget open = TellingOpen(1, 150, /*max_tokens=*/20);
    const std::vector<int32_t> truth = Autoregressive(fixture.model, open);
    open.token_ids.assign(truth.begin(), truth.begin() + 155);
    open.first_prompt_logprob = first;
    fixture.Open(open);
    fixture.RunToEnd(1);
    EXPECT_EQ(Told(fixture, 1, first), Expected(fixture, open)) << first;
    EXPECT_EQ(fixture.tokens[1], truth);
  }
}

// Notes how many tokens of a new sequence may come from the cache.
class NotingModel final : public nacre::testing::TableModel {
 public:
  NotingModel() : TableModel({}) {}
  absl::StatusOr<std::unique_ptr<model::Sequence>> NewSequenceWithPrefix(
      int max_length, absl::Span<const int32_t> token_ids) override {
    num_shareable = token_ids.size();
    return NewSequence(max_length);
  }

  size_t num_shareable = 0;
};

// A row that the cache holds is not computed: it would tell nothing.
TEST(EnginePromptTest, RowsThatAreToTellAreNotTakenFromTheCache) {
  NotingModel model;
  TargetEngine::Options options;
  options.model = &model;
  options.now_ns = [] { return int64_t{1000}; };
  options.send = [](worker::StreamId, const TargetEvents&) {};
  TargetEngine engine(std::move(options));
  const auto num_shareable = [&](OpenTarget open) {
    TargetCommands commands;
    commands.stream = 1;
    commands.open.push_back(std::move(open));
    engine.Push(std::move(commands));
    EXPECT_TRUE(engine.RunOnce().ok());
    return model.num_shareable;
  };
  OpenTarget open = TellingOpen(1, 100);
  EXPECT_EQ(num_shareable(open), 1u);
  open.session_id = 2;
  open.first_prompt_logprob = 70;
  EXPECT_EQ(num_shareable(open), 70u);
  // All of the prompt has been told.
  open.session_id = 3;
  open.first_prompt_logprob = 100;
  EXPECT_EQ(num_shareable(open), 100u);
  EXPECT_EQ(num_shareable(MakeOpen(4, Prompt(100, 4), 5)), 100u);
}

TEST(EnginePromptTest, NothingIsToldThatWasNotAskedFor) {
  TargetFixture fixture;
  fixture.Open(MakeOpen(1, Prompt(100, 1), 5));
  fixture.RunToEnd(1);
  EXPECT_TRUE(fixture.of_prompts.empty());
  EXPECT_LT(fixture.model.num_logit_rows(), 10);
}

TEST(EnginePromptTest, ARowWithoutANumberFailsTheSession) {
  nacre::testing::TableModelOptions options;
  options.on_row = [](absl::Span<const int32_t>, std::vector<float>* logits) {
    (*logits)[3] = std::numeric_limits<float>::quiet_NaN();
  };
  TargetFixture fixture(options);
  fixture.Open(TellingOpen(1, 100));
  fixture.Drain();
  EXPECT_EQ(fixture.failures[1].code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(fixture.of_prompts.empty());
}

TEST(EnginePromptTest, BadOpensAreRefused) {
  const auto refusal = [](int num_top, int first) {
    TargetFixture fixture;
    OpenTarget open = TellingOpen(1, 10);
    open.prompt_logprobs = num_top;
    open.first_prompt_logprob = first;
    fixture.Open(open);
    fixture.Drain();
    return std::string(fixture.failures[1].message());
  };
  EXPECT_EQ(refusal(20, 10), "");
  EXPECT_THAT(refusal(21, 1), HasSubstr("prompt_logprobs 21 is outside 0 to "
                                        "20"));
  EXPECT_THAT(refusal(3, 0), HasSubstr("first_prompt_logprob 0 is outside 1 "
                                       "to 10"));
  EXPECT_THAT(refusal(3, 11), HasSubstr("first_prompt_logprob 11"));
}

}  // namespace
}  // namespace nacre::target_worker
