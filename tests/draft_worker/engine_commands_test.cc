// How the draft engine applies what its streams tell it. What it has in common
// with the target's: tests/worker/engine/session_engine_test.cc.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "draft_worker/draft_engine.h"
#include "tests/draft_worker/draft_fixture.h"

namespace nacre::draft_worker {
namespace {

using ::testing::HasSubstr;

// Room is reserved when a session opens: one that does not fit is refused, and
// one that was opened never fails for room, however far its target goes.
TEST(DraftCommandsTest, AFullCacheRefusesOpensAndFailsNobody) {
  TableModelOptions options;
  options.kv_capacity_tokens = 2 * 30;
  DraftFixture fixture(options);
  for (const uint64_t id : {1, 2, 3}) {
    OpenDraft open = MakeOpen(id, Prompt(10, id), 50);
    open.max_length = 30;
    fixture.Open(open);
  }
  fixture.Drain();
  ASSERT_EQ(fixture.failures.size(), 1u);
  EXPECT_EQ(fixture.failures[3].code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(fixture.engine->stats().prefix_queries, 20u);
  EXPECT_EQ(fixture.engine->stats().prefix_hits, 0u);
  for (const uint64_t id : {1, 2}) {
    EXPECT_EQ(fixture.TakeDrafted(id).size(), 20u);
    // The target disagrees from the start, and goes on beyond the end.
    fixture.Commit(id, 10, Prompt(40, id + 7));
  }
  fixture.Drain();
  EXPECT_EQ(fixture.failures.size(), 1u);
  EXPECT_EQ(fixture.engine->stats().sessions, 2);
}

// All that it was given has room, also where there is nothing left to draft.
TEST(DraftCommandsTest, AnOpeningLongerThanItsGreatestLengthDraftsNothing) {
  TableModelOptions options;
  options.kv_capacity_tokens = 100;
  DraftFixture fixture(options);
  OpenDraft open = MakeOpen(1, Prompt(40, 1), 5);
  open.max_length = 4;
  fixture.Open(open);
  fixture.Drain();
  EXPECT_TRUE(fixture.failures.empty());
  EXPECT_TRUE(fixture.TakeDrafted(1).empty());
  EXPECT_EQ(fixture.engine->stats().sessions, 1);
  EXPECT_EQ(fixture.model.kv_free_tokens(), 60);
}

TEST(DraftCommandsTest, ACommitOfAnIdItLacksFailsTheSession) {
  DraftFixture fixture;
  fixture.Open(MakeOpen(1, Prompt(6, 4), 5));
  fixture.Drain();
  fixture.Commit(1, 6, {16});
  fixture.Drain();
  EXPECT_EQ(fixture.failures[1].code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(fixture.engine->stats().sessions, 0);
}

// A model that draws on its device returns no other candidates: nothing is told
// then, rather than the ranks of those that happened to match.
TEST(DraftCommandsTest, TellsTheRanksOfTheTargetsTokensWhereItKnowsThem) {
  for (const bool draws_tokens : {false, true}) {
    TableModelOptions options;
    options.draws_tokens = draws_tokens;
    DraftFixture fixture(options);
    fixture.Open(MakeOpen(1, Prompt(6, 4), 3));
    fixture.Drain();
    const std::vector<int32_t> drafted = fixture.TakeDrafted(1);
    ASSERT_EQ(drafted.size(), 3u);
    fixture.Commit(1, 6, {drafted[0], drafted[1]});
    fixture.Drain();
    // After its third token, which is wrong, nothing is compared.
    const int32_t other = drafted[2] == 5 ? 6 : 5;
    fixture.Commit(1, 8, {other, 1});
    fixture.Drain();
    if (draws_tokens) {
      EXPECT_TRUE(fixture.ranks.empty());
      continue;
    }
    ASSERT_EQ(fixture.ranks.size(), 2u);
    EXPECT_EQ(fixture.ranks[0].session_id, 1u);
    EXPECT_EQ(fixture.ranks[0].ranks, (std::vector<int>{1, 1}));
    ASSERT_EQ(fixture.ranks[1].ranks.size(), 1u);
    EXPECT_GT(fixture.ranks[1].ranks[0], 1);
    EXPECT_LE(fixture.ranks[1].ranks[0], speculation::kBeyond);
  }
}

// Only where it is asked and knows them: eight pairs a token are many bytes.
TEST(DraftCommandsTest, TellsTheCandidatesOfItsTokensWhereAsked) {
  for (const bool asks : {false, true}) {
    for (const bool draws_tokens : {false, true}) {
      TableModelOptions options;
      options.draws_tokens = draws_tokens;
      DraftFixture fixture(options);
      OpenDraft open = MakeOpen(1, Prompt(6, 4), 3);
      open.tells_candidates = asks;
      // Else a device cannot draw.
      open.sampling.repetition_penalty = 1.0f;
      fixture.Open(open);
      fixture.Drain();
      const std::vector<int32_t> drafted = fixture.TakeDrafted(1);
      size_t token = 0;
      for (const wire::Span& span : fixture.spans) {
        if (span.kind != wire::Span::Kind::kDraft) {
          EXPECT_TRUE(span.candidates.empty());
          continue;
        }
        ASSERT_EQ(span.candidates.size(), asks && !draws_tokens ? 8u : 0u);
        if (span.candidates.empty()) continue;
        EXPECT_EQ(span.length, 6 + static_cast<int>(token) + 1);
        EXPECT_EQ(span.candidates[0].token_id, drafted[token++]);
        for (int i = 1; i < 8; ++i) {
          EXPECT_LE(span.candidates[i].score, span.candidates[i - 1].score);
        }
      }
      EXPECT_EQ(token, asks && !draws_tokens ? drafted.size() : 0u);
    }
  }
}

TEST(DraftCommandsTest,
     RepeatedAndMalformedMessagesChangeNothingAndAreCounted) {
  DraftFixture fixture;
  const OpenDraft open = MakeOpen(1, Prompt(6, 4), 3);
  fixture.Open(open);
  fixture.Drain();
  const std::vector<int32_t> drafted = fixture.TakeDrafted(1);
  fixture.Commit(1, 5, {open.token_ids[5]});  // repeated
  fixture.Commit(1, 7, {1});                  // a gap
  fixture.Commit(1, -1, {1});
  fixture.Commit(1, std::numeric_limits<int>::max(), {1});
  fixture.Commit(9, 6, {1});  // no such session
  DraftCommands malformed;
  malformed.stream = 1;
  malformed.malformed.resize(2);
  fixture.engine->Push(malformed);
  fixture.Drain();
  EXPECT_TRUE(fixture.tails[1].empty());
  EXPECT_EQ(fixture.engine->stats().rejected_messages, 7u);
  fixture.Commit(1, 6, {drafted[0]});
  fixture.Drain();
  EXPECT_EQ(fixture.TakeDrafted(1),
            Continue(fixture.model, open, Joined(open.token_ids, drafted), 1));
}

TEST(DraftCommandsTest, ASecondOpenOfASessionIsRefused) {
  DraftFixture fixture;
  fixture.Open(MakeOpen(1, Prompt(10, 1), 2));
  fixture.Open(MakeOpen(1, Prompt(10, 1), 2));
  fixture.Drain();
  EXPECT_EQ(fixture.failures[1].code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(fixture.TakeDrafted(1).size(), 2u);
}

struct BadOpen {
  const char* name;
  std::function<void(OpenDraft&)> change;
  absl::StatusCode code;
  const char* message;
};

class DraftEngineOpenTest : public ::testing::TestWithParam<BadOpen> {};

TEST_P(DraftEngineOpenTest, IsRefused) {
  TableModelOptions options;
  options.context_length = 100;
  options.kv_capacity_tokens = 90;
  DraftFixture fixture(options);
  OpenDraft open = MakeOpen(1, Prompt(10, 1), 4);
  open.max_length = 50;
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
    All, DraftEngineOpenTest,
    ::testing::Values(
        BadOpen{"NoLength", [](OpenDraft& o) { o.max_length = 0; }, kInvalid,
                "max_length 0"},
        BadOpen{"OverContext", [](OpenDraft& o) { o.token_ids.assign(101, 1); },
                kInvalid, "101 token_ids are over the draft's context of 100"},
        BadOpen{"NegativeLimit", [](OpenDraft& o) { o.vocab_limit = -1; },
                kInvalid, "vocab_limit -1"},
        BadOpen{"KvFull", [](OpenDraft& o) { o.max_length = 95; },
                absl::StatusCode::kResourceExhausted, "95"}),
    [](const ::testing::TestParamInfo<BadOpen>& info) {
      return info.param.name;
    });

}  // namespace
}  // namespace nacre::draft_worker
