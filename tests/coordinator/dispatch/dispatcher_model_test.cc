// Targets of another model than the last ones.

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "coordinator/dispatch/dispatcher.h"
#include "speculation/estimators.h"
#include "tests/coordinator/dispatcher_fixture.h"

namespace nacre::coordinator {
namespace {

using speculation::FinishReason;

class DispatcherModelTest : public DispatcherTest {
 protected:
  // What is expected of the draft's tokens, in a new request.
  double Alpha(const Worker& target, const char* id) {
    const Run run = Start(id);
    EXPECT_NE(DraftAddress(run.id), "");
    Verdict(target, run.id, 2, {'x'}, FinishReason::kLength);
    return run.sink->completion()->alpha;
  }
  Worker AddModel(const std::string& fingerprint) {
    WorkerInfo info = Info(WorkerRole::kTarget, "target");
    info.fingerprint = fingerprint;
    return AddWith(std::move(info));
  }
};

// A draft that another model knew as bad may be right now.
TEST_F(DispatcherModelTest, AnotherModelForgetsWhatTheLastOneAccepted) {
  AddDraft();
  const Worker first = AddModel("first");
  const Run run = Start("measured");
  for (int i = 0; i < 10; ++i) {
    speculation::Verdict verdict;
    verdict.base_length = 2 + i;
    verdict.token_ids = {'x'};
    verdict.verified = verdict.window = 10;
    wire::TargetEvents events;
    events.verdicts.push_back({run.id, verdict});
    dispatcher_.OnEvents(first.id, events);
  }
  dispatcher_.Cancel(run.id);
  dispatcher_.RemoveWorker(first.id);
  const Worker again = AddModel("first");
  EXPECT_LT(Alpha(again, "again"), 0.2);
  dispatcher_.RemoveWorker(again.id);
  const Worker other = AddModel("other");
  EXPECT_DOUBLE_EQ(Alpha(other, "other"),
                   speculation::AcceptanceEstimator().alpha());
}

}  // namespace
}  // namespace nacre::coordinator
