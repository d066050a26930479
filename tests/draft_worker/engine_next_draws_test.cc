// What the draft engine tells the model of the step after the one it asks for:
// whose, and how often it holds.

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/draft_worker/draft_fixture.h"

namespace nacre::draft_worker {
namespace {

OpenDraft Led(uint64_t id, int lead = 8, const std::string& policy = "") {
  OpenDraft open = MakeOpen(id, Prompt(5, id), lead);
  open.sampling.repetition_penalty = 1.0f;
  open.policy = policy;
  return open;
}

TableModelOptions DrawingAndHidden() {
  TableModelOptions options;
  options.draws_tokens = true;
  options.shows_hidden = true;
  return options;
}

class DraftEngineNextDrawsTest : public ::testing::Test {
 protected:
  model::QueuedSteps Counts() const { return fixture_.model.queued_steps(); }
  void Drain(const std::vector<OpenDraft>& opens) {
    for (const OpenDraft& open : opens) fixture_.Open(open);
    fixture_.Drain();
  }

  std::function<void()> during_;  // the next forward, once
  DraftFixture fixture_{[this] {
    TableModelOptions options = DrawingAndHidden();
    options.on_forward = [this](int) {
      if (during_) std::exchange(during_, nullptr)();
      return absl::OkStatus();
    };
    return options;
  }()};
};

TEST_F(DraftEngineNextDrawsTest, AWindowIsDraftedWithoutAStepForNothing) {
  const OpenDraft open = Led(1);
  Drain({open});
  // The first one comes with the prompt's last row; after the last there is
  // none.
  EXPECT_EQ(Counts(), (model::QueuedSteps{7, 0}));
  const std::vector<int32_t> drafted = fixture_.TakeDrafted(1);
  EXPECT_EQ(drafted, Continue(fixture_.model, open, open.token_ids, 8));
  fixture_.Commit(1, 5, {drafted[0], drafted[1], drafted[2]});
  fixture_.Drain();
  EXPECT_EQ(Counts(), (model::QueuedSteps{9, 0}));
  const worker::EngineStats stats = fixture_.engine->stats();
  EXPECT_EQ(stats.queued_steps_used, 9u);
  EXPECT_EQ(stats.queued_steps_dropped, 0u);
}

TEST_F(DraftEngineNextDrawsTest, TheLongestLengthEndsIt) {
  OpenDraft open = Led(1, 50);
  open.max_length = 12;
  Drain({open});
  EXPECT_EQ(fixture_.TakeDrafted(1).size(), 7u);
  EXPECT_EQ(Counts(), (model::QueuedSteps{6, 0}));
}

TEST_F(DraftEngineNextDrawsTest, AnEndTokenCannotBeForeseen) {
  OpenDraft open = Led(1);
  const std::vector<int32_t> said =
      Continue(fixture_.model, open, open.token_ids, 4);
  open.end_token_ids = {said[3]};
  Drain({open});
  EXPECT_EQ(fixture_.TakeDrafted(1), said);
  EXPECT_EQ(Counts().used, 3u);
  fixture_.Commit(1, 5, {(said[0] + 1) % 16});
  fixture_.Drain();
  EXPECT_EQ(Counts().dropped, 1u);
}

TEST_F(DraftEngineNextDrawsTest, SessionsOfAStepGoOnTogether) {
  Drain({Led(1, 3), Led(2, 5), Led(3, 8)});
  EXPECT_EQ(Counts(), (model::QueuedSteps{7, 0}));
}

TEST_F(DraftEngineNextDrawsTest, APolicyThatWillStopIsAsked) {
  for (const bool waits : {true, false}) {
    DraftFixture fixture(DrawingAndHidden());
    OpenDraft open = Led(1, 8, "constant:n=3");
    open.plan.waits_at_stop = waits;
    fixture.Open(open);
    fixture.Drain();
    const uint64_t drafted = fixture.TakeDrafted(1).size();
    EXPECT_EQ(drafted, waits ? 3u : 8u);
    EXPECT_EQ(fixture.model.queued_steps(),
              (model::QueuedSteps{drafted - 1, 0}));
  }
}

// If one session in the step cannot predict its next draw, none announces one.
TEST_F(DraftEngineNextDrawsTest, NothingIsToldThatCannotHold) {
  OpenDraft filtered = Led(2);
  filtered.sampling.top_p = 0.9f;
  OpenDraft ratio = Led(2);
  ratio.verification = speculation::Verification::kRatio;
  OpenDraft penalized = Led(2);
  penalized.sampling.repetition_penalty = 1.2f;
  for (const OpenDraft& other :
       {filtered, ratio, penalized, Led(2, 8, "svip")}) {
    DraftFixture fixture(DrawingAndHidden());
    fixture.Open(Led(1, 5));
    fixture.Open(other);
    fixture.Drain();
    EXPECT_EQ(fixture.model.queued_steps(), model::QueuedSteps{});
  }
}

// A step that is queued replaces them.
TEST_F(DraftEngineNextDrawsTest, NothingIsToldWhereHiddenStatesAreRead) {
  PolicyFile file;
  file.target_fingerprint = "big";
  file.calibration.defaults = *speculation::ParsePolicySpec("specdec++");
  speculation::AcceptanceHead head;
  head.num_layers = 1;
  head.block.assign(16 * 16, 0.0f);
  head.block_bias.assign(16, 0.0f);
  head.output.assign(2 * 16, 0.0f);
  head.output_bias = {0.0f, 0.0f};
  file.calibration.head = head;
  PolicyLibrary policies;
  policies.Add(speculation::PolicyKind::kSpecDecPlusPlus, file);
  DraftFixture fixture(DrawingAndHidden(), {}, &policies);
  fixture.Open(Led(1, 5));
  fixture.Open(Led(2, 8, "specdec++"));
  fixture.Drain();
  EXPECT_EQ(fixture.TakeDrafted(2).size(), 8u);
  EXPECT_EQ(fixture.model.num_draws(), 13 + 2);  // a look at each prompt
  EXPECT_EQ(fixture.model.queued_steps(), model::QueuedSteps{});
}

TEST_F(DraftEngineNextDrawsTest, NothingIsToldWhileStepsAreTooSmallForAll) {
  DraftFixture fixture(DrawingAndHidden(), {.max_rows = 8});
  std::vector<OpenDraft> opens;
  for (uint64_t id = 1; id <= 12; ++id) {
    opens.push_back(Led(id, 40));
    fixture.Open(opens.back());
  }
  fixture.Drain();
  for (const OpenDraft& open : opens) {
    EXPECT_EQ(fixture.TakeDrafted(open.session_id),
              Continue(fixture.model, open, open.token_ids, 40));
  }
  EXPECT_EQ(fixture.model.queued_steps().dropped, 0u);
}

TEST_F(DraftEngineNextDrawsTest, NothingIsToldWhileAPromptIsFed) {
  DraftFixture fixture(DrawingAndHidden(), {.prefill_chunk = 16});
  fixture.Open(Led(1, 50));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(fixture.engine->RunOnce().ok());
  EXPECT_EQ(fixture.model.queued_steps(), (model::QueuedSteps{1, 0}));
  // It will not go on after its first token, but that is yet to come.
  OpenDraft long_one = Led(2, 1);
  long_one.token_ids = Prompt(100, 2);
  long_one.prompt_length = 100;
  fixture.Open(long_one);
  fixture.Drain();
  // The step that the prompt came into.
  EXPECT_EQ(fixture.model.queued_steps().dropped, 1u);
}

TEST_F(DraftEngineNextDrawsTest, ACommitThatMatchesDisturbsNothing) {
  const OpenDraft open = Led(1, 6);
  const std::vector<int32_t> said =
      Continue(fixture_.model, open, open.token_ids, 8);
  fixture_.Open(open);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(fixture_.engine->RunOnce().ok());
  during_ = [&] { fixture_.Commit(1, 5, {said[0], said[1]}); };
  fixture_.Drain();
  EXPECT_EQ(fixture_.TakeDrafted(1), said);
  EXPECT_EQ(Counts(), (model::QueuedSteps{7, 0}));
}

TEST_F(DraftEngineNextDrawsTest, ACorrectionCostsOneStepThatIsDropped) {
  const OpenDraft open = Led(1, 6);
  const std::vector<int32_t> said =
      Continue(fixture_.model, open, open.token_ids, 6);
  fixture_.Open(open);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(fixture_.engine->RunOnce().ok());
  const std::vector<int32_t> commit = {said[0], (said[1] + 1) % 16};
  fixture_.TakeDrafted(1);
  during_ = [&] { fixture_.Commit(1, 5, commit); };
  fixture_.Drain();
  EXPECT_EQ(Counts().dropped, 1u);
  EXPECT_EQ(fixture_.TakeDrafted(1),
            Continue(fixture_.model, open, Joined(open.token_ids, commit), 6));
}

}  // namespace
}  // namespace nacre::draft_worker
