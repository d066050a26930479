#include "tools/bench/step_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nacre::tools {
namespace {

constexpr v1::WorkerRole kTarget = v1::WORKER_ROLE_TARGET;
constexpr v1::WorkerRole kDraft = v1::WORKER_ROLE_DRAFT;

// The lanes of an answer: one worker of each role.
class Lanes {
 public:
  Lanes() {
    for (const v1::WorkerRole role : {kTarget, kDraft}) {
      v1::TraceLane* lane = complete_.add_trace();
      lane->set_role(role);
      lane->set_address(role == kTarget ? "host:1" : "host:2");
    }
  }

  Lanes& Target(v1::Span::Kind kind, uint64_t start_ns, int batch_rows,
                uint64_t duration_ns) {
    return Add(0, kind, start_ns, batch_rows, duration_ns);
  }
  Lanes& Draft(v1::Span::Kind kind, uint64_t start_ns, int batch_rows,
               uint64_t duration_ns) {
    return Add(1, kind, start_ns, batch_rows, duration_ns);
  }
  const google::protobuf::RepeatedPtrField<v1::TraceLane>& get() const {
    return complete_.trace();
  }

 private:
  Lanes& Add(int lane, v1::Span::Kind kind, uint64_t start_ns, int batch_rows,
             uint64_t duration_ns) {
    v1::Span* span = complete_.mutable_trace(lane)->add_spans();
    span->set_kind(kind);
    span->set_start_ns(start_ns);
    span->set_batch_rows(batch_rows);
    span->set_duration_ns(duration_ns);
    return *this;
  }

  v1::Complete complete_;
};

TEST(StepRecorderTest, AbandonedStepsAreNoStepTimes) {
  StepRecorder recorder;
  Lanes lanes;
  lanes.Draft(v1::Span::KIND_DRAFT, 1, 1, 100);
  recorder.Add(lanes.get());
  EXPECT_FALSE(recorder.abandons_steps());
  Lanes abandoned;
  abandoned.Draft(v1::Span::KIND_DRAFT, 200, 1, 10);
  google::protobuf::RepeatedPtrField<v1::TraceLane> changed = abandoned.get();
  changed.Mutable(1)->mutable_spans(0)->set_abandoned(true);
  recorder.Add(changed);
  EXPECT_TRUE(recorder.abandons_steps());
  ASSERT_TRUE(recorder.Curve(kDraft).has_value());
  EXPECT_EQ(recorder.Curve(kDraft)->At(1), 100);
}

TEST(StepRecorderTest, HasNothingBeforeAnyStep) {
  StepRecorder recorder;
  Lanes lanes;
  // Waits and roll-backs are no steps.
  lanes.Target(v1::Span::KIND_WAIT_DRAFT_TOKENS, 1, 4, 100)
      .Target(v1::Span::KIND_ROLLBACK, 2, 4, 100)
      .Target(v1::Span::KIND_VERIFY, 3, 0, 100)
      .Target(v1::Span::KIND_VERIFY, 4, 4, 0);
  recorder.Add(lanes.get());
  EXPECT_FALSE(recorder.Curve(kTarget).has_value());
  EXPECT_EQ(recorder.num_workers(kTarget), 0);
  EXPECT_EQ(recorder.PrefillShare(), 0.0);
  EXPECT_EQ(recorder.HeldUpShare(), 0.0);
}

TEST(StepRecorderTest, TakesTheMeanOfTheStepsOfEachNumberOfRows) {
  StepRecorder recorder;
  Lanes lanes;
  lanes.Target(v1::Span::KIND_VERIFY, 1, 1, 1000)
      .Target(v1::Span::KIND_VERIFY, 2, 5, 2000)
      .Target(v1::Span::KIND_VERIFY, 3, 1, 1400)
      .Draft(v1::Span::KIND_DRAFT, 1, 1, 300);
  recorder.Add(lanes.get());
  const auto target = recorder.Curve(kTarget);
  ASSERT_TRUE(target.has_value());
  ASSERT_EQ(target->points().size(), 2);
  EXPECT_EQ(target->points()[0].rows, 1);
  EXPECT_EQ(target->points()[0].ns, 1200.0);
  EXPECT_EQ(target->points()[1].rows, 5);
  EXPECT_EQ(target->points()[1].ns, 2000.0);
  EXPECT_EQ(recorder.Curve(kDraft)->At(1), 300);
  EXPECT_EQ(recorder.num_workers(kDraft), 1);
}

TEST(StepRecorderTest, CountsAStepOfSeveralSessionsOnce) {
  StepRecorder recorder;
  for (int session = 0; session < 3; ++session) {
    Lanes lanes;
    lanes.Target(v1::Span::KIND_VERIFY, 10, 3, 900)
        .Target(v1::Span::KIND_VERIFY, 20 + session, 3, 1100);
    recorder.Add(lanes.get());
  }
  // One of 900 and three of 1100.
  EXPECT_EQ(recorder.Curve(kTarget)->At(3), 1050);
  EXPECT_EQ(recorder.num_workers(kTarget), 1);
}

TEST(StepRecorderTest, LeavesOutWhatSomethingElseHeldUp) {
  StepRecorder recorder;
  Lanes lanes;
  uint64_t start_ns = 0;
  for (const uint64_t duration : {1000, 1100, 2000, 50000, 900}) {
    lanes.Target(v1::Span::KIND_VERIFY, ++start_ns, 2, duration);
  }
  recorder.Add(lanes.get());
  EXPECT_EQ(recorder.Curve(kTarget)->At(2), (1000 + 1100 + 2000 + 900) / 4);
  EXPECT_DOUBLE_EQ(recorder.HeldUpShare(), 50000.0 / 55000.0);
  // A draft that nothing held up has its part of the time.
  Lanes draft;
  recorder.Add(draft.Draft(v1::Span::KIND_DRAFT, 1, 1, 45000).get());
  EXPECT_DOUBLE_EQ(recorder.HeldUpShare(), 0.5);
}

TEST(StepRecorderTest, KnowsThePartOfPrompts) {
  StepRecorder recorder;
  Lanes lanes;
  // A prompt alone; its end with the first step; a step.
  lanes.Target(v1::Span::KIND_PREFILL, 1, 100, 5000)
      .Target(v1::Span::KIND_PREFILL, 2, 20, 1000)
      .Target(v1::Span::KIND_VERIFY, 2, 20, 1000)
      .Target(v1::Span::KIND_VERIFY, 3, 1, 4000)
      .Draft(v1::Span::KIND_PREFILL, 1, 100, 90000);
  recorder.Add(lanes.get());
  EXPECT_DOUBLE_EQ(recorder.PrefillShare(), 0.6);
  EXPECT_EQ(recorder.Curve(kTarget)->At(100), 5000);
}

}  // namespace
}  // namespace nacre::tools
