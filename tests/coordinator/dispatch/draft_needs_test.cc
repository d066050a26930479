#include "coordinator/dispatch/draft_needs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/coordinator/dispatcher_queue_fixture.h"

namespace nacre::coordinator {
namespace {

using DraftNeedsTest = DispatcherQueueTest;

TEST_F(DraftNeedsTest, AreForTheTextSoFarAndALittleMore) {
  const RequestSpec request = Sized("r", 4096);  // of 2 tokens and 4094
  EXPECT_EQ(LeastDraftNeed(request, 0), 528);
  EXPECT_EQ(LeastDraftNeed(request, 1000), 1520);
  EXPECT_EQ(LeastDraftNeed(request, 4000), 4096);
  EXPECT_EQ(LeastDraftNeed(Sized("r", 48), 0), 48);
}

TEST_F(DraftNeedsTest, ATextMayNotBeLongerThanTheContext) {
  const WorkerInfo draft = Info(WorkerRole::kDraft, "draft");  // of 1024
  EXPECT_TRUE(CouldDraft(draft, Sized("r", 4096), 0));
  EXPECT_TRUE(CouldDraft(draft, Sized("r", 4096), 1024));
  EXPECT_FALSE(CouldDraft(draft, Sized("r", 4096), 1025));
  RequestSpec request = Sized("r", 4096);
  request.prompt_ids.assign(1025, 7);
  EXPECT_FALSE(CouldDraft(draft, request, 0));
}

// The draft's context is 1024 (Info): it may stop short of the target's length.
TEST_F(DraftNeedsTest, ADraftNeedsRoomForItsOwnContextOnly) {
  AddTarget("target", 8192);
  const Worker draft = AddDraft("draft", 1024);
  const Run run = Start(Sized("long", 4096));
  EXPECT_EQ(DraftAddress(run.id), "draft");
  EXPECT_EQ(Reserved(draft), 1024);
}

// It lacks no room: others that need as much may find it.
TEST_F(DraftNeedsTest, ATextThatIsTooLongHoldsUpNoOther) {
  AddTarget("target", 8192);
  RequestSpec request = Sized("long", 2048);
  request.prompt_ids.assign(1025, 7);
  request.max_tokens = 8;  // needs 1040
  const Run run = Start(std::move(request));
  const Run second = Start(Sized("second", 4096));
  request = Sized("third", 4096);
  request.prompt_ids.assign(600, 7);  // needs 1120
  request.max_tokens = 1000;
  const Run third = Start(std::move(request));
  AddDraft("draft", 4096);
  EXPECT_EQ(DraftAddress(run.id), "");
  EXPECT_EQ(DraftAddress(second.id), "draft");
  EXPECT_EQ(DraftAddress(third.id), "draft");
}

// Without room for a whole text a draft is told how far it has some.
TEST_F(DraftNeedsTest, ADraftWithLessKvThanItsContextDrafts) {
  AddTarget("target", 8192);
  WorkerInfo info = Info(WorkerRole::kDraft, "draft");
  info.context_length = 8192;
  info.kv_capacity_tokens = 2048;
  const Worker draft = AddWith(info);
  const Run run = Start(Sized("long", 4096));
  EXPECT_EQ(DraftAddress(run.id), "draft");
  EXPECT_EQ(Reserved(draft), 1024);
  const Run second = Start(Sized("second", 4096));
  EXPECT_EQ(DraftAddress(second.id), "draft");
  EXPECT_EQ(Reserved(draft), 1024 + 528);
}

}  // namespace
}  // namespace nacre::coordinator
