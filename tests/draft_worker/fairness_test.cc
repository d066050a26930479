// Which get the draft's steps when there is too much to do: 64 sessions, long
// prompts, small budgets. In steps and rows, the engine's own time.

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/draft_worker/draft_fixture.h"

namespace nacre::draft_worker {
namespace {

constexpr uint64_t kLong = 1000;  // the id of the session with a long prompt

TableModelOptions LongContext(std::vector<int>* step_rows) {
  TableModelOptions options;
  options.context_length = 1 << 16;
  options.on_forward = [step_rows](int rows) {
    step_rows->push_back(rows);
    return absl::OkStatus();
  };
  return options;
}

OpenDraft OpenLong(int prompt_length) {
  OpenDraft open = MakeOpen(kLong, Prompt(prompt_length, 1), 4);
  open.max_length = prompt_length + 100;
  return open;
}

TEST(DraftFairnessTest, ALongPromptHoldsUpNoShortOne) {
  std::vector<int> step_rows;
  DraftFixture fixture(LongContext(&step_rows));
  fixture.Open(OpenLong(20000));
  for (uint64_t id = 1; id <= 64; ++id) {
    fixture.Open(MakeOpen(id, Prompt(50, id), 4));
  }
  for (int i = 0; i < 64 * 50 / 64 + 2; ++i) {
    ASSERT_TRUE(fixture.engine->RunOnce().ok());
  }
  for (uint64_t id = 1; id <= 64; ++id) {
    EXPECT_GE(fixture.tails[id].size(), 1u) << id;
  }
  EXPECT_TRUE(fixture.tails[kLong].empty());
  for (int i = 0; i < 20000 / 64; ++i) {
    ASSERT_TRUE(fixture.engine->RunOnce().ok());
  }
  EXPECT_EQ(fixture.tails[kLong].size(), 4u);
}

TEST(DraftFairnessTest, ALongPromptHoldsUpNoDraftingSession) {
  std::vector<int> step_rows;
  DraftFixture fixture(LongContext(&step_rows));
  for (uint64_t id = 1; id <= 64; ++id) {
    fixture.Open(MakeOpen(id, Prompt(1, id), 100));
  }
  ASSERT_TRUE(fixture.engine->RunOnce().ok());
  fixture.Open(OpenLong(20000));
  step_rows.clear();
  for (size_t i = 0; i < 90; ++i) {
    ASSERT_TRUE(fixture.engine->RunOnce().ok());
    ASSERT_EQ(fixture.tails[9].size(), i + 2);
  }
  EXPECT_EQ(step_rows, std::vector<int>(90, 64 + 128));
}

TEST(DraftFairnessTest, OneTokenForEachBeforeASecondForAny) {
  for (const int max_rows : {1, 7, 16, 512}) {
    DraftFixture fixture({}, {.max_rows = max_rows, .prefill_chunk = 4});
    for (uint64_t id = 1; id <= 64; ++id) {
      fixture.Open(MakeOpen(id, Prompt(1, id), 20));
    }
    for (int i = 0; i < 200; ++i) {
      ASSERT_TRUE(fixture.engine->RunOnce().ok());
      size_t least = 1000;
      size_t most = 0;
      for (uint64_t id = 1; id <= 64; ++id) {
        least = std::min(least, fixture.tails[id].size());
        most = std::max(most, fixture.tails[id].size());
      }
      ASSERT_LE(most - least, 1u) << max_rows;
    }
  }
}

TEST(DraftFairnessTest, AFullHouseDoesNotHoldUpPrompts) {
  DraftFixture fixture({}, {.max_rows = 16, .prefill_chunk = 8});
  for (uint64_t id = 1; id <= 40; ++id) {
    fixture.Open(MakeOpen(id, Prompt(1, id), 100));
  }
  ASSERT_TRUE(fixture.engine->RunOnce().ok());
  fixture.Open(MakeOpen(kLong, Prompt(41, 3), 4));
  for (int i = 0; i < 20 + 4; ++i) {
    ASSERT_TRUE(fixture.engine->RunOnce().ok());
  }
  EXPECT_GE(fixture.tails[kLong].size(), 1u);
}

// A session that fell far behind its target catches up in chunks, beside the
// others.
TEST(DraftFairnessTest, CatchingUpIsChunkedToo) {
  std::vector<int> step_rows;
  DraftFixture fixture(LongContext(&step_rows));
  const OpenDraft behind = MakeOpen(kLong, Prompt(3, 2), 0);
  fixture.Open(behind);
  fixture.Open(MakeOpen(1, Prompt(3, 2), 100));
  // The second step finds the prompts fed: their sessions draft.
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(fixture.engine->RunOnce().ok());
  const std::vector<int32_t> commit = Prompt(400, 5);
  fixture.Commit(kLong, 3, commit);
  DraftCommands plan;
  plan.stream = 1;
  plan.plans.push_back({kLong, {2, 2}});
  fixture.engine->Push(plan);
  step_rows.clear();
  fixture.tails.clear();
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(fixture.engine->RunOnce().ok());
  EXPECT_EQ(fixture.tails[1].size(), 10u);
  EXPECT_LE(*std::max_element(step_rows.begin(), step_rows.end()), 1 + 128);
  EXPECT_EQ(
      fixture.TakeDrafted(kLong),
      Continue(fixture.model, behind, Joined(behind.token_ids, commit), 2));
}

}  // namespace
}  // namespace nacre::draft_worker
