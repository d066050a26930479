#include "worker/tensors/nccl_lanes.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "tests/worker/tensors/nccl_stand_in.h"
#include "tests/worker/tensors/recording_sink.h"

namespace nacre::worker {
namespace {

using Lane = std::unique_ptr<NcclLane>;

// What no test frees, ~NcclStandIn and ~NcclApi find.
class NcclLanesTest : public ::testing::Test {
 protected:
  NcclLanesTest() { EXPECT_TRUE(api_->BindThread().ok()); }

  Lane Take() {
    absl::StatusOr<Lane> lane = lanes_.Take();
    EXPECT_TRUE(lane.ok()) << lane.status();
    return lane.ok() ? *std::move(lane) : nullptr;
  }

  NcclStandIn nccl_;
  const std::unique_ptr<kernels::NcclApi> api_ = nccl_.Open();
  NcclLanes lanes_{api_.get(), 16};
};

TEST_F(NcclLanesTest, OneThatHasEndedIsTakenAgain) {
  Lane first = Take(), second = Take();
  const NcclLane* const of_first = first.get();
  EXPECT_NE(first->stream, second->stream);
  const int objects = nccl_.num_objects();
  const kernels::NcclApi::Event mark = first->slots[0].event;
  lanes_.GiveBack(std::move(first));
  EXPECT_TRUE(Eventually([&] { return *api_->EventIsDone(mark); }));
  Lane third = Take();
  EXPECT_EQ(third.get(), of_first);
  EXPECT_EQ(nccl_.num_objects(), objects);
  lanes_.GiveBack(std::move(second));
  lanes_.GiveBack(std::move(third));
}

TEST_F(NcclLanesTest, OneWhoseStreamIsAtWorkIsNotTaken) {
  const std::string id = *api_->GetUniqueId();
  const auto receiver = *api_->CommInitRank(id, 1, 2);
  const auto sender = *api_->CommInitRank(id, 0, 2);
  Lane lane = Take(), spare = Take();
  const NcclLane* const idle = spare.get();
  const kernels::NcclApi::Event mark = spare->slots[0].event;
  ASSERT_TRUE(
      api_->Recv(lane->slots[1].device, 16, 0, receiver, lane->stream).ok());
  EXPECT_TRUE(Eventually([&] { return *api_->CommIsIdle(receiver); }));
  lanes_.GiveBack(std::move(lane));
  lanes_.GiveBack(std::move(spare));
  EXPECT_TRUE(Eventually([&] { return *api_->EventIsDone(mark); }));
  Lane other = Take();
  EXPECT_EQ(other.get(), idle);
  lanes_.GiveBack(std::move(other));
  api_->CommAbort(receiver);
  api_->CommAbort(sender);
}

// The next one has what there was room for, and nothing is lost.
TEST_F(NcclLanesTest, OneThatLacksSomethingIsCompletedLater) {
  const int objects = nccl_.num_objects();
  nccl_.FailCall(nccl_.num_calls() + 5);
  EXPECT_EQ(lanes_.Take().status(),
            absl::InternalError("a call that was told to fail"));
  EXPECT_EQ(nccl_.num_objects(), objects + 5);
  Lane lane = Take();
  EXPECT_EQ(nccl_.num_objects(), objects + 13);
  for (const NcclLane::Slot& slot : lane->slots) {
    EXPECT_NE(slot.device, nullptr);
    EXPECT_NE(slot.host, nullptr);
    EXPECT_NE(slot.event, nullptr);
  }
  lanes_.GiveBack(std::move(lane));
}

// Its stream may still be at work. So no link takes it, and the lanes free it
// with themselves.
TEST_F(NcclLanesTest, OneWhoseEndCannotBeMarkedIsNotTaken) {
  Lane lane = Take();
  const NcclLane* const unmarked = lane.get();
  nccl_.FailCall(nccl_.num_calls());
  lanes_.GiveBack(std::move(lane));
  Lane other = Take();
  EXPECT_NE(other.get(), unmarked);
  lanes_.GiveBack(std::move(other));
}

}  // namespace
}  // namespace nacre::worker
