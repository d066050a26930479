// Tokens that the model draws itself in the draft engine: of which sessions,
// and that they are the same ones.

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/draft_worker/draft_fixture.h"

namespace nacre::draft_worker {
namespace {

OpenDraft Plain(uint64_t id, const std::string& policy = "") {
  OpenDraft open = MakeOpen(id, Prompt(5, id), 8);
  open.sampling.repetition_penalty = 1.0f;
  open.policy = policy;
  return open;
}

TableModelOptions Drawing(bool draws = true) {
  TableModelOptions options;
  options.draws_tokens = draws;
  return options;
}

TEST(DraftEngineDrawsTest, PoliciesThatDoNotReadTheRowNeedNoLogits) {
  DraftFixture fixture(Drawing());
  const std::vector<OpenDraft> opens = {Plain(1), Plain(2, "constant:n=3"),
                                        Plain(3, "heuristic:start=2")};
  for (const OpenDraft& open : opens) fixture.Open(open);
  fixture.Drain();
  for (const OpenDraft& open : opens) {
    EXPECT_EQ(fixture.TakeDrafted(open.session_id),
              Continue(fixture.model, open, open.token_ids, 8));
  }
  EXPECT_EQ(fixture.model.num_logit_rows(), 0);
  EXPECT_EQ(fixture.model.num_draws(), 24 + 3);  // a look at each prompt
}

TEST(DraftEngineDrawsTest, IdsThatTheTargetLacksAreNotDrawn) {
  DraftFixture fixture(Drawing());
  OpenDraft open = Plain(1);
  open.vocab_limit = 3;
  open.sampling.temperature = 2.0f;
  fixture.Open(open);
  fixture.Drain();
  const std::vector<int32_t> drafted = fixture.TakeDrafted(1);
  ASSERT_EQ(drafted.size(), 8u);
  for (const int32_t id : drafted) EXPECT_LT(id, 3);
  EXPECT_EQ(fixture.model.num_logit_rows(), 0);
}

// Counted from the end of the prompt.
TEST(DraftEngineDrawsTest, NoEndIsDrawnBeforeTheLeastLength) {
  for (const bool draws : {true, false}) {
    DraftFixture fixture(Drawing(draws));
    OpenDraft open = Plain(1);
    const int32_t end = Continue(fixture.model, open, open.token_ids, 1)[0];
    open.end_token_ids = {end};
    open.min_tokens = 2;
    fixture.Open(open);
    fixture.Drain();
    const std::vector<int32_t> drafted = fixture.TakeDrafted(1);
    ASSERT_GE(drafted.size(), 2u);
    EXPECT_NE(drafted[0], end);
    EXPECT_NE(drafted[1], end);
  }
}

// Beside each other and beside such that need none; what they decide is what
// they decide where nothing is drawn.
TEST(DraftEngineDrawsTest, WhoeverReadsTheRowGetsLogits) {
  std::vector<OpenDraft> opens = {
      Plain(1, "confidence"),   Plain(2), Plain(3, "svip"),
      Plain(4, "constant:n=3"), Plain(5), Plain(6)};
  opens[4].sampling.top_p = 0.9f;
  opens[5].verification = speculation::Verification::kRatio;
  std::vector<std::vector<std::vector<int32_t>>> drafted;
  for (const bool draws : {true, false}) {
    DraftFixture fixture(Drawing(draws));
    for (const OpenDraft& open : opens) fixture.Open(open);
    fixture.Drain();
    drafted.emplace_back();
    for (const OpenDraft& open : opens) {
      drafted.back().push_back(fixture.TakeDrafted(open.session_id));
      EXPECT_FALSE(drafted.back().back().empty());
    }
    if (draws) {
      // Of sessions 2 and 4, and a look at each prompt.
      EXPECT_EQ(fixture.model.num_draws(), 16 + 6);
    }
    EXPECT_GE(fixture.model.num_logit_rows(), 16);
  }
  EXPECT_EQ(drafted[0], drafted[1]);
}

TEST(DraftEngineDrawsTest, WhatIsRecordedIsReadFromLogits) {
  std::string dir = ::testing::TempDir() + "/nacre-draws-XXXXXX";
  ASSERT_NE(mkdtemp(dir.data()), nullptr);
  {
    const auto file = worker::FeatureFile::Open(dir + "/rows.jsonl");
    ASSERT_TRUE(file.ok()) << file.status();
    DraftFixture fixture(Drawing(), {}, nullptr, file->get());
    const OpenDraft open = Plain(1);
    fixture.Open(open);
    fixture.Drain();
    EXPECT_EQ(fixture.TakeDrafted(1),
              Continue(fixture.model, open, open.token_ids, 8));
    EXPECT_EQ(fixture.model.num_draws(), 1);  // a look at the prompt
  }
  std::filesystem::remove_all(dir);
}

TEST(DraftEngineDrawsTest, ACommitDuringAForwardDropsTheTokenDrawn) {
  std::function<void()> during;
  TableModelOptions options = Drawing();
  options.on_forward = [&during](int) {
    if (during) std::exchange(during, nullptr)();
    return absl::OkStatus();
  };
  DraftFixture fixture(options);
  const OpenDraft open = Plain(1);
  const OpenDraft other = Plain(2);
  fixture.Open(open);
  fixture.Open(other);
  fixture.Drain();
  const std::vector<int32_t> first = fixture.TakeDrafted(1);
  const std::vector<int32_t> second = fixture.TakeDrafted(2);
  ASSERT_EQ(first.size(), 8u);
  const std::vector<int32_t> right = {first[0], first[1]};
  const std::vector<int32_t> wrong = {(first[2] + 1) % 16};
  fixture.Commit(1, 5, right);
  fixture.Commit(2, 5, second);
  during = [&] { fixture.Commit(1, 7, wrong); };
  fixture.Drain();
  EXPECT_EQ(during, nullptr);
  EXPECT_EQ(fixture.TakeDrafted(1),
            Continue(fixture.model, open,
                     Joined(Joined(open.token_ids, right), wrong), 8));
  EXPECT_EQ(fixture.TakeDrafted(2),
            Continue(fixture.model, other, Joined(other.token_ids, second), 8));
  EXPECT_EQ(fixture.model.num_logit_rows(), 0);
}

}  // namespace
}  // namespace nacre::draft_worker
