// The words of the pipeline, and whole round trips of each method between a
// draft and a target, worked out by hand. The autoregressive stream after the
// prompt {100} is 101, 102, 103, ...

#include "speculation/pipeline.h"

#include <vector>

#include "gtest/gtest.h"
#include "speculation/draft_session.h"
#include "speculation/target_session.h"

namespace nacre::speculation {
namespace {

using Ids = std::vector<int32_t>;
using Readiness = TargetSession::Readiness;

TEST(Pipeline, MethodNamesGoBothWays) {
  for (const Method method :
       {Method::kAr, Method::kSd, Method::kPearl, Method::kAsync}) {
    EXPECT_EQ(MethodFromName(MethodName(method)), method);
  }
  EXPECT_EQ(MethodName(Method::kAsync), "async");
  EXPECT_EQ(MethodFromName("ASYNC"), absl::nullopt);
  EXPECT_EQ(MethodFromName(""), absl::nullopt);
  EXPECT_EQ(MethodFromName("pearl "), absl::nullopt);
}

TEST(Pipeline, AblationNamesGoBothWays) {
  for (const Ablation ablation :
       {Ablation::kNone, Ablation::kNoPreVerify, Ablation::kNoPostVerify}) {
    EXPECT_EQ(AblationFromName(AblationName(ablation)), ablation);
  }
  EXPECT_EQ(AblationFromName("pre-verify"), absl::nullopt);
}

class RoundTrip : public testing::Test {
 protected:
  void Open(DraftPlan draft, TargetPlan target) {
    TargetSession::Options options;
    options.text.prompt_length = 1;
    options.text.max_tokens = 100;
    options.plan = target;
    options.epoch = 1;
    options.has_draft = true;
    target_.emplace(options, Ids{100});
    DraftSession::Options draft_options;
    draft_options.epoch = 1;
    draft_options.max_length = 100;
    draft_options.plan = draft;
    draft_.emplace(draft_options, Ids{100});
  }

  // Drafts and delivers tokens; all but the last may be followed by more.
  void Draft(const Ids& token_ids, StopMark last_stop) {
    for (size_t i = 0; i < token_ids.size(); ++i) {
      ASSERT_TRUE(draft_->WantsStep()) << "before token " << token_ids[i];
      const Tail tail = draft_->OnDrafted(token_ids[i]);
      EXPECT_EQ(tail.stop,
                i + 1 == token_ids.size() ? last_stop : StopMark::kNone);
      ASSERT_EQ(target_->OnTail(tail), TargetSession::TailOutcome::kApplied);
    }
  }

  Ids Begin() {
    EXPECT_EQ(target_->CheckReady(0), Readiness::kReady);
    const absl::Span<const int32_t> rows = target_->BeginStep();
    return {rows.begin(), rows.end()};
  }

  // The target draws the stream; the draft hears of the verdict.
  Verdict Finish(int num_drawn) {
    Ids drawn;
    for (int i = 0; i < num_drawn; ++i) {
      drawn.push_back(100 + target_->committed_length() + i);
    }
    const Verdict verdict = target_->FinishStep(drawn);
    draft_->OnCommit({verdict.base_length, verdict.token_ids});
    return verdict;
  }

  void ExpectCounts(const Verdict& verdict, int committed, int matched,
                    int verified, int accepted) {
    EXPECT_EQ(static_cast<int>(verdict.token_ids.size()), committed);
    EXPECT_EQ(verdict.matched, matched);
    EXPECT_EQ(verdict.verified, verified);
    EXPECT_EQ(verdict.accepted, accepted);
  }

