// Length policies in the draft engine: marks and waits, late feedback, tokens
// that are not sent, files that are missing.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/draft_worker/draft_fixture.h"

namespace nacre::draft_worker {
namespace {

using speculation::StopMark;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<StopMark> Marks(const std::vector<speculation::Tail>& tails) {
  std::vector<StopMark> marks;
  for (const speculation::Tail& tail : tails) marks.push_back(tail.stop);
  return marks;
}

OpenDraft WithPolicy(const std::string& policy, int lead, bool waits) {
  OpenDraft open = MakeOpen(1, {3, 4, 5}, lead);
  open.policy = policy;
  open.plan.waits_at_stop = waits;
  return open;
}

TEST(DraftEnginePolicies, InTurnsAChunkEndsWithAWait) {
  DraftFixture fixture;
  const OpenDraft open = WithPolicy("constant:n=3", 10, /*waits=*/true);
  fixture.Open(open);
  fixture.Drain();
  EXPECT_THAT(Marks(fixture.tails[1]),
              ElementsAre(StopMark::kNone, StopMark::kNone, StopMark::kPolicy));
  const std::vector<int32_t> drafted = fixture.TakeDrafted(1);
  EXPECT_EQ(drafted, Continue(fixture.model, open, {3, 4, 5}, 3));
  fixture.Commit(1, 3, Joined(drafted, {9}));
  fixture.Drain();
  EXPECT_EQ(fixture.TakeDrafted(1).size(), 3u);
}

TEST(DraftEnginePolicies, UnderOverlapAChunkEndsWithAMarkAlone) {
  DraftFixture fixture;
  const OpenDraft open = WithPolicy("constant:n=2", 5, /*waits=*/false);
  fixture.Open(open);
  fixture.Drain();
  EXPECT_THAT(Marks(fixture.tails[1]),
              ElementsAre(StopMark::kNone, StopMark::kChunk, StopMark::kNone,
                          StopMark::kChunk, StopMark::kLead));
  EXPECT_EQ(fixture.TakeDrafted(1),
            Continue(fixture.model, open, {3, 4, 5}, 5));
}

TEST(DraftEnginePolicies, VerdictsReachThePolicy) {
  DraftFixture fixture;
  fixture.Open(WithPolicy("heuristic:start=2", 20, /*waits=*/true));
  fixture.Drain();
  std::vector<int32_t> drafted = fixture.TakeDrafted(1);
  EXPECT_EQ(drafted.size(), 2u);
  fixture.Commit(1, 3, Joined(drafted, {9}));  // all: two more
  fixture.Drain();
  drafted = fixture.TakeDrafted(1);
  EXPECT_EQ(drafted.size(), 4u);
  fixture.Commit(1, 6, {drafted[0], (drafted[1] + 1) % 16});  // one less
  fixture.Drain();
  EXPECT_EQ(fixture.TakeDrafted(1).size(), 3u);
}

TEST(DraftEnginePolicies, ATokenThatTheOracleKnowsWrongIsNotSent) {
  for (const bool waits : {false, true}) {
    DraftFixture fixture;
    OpenDraft open = WithPolicy("oracle", 10, waits);
    open.sampling = {};
    std::vector<int32_t> answer = Continue(fixture.model, open, {3, 4, 5}, 3);
    const int32_t wrong = (answer[2] + 1) % 16;
    answer[2] = wrong;  // the target draws another one there
    open.oracle_token_ids = answer;
    fixture.Open(open);
    fixture.Drain();
    ASSERT_EQ(fixture.tails[1].size(), 3u);
    const speculation::Tail notice = fixture.tails[1][2];
    EXPECT_EQ(notice.stop, StopMark::kPolicy);
    EXPECT_TRUE(notice.token_ids.empty());
    EXPECT_EQ(notice.first_position, 5);
    EXPECT_EQ(fixture.TakeDrafted(1),
              (std::vector<int32_t>{answer[0], answer[1]}));
    // Part of it verified: nothing new is drafted, and it says so again.
    const int64_t forwards = fixture.model.num_forwards();
    fixture.Commit(1, 3, {answer[0]});
    fixture.Drain();
    EXPECT_EQ(fixture.model.num_forwards(), forwards);
    ASSERT_EQ(fixture.tails[1].size(), 1u);
    EXPECT_EQ(fixture.tails[1][0].stop, StopMark::kPolicy);
    fixture.tails[1].clear();
    // After the target's own token the recording ends: it stops there.
    fixture.Commit(1, 4, {answer[1], wrong});
    fixture.Drain();
    ASSERT_EQ(fixture.tails[1].size(), 1u);
    EXPECT_TRUE(fixture.tails[1][0].token_ids.empty());
    EXPECT_EQ(fixture.tails[1][0].first_position, 6);
  }
}

// What a policy reads comes from the session's own row of a shared step.
// `draws`: of some the model draws the tokens.
void ExpectJudgedByTheirOwnRows(bool draws) {
  TableModelOptions model_options;
  model_options.draws_tokens = draws;
  model_options.shows_hidden = true;
  PolicyLibrary policies;
  PolicyFile file;
  file.target_fingerprint = "big";
  file.calibration.defaults = *speculation::ParsePolicySpec("specdec++");
  // The first hidden value of the table model is the logit of token 0.
  speculation::AcceptanceHead head;
  head.num_layers = 1;
  head.block.assign(16 * 16, 0.0f);
  head.block_bias.assign(16, 0.0f);
  head.output.assign(2 * 16, 0.0f);
  head.output[16] = 50.0f;
  head.output_bias = {0.0f, 0.0f};
  file.calibration.head = head;
  policies.Add(speculation::PolicyKind::kSpecDecPlusPlus, file);
  DraftFixture fixture(model_options, {}, &policies);
  std::vector<OpenDraft> opens;
  for (uint64_t id = 1; id <= 3; ++id) {
    OpenDraft open = MakeOpen(id, Prompt(4, id), 8);
    if (id != 2) open.policy = "specdec++:min=1,threshold=0.5";
    if (id != 1) open.sampling.repetition_penalty = 1.0f;
    opens.push_back(open);
    fixture.Open(open);
  }
  fixture.Drain();
  for (const OpenDraft& open : opens) {
    std::vector<int32_t> tokens = open.token_ids;
    double survive = 1.0;
    for (const speculation::Tail& tail : fixture.tails[open.session_id]) {
      if (tail.first_position > 4) {
        const double logit = 50.0 * fixture.model.Logits(tokens)[0];
        survive *= 1.0 / (1.0 + std::exp(-logit));
      }
      const bool stops = !open.policy.empty() && survive < 0.5;
      const bool last = tail.first_position == 11;
      EXPECT_EQ(tail.stop, last    ? StopMark::kLead
                           : stops ? StopMark::kChunk
                                   : StopMark::kNone)
          << open.session_id << " at " << tail.first_position;
      tokens.push_back(tail.token_ids.at(0));
    }
    EXPECT_EQ(tokens.size(), 12u);
  }
  // And a look at each prompt.
  const int num_looks = static_cast<int>(opens.size());
  EXPECT_EQ(fixture.model.num_draws(), draws ? 16 + num_looks : 0);
}

TEST(DraftEnginePolicies, EachSessionIsJudgedByItsOwnRow) {
  ExpectJudgedByTheirOwnRows(/*draws=*/false);
}

TEST(DraftEnginePolicies, ItIsSoWhereTheModelDraws) {
  ExpectJudgedByTheirOwnRows(/*draws=*/true);
}

TEST(DraftEnginePolicies, APolicyThatCannotRunRefusesItsSession) {
  struct Case {
    const char* policy;
    absl::StatusCode code;
    const char* message;
  };
  for (const Case& bad :
       {Case{"disco", absl::StatusCode::kFailedPrecondition,
             "--policy-file disco=DIR"},
        Case{"specdec++", absl::StatusCode::kFailedPrecondition,
             "--policy-file specdec++=DIR"},
        Case{"svip:h=nan", absl::StatusCode::kInvalidArgument, "in [0, 100]"},
        Case{"nonsense", absl::StatusCode::kInvalidArgument, "unknown"}}) {
    DraftFixture fixture;
    fixture.Open(WithPolicy(bad.policy, 4, false));
    fixture.Drain();
    EXPECT_EQ(fixture.failures[1].code(), bad.code);
    EXPECT_THAT(std::string(fixture.failures[1].message()),
                HasSubstr(bad.message));
    EXPECT_EQ(fixture.model.num_sequences(), 0);
  }
}

TEST(DraftEnginePolicies, SaysWhatAPolicyGoesWithout) {
  DraftFixture fixture;
  fixture.Open(WithPolicy("cali-ts", 4, false));
  fixture.Drain();
  EXPECT_THAT(fixture.policy_notes, ElementsAre(HasSubstr("no model score")));
  EXPECT_EQ(fixture.TakeDrafted(1).size(), 4u);
}

}  // namespace
}  // namespace nacre::draft_worker
