// How the target engine applies what its streams tell it. What it has in common
// with the draft's: tests/worker/engine/session_engine_test.cc.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <map>

#include "target_worker/target_engine.h"
#include "tests/target_worker/target_fixture.h"

namespace nacre::target_worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(TargetCommandsTest, ReopensFromCommittedTokens) {
  TargetFixture fixture;
  OpenTarget open = MakeOpen(1, Prompt(6, 4), 50);
  open.sampling.temperature = 1.0f;
  open.sampling.repetition_penalty = 1.3f;
  const std::vector<int32_t> truth = Autoregressive(fixture.model, open);
  OpenTarget again = open;
  again.token_ids.assign(truth.begin(), truth.begin() + 31);
  fixture.Open(again);
  fixture.RunToEnd(1);
  EXPECT_EQ(fixture.tokens[1], truth);
}

// Room is reserved when a session opens: one that does not fit is refused, and
// one that was opened never fails for room, whatever tails it is sent.
TEST(TargetCommandsTest, AFullCacheRefusesOpensAndFailsNobody) {
  nacre::testing::TableModelOptions options;
  options.kv_capacity_tokens = 3 * 70;
  TargetFixture fixture(options);
  std::map<uint64_t, std::vector<int32_t>> truth;
  for (const uint64_t id : {1, 2, 3}) {
    OpenTarget open = MakeOpen(id, Prompt(10, id), 60);
    open.has_draft = true;
    open.plan.window = 64;
    truth[id] = Autoregressive(fixture.model, open);
    fixture.Open(open);
  }
  fixture.Open(MakeOpen(4, Prompt(1, 4), 1));
  ASSERT_TRUE(fixture.engine->RunOnce().ok());
  ASSERT_EQ(fixture.failures.size(), 1u);
  EXPECT_EQ(fixture.failures[4].code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(fixture.engine->stats().kv_free_tokens, 0);
  // The refused one was not looked up; this model has no prefix cache.
  EXPECT_EQ(fixture.engine->stats().prefix_queries, 30u);
  EXPECT_EQ(fixture.engine->stats().prefix_hits, 0u);

  // All of the right tokens at once, and more than there can be.
  TargetCommands commands;
  commands.stream = 1;
  for (const uint64_t id : {1, 2, 3}) {
    speculation::Tail tail;
    tail.base_length = tail.first_position =
        static_cast<int>(fixture.tokens[id].size());
    tail.token_ids.assign(truth[id].begin() + tail.first_position,
                          truth[id].end());
    tail.token_ids.push_back(1);
    commands.tails.push_back({id, tail});
  }
  fixture.engine->Push(commands);
  for (const uint64_t id : {1, 2, 3}) {
    fixture.RunToEnd(id);
    EXPECT_EQ(fixture.tokens[id], truth[id]);
  }
  EXPECT_EQ(fixture.failures.size(), 1u);
  fixture.Open(MakeOpen(5, Prompt(1, 5), 100));
  fixture.Drain();
  EXPECT_EQ(fixture.failures.size(), 1u);
}

TEST(TargetCommandsTest, FreesKvWhenFinishedAndTheRestWhenClosed) {
  TargetFixture fixture;
  const int64_t free = fixture.model.kv_free_tokens();
  fixture.Open(MakeOpen(1, Prompt(6, 4), 5));
  fixture.RunToEnd(1);
  EXPECT_EQ(fixture.model.kv_free_tokens(), free);
  EXPECT_EQ(fixture.engine->stats().sessions, 1);
  fixture.Open(MakeOpen(2, Prompt(6, 4), 500));
  fixture.Drain();
  EXPECT_EQ(fixture.model.kv_free_tokens(), free - 506);
  TargetCommands close;
  close.stream = 1;
  close.close = {1, 2};
  fixture.engine->Push(close);
  fixture.Drain();
  EXPECT_THAT(fixture.closed, ElementsAre(1, 2));
  EXPECT_EQ(fixture.model.kv_free_tokens(), free);
  EXPECT_EQ(fixture.engine->stats().sessions, 0);
}

TEST(TargetCommandsTest, UnknownSessionsAndBadIdsChangeNothingAndAreCounted) {
  TargetFixture fixture;
  OpenTarget open = MakeOpen(1, Prompt(5, 2), 10);
  open.has_draft = true;
  open.plan.window = 4;
  fixture.Open(open);
  TargetCommands commands;
  commands.stream = 2;  // another stream: session 1 is not its own
  commands.plans.push_back({1, {}});
  commands.acknowledged.push_back({1, 3});
  commands.draft_lost.push_back(1);
  commands.draft_attached.push_back({1, 1, 5});
  commands.close.push_back(1);
  commands.malformed.resize(2);
  fixture.engine->Push(commands);
  TargetCommands bad;
  bad.stream = 1;
  speculation::Tail tail;
  tail.base_length = tail.first_position = 5;
  for (const int32_t id : {-1, 16}) {
    tail.token_ids = {id};
    bad.tails.push_back({1, tail});
  }
  bad.draft_attached.push_back({1, 1, -1});
  bad.draft_attached.push_back({1, 1, 0});
  fixture.engine->Push(bad);
  fixture.RunToEnd(1);
  EXPECT_EQ(fixture.tokens[1], Autoregressive(fixture.model, open));
  EXPECT_EQ(fixture.engine->stats().rejected_messages, 5u + 2u + 4u);
}

struct BadOpen {
  const char* name;
  std::function<void(OpenTarget&)> change;
  absl::StatusCode code;
  const char* message;
};

class TargetEngineOpenTest : public ::testing::TestWithParam<BadOpen> {};

TEST_P(TargetEngineOpenTest, IsRefused) {
  nacre::testing::TableModelOptions options;
  options.context_length = 100;
  options.kv_capacity_tokens = 90;
  TargetFixture fixture(options);
  OpenTarget open = MakeOpen(1, Prompt(10, 1), 20);
  GetParam().change(open);
  fixture.Open(open);
  fixture.Drain();
  ASSERT_EQ(fixture.failures.size(), 1u);
  EXPECT_EQ(fixture.failures[1].code(), GetParam().code);
  EXPECT_THAT(std::string(fixture.failures[1].message()),
              HasSubstr(GetParam().message));
  EXPECT_TRUE(fixture.opened.empty());
  EXPECT_EQ(fixture.model.kv_free_tokens(), 90);
}

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
INSTANTIATE_TEST_SUITE_P(
    All, TargetEngineOpenTest,
    ::testing::Values(
        BadOpen{"BadStopId", [](OpenTarget& o) { o.stop_token_ids = {16}; },
                kInvalid, "stop_token_ids[0] is 16"},
        BadOpen{"NoTokens", [](OpenTarget& o) { o.max_tokens = 0; }, kInvalid,
                "max_tokens 0"},
        BadOpen{"OverContext", [](OpenTarget& o) { o.max_tokens = 91; },
                kInvalid, "10 tokens and max_tokens 91 make 101"},
        BadOpen{"MaxTokensAtIntLimit",
                [](OpenTarget& o) { o.max_tokens = 2147483647; }, kInvalid,
                "over the context of 100"},
        BadOpen{"MoreIdsThanFit",
                [](OpenTarget& o) {
                  o.prompt_length = 2;
                  o.max_tokens = 3;
                },
                kInvalid, "10 token_ids"},
        BadOpen{"NegativeTopP", [](OpenTarget& o) { o.sampling.top_p = -1; },
                kInvalid, "top_p"},
        BadOpen{"BiasBeyondVocabulary",
                [](OpenTarget& o) {
                  o.sampling.logit_bias = {{16, 1.0f}};
                },
                kInvalid, "logit_bias[0] is 16"},
        BadOpen{"MinOverMaxTokens", [](OpenTarget& o) { o.min_tokens = 21; },
                kInvalid, "min_tokens 21 is outside 0 to 20"},
        BadOpen{"TooManyLogprobs", [](OpenTarget& o) { o.logprobs = 21; },
                kInvalid, "logprobs 21 is outside 0 to 20"},
        BadOpen{"KvFull", [](OpenTarget& o) { o.max_tokens = 81; },
                absl::StatusCode::kResourceExhausted, "91"}),
    [](const ::testing::TestParamInfo<BadOpen>& info) {
      return info.param.name;
    });

TEST(TargetCommandsTest, ASecondOpenOfASessionIsRefusedAndTheFirstGoesOn) {
  TargetFixture fixture;
  const OpenTarget open = MakeOpen(1, Prompt(10, 1), 20);
  fixture.Open(open);
  fixture.Drain();
  TargetCommands commands;
  commands.stream = 1;
  commands.open.push_back(open);
  fixture.engine->Push(commands);
  fixture.Drain();
  EXPECT_EQ(fixture.failures[1].code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(fixture.tokens[1], Autoregressive(fixture.model, open));
}

}  // namespace
}  // namespace nacre::target_worker