  absl::optional<TargetSession> target_;
  absl::optional<DraftSession> draft_;
};

TEST_F(RoundTrip, PearlWithWindowFour) {
  Open({4, 7}, {0, 3, 3, 1000});
  // Pre-verify: the target steps at once while the draft makes a chunk.
  EXPECT_EQ(Begin(), Ids());
  Draft({101, 102, 103, 104}, StopMark::kLead);
  ExpectCounts(Finish(1), 1, 0, 1, 1);
  // Post-verify: three of the chunk, while the draft makes the next one.
  EXPECT_EQ(Begin(), (Ids{102, 103, 104}));
  Draft({105, 106, 107, 108}, StopMark::kLead);
  ExpectCounts(Finish(4), 4, 3, 4, 4);
  // A mismatch inside the next chunk, at 107.
  EXPECT_EQ(Begin(), (Ids{106, 107, 108}));
  Draft({109, 999, 998, 997}, StopMark::kLead);
  ExpectCounts(Finish(4), 4, 3, 4, 4);
  EXPECT_EQ(Begin(), (Ids{999, 998, 997}));
  Draft({996, 995, 994, 993}, StopMark::kLead);
  ExpectCounts(Finish(1), 1, 0, 1, 0);
  EXPECT_EQ(draft_->tokens().back(), 110);
  EXPECT_EQ(draft_->kv_limit(), 10);
  // Pre-verify again; this time its first token is wrong.
  EXPECT_EQ(Begin(), Ids());
  Draft({999, 112, 113, 114}, StopMark::kLead);
  ExpectCounts(Finish(1), 1, 0, 1, 0);
  EXPECT_EQ(Begin(), Ids());
  EXPECT_EQ(target_->committed().back(), 111);
}

TEST_F(RoundTrip, PearlWithoutPostVerifyEndsAChunkWithItsVerification) {
  TargetPlan plan = {0, 3, 3, 1000};
  plan.ends_chunks = true;
  Open({4, 4}, plan);
  EXPECT_EQ(Begin(), Ids());
  Draft({101, 102, 103}, StopMark::kNone);
  ExpectCounts(Finish(1), 1, 0, 1, 1);
  // The rest of the chunk is waited for, and verified alone.
  EXPECT_EQ(target_->CheckReady(0), Readiness::kWaitDraft);
  Draft({104}, StopMark::kNone);
  EXPECT_EQ(Begin(), (Ids{102, 103, 104}));
  Draft({105}, StopMark::kLead);
  ExpectCounts(Finish(4), 4, 3, 4, 4);
  // All of it was right. Another begins, as it would after a mismatch.
  EXPECT_EQ(Begin(), Ids());
  Draft({106, 107, 108, 109}, StopMark::kLead);
  ExpectCounts(Finish(1), 1, 0, 1, 1);
  EXPECT_EQ(Begin(), (Ids{107, 108, 109}));
}

TEST_F(RoundTrip, PearlWaitsForAFullChunkInFlow) {
  Open({4, 7}, {0, 3, 3, 1000});
  Begin();
  Draft({101, 102, 103}, StopMark::kNone);
  Finish(1);
  EXPECT_EQ(target_->CheckReady(0), Readiness::kWaitDraft);
  Draft({104}, StopMark::kNone);
  EXPECT_EQ(Begin(), (Ids{102, 103, 104}));
}

TEST_F(RoundTrip, SdWithWindowThree) {
  Open({3, 3}, {3, 3, 3, 1000});
  EXPECT_EQ(target_->CheckReady(0), Readiness::kWaitDraft);
  Draft({101, 102, 103}, StopMark::kLead);
  EXPECT_EQ(Begin(), (Ids{101, 102, 103}));
  EXPECT_FALSE(draft_->WantsStep());    // it waits for the verdict
  ExpectCounts(Finish(4), 4, 3, 3, 3);  // the fourth is the target's own
  EXPECT_EQ(target_->CheckReady(0), Readiness::kWaitDraft);
  Draft({105, 999, 998}, StopMark::kLead);
  EXPECT_EQ(Begin(), (Ids{105, 999, 998}));
  ExpectCounts(Finish(2), 2, 1, 2, 1);
  EXPECT_EQ(draft_->tokens(), target_->committed());
  EXPECT_EQ(target_->CheckReady(0), Readiness::kWaitDraft);
}

TEST_F(RoundTrip, AsyncTakesWhatIsThere) {
  Open({9, 9}, {2, 0, 4, 1000});
  EXPECT_EQ(target_->CheckReady(0), Readiness::kWaitDraft);
  Draft({101, 102}, StopMark::kNone);
  EXPECT_EQ(Begin(), (Ids{101, 102}));
  Draft({103, 104}, StopMark::kNone);
  ExpectCounts(Finish(3), 3, 2, 3, 3);
  EXPECT_EQ(Begin(), Ids{104});  // in flow it does not wait
  ExpectCounts(Finish(2), 2, 1, 1, 1);
  EXPECT_EQ(Begin(), Ids());  // nor while e1 is on its way
  // The draft has heard that 105 is committed and goes on after it.
  Draft({106, 107, 108, 109, 110, 111}, StopMark::kNone);
  ExpectCounts(Finish(1), 1, 0, 1, 1);
  EXPECT_EQ(Begin(), (Ids{107, 108, 109, 110}));  // no more than the window
  Draft({999, 998}, StopMark::kNone);
  ExpectCounts(Finish(5), 5, 4, 5, 5);
  EXPECT_EQ(Begin(), (Ids{999, 998}));
  ExpectCounts(Finish(1), 1, 0, 1, 0);
  EXPECT_EQ(target_->CheckReady(0), Readiness::kWaitDraft);
}

TEST_F(RoundTrip, AutoregressiveNeedsNoDraft) {
  Open({0, 0}, {0, 0, 0, 0});
  EXPECT_FALSE(draft_->WantsStep());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Begin(), Ids());
    ExpectCounts(Finish(1), 1, 0, 0, 0);
  }
  EXPECT_EQ(draft_->tokens(), (Ids{100, 101, 102, 103}));
}

}  // namespace
}  // namespace nacre::speculation
