// What a step that was queued ahead leaves to be done when it is asked for, and
// how it fails. On the emulated device.

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "model/load_model.h"
#include "tests/kernels/cuda/emulation/runtime.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

namespace emulation = kernels::cuda::emulation;
using Draws = std::vector<absl::optional<TokenDraw>>;

constexpr int kDeviceVocab = 101;

class CudaQueuedStepTest : public ::testing::Test {
 protected:
  CudaQueuedStepTest() {
    emulation::ResetDevice();
    const std::string dir = nacre::testing::TestFolder("queued");
    nacre::testing::WriteTinyCheckpoint({}, dir);
    kernels::BackendOptions options;
    options.kind = "cuda";
    backend_ = *kernels::CreateBackend(options);
    model_ = *LoadModel(dir, backend_.get(), {1 << 20, {}});
    sequence_ = *model_->NewSequence(100);
  }
  ~CudaQueuedStepTest() override { emulation::ResetDevice(); }

  // Feeds a token, with a draw after it, and one after that.
  absl::StatusOr<int32_t> Step(int32_t token, bool promises = true) {
    const int position = sequence_->length() + 1;
    const Draws draws = {TokenDraw{1, position, 1.0f, kDeviceVocab}};
    SequenceRows rows = {sequence_.get(), {&token, 1}, 1, draws};
    if (promises)
      rows.next_draw = TokenDraw{1, position + 1, 1.0f, kDeviceVocab};
    const absl::Status status = model_->Forward({rows}).status();
    if (!status.ok()) return status;
    return model_->drawn_tokens()[0];
  }

  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<LanguageModel> model_;
  std::unique_ptr<Sequence> sequence_;
};

TEST_F(CudaQueuedStepTest, AStepThatIsThereIsOnlyWaitedFor) {
  int32_t token = 1;
  for (int i = 0; i < 4; ++i) token = *Step(token);  // grows, learns its graph
  EXPECT_EQ(model_->queued_steps(), (QueuedSteps{3, 0}));
  emulation::ResetDevice();
  token = *Step(token, /*promises=*/false);
  EXPECT_EQ(emulation::counts.waits, 1);
  EXPECT_EQ(emulation::counts.uploads, 0);
  EXPECT_EQ(emulation::counts.launches, 0);
  EXPECT_EQ(emulation::counts.graph_launches, 0);
  EXPECT_EQ(emulation::counts.downloaded_bytes, 0u);
  EXPECT_EQ(model_->queued_steps(), (QueuedSteps{4, 0}));
}

TEST_F(CudaQueuedStepTest, OnlyTheStepBehindItIsQueued) {
  int32_t token = 1;
  for (int i = 0; i < 4; ++i) token = *Step(token);
  for (int i = 0; i < 10; ++i) {
    emulation::ResetDevice();
    token = *Step(token);
    // Its token is on the device; it comes to the host in the wait.
    EXPECT_EQ(emulation::counts.uploads, 1);
    EXPECT_EQ(emulation::counts.graph_launches, 1);
    EXPECT_EQ(emulation::counts.waits, 1);
    EXPECT_EQ(emulation::counts.downloaded_bytes, sizeof(int32_t));
  }
  EXPECT_EQ(model_->queued_steps(), (QueuedSteps{13, 0}));
}

TEST_F(CudaQueuedStepTest, WaitsForItsOwnStepOnly) {
  int32_t token = 1;
  for (int i = 0; i < 4; ++i) token = *Step(token);
  const int64_t left = emulation::Unfinished();
  EXPECT_GT(left, 0);
  ASSERT_TRUE(Step(token).ok());
  EXPECT_EQ(emulation::Unfinished(), left);  // as many of the next one
  ASSERT_TRUE(Step(1, /*promises=*/false).ok());
  EXPECT_EQ(emulation::Unfinished(), 0);
}

// The device still writes what a step that was dropped has drawn while that
// memory makes room for the next one.
TEST_F(CudaQueuedStepTest, ResultsThatNobodyWaitsForMayGrow) {
  const auto other = *model_->NewSequence(100);
  const std::vector<int32_t> tokens(2, 3);
  const auto drawn_by_both = [&](bool promises) {
    const Draws draws = {TokenDraw{1, 2, 1.0f, kDeviceVocab}};
    std::vector<SequenceRows> batch;
    for (Sequence* const sequence : {sequence_.get(), other.get()}) {
      sequence->Truncate(0);
      batch.push_back({sequence, tokens, 1, draws});
      if (promises)
        batch.back().next_draw = TokenDraw{1, 3, 1.0f, kDeviceVocab};
    }
    EXPECT_TRUE(model_->Forward(batch).ok());
    const auto ids = model_->drawn_tokens();
    return std::vector<int32_t>(ids.begin(), ids.end());
  };
  const std::vector<int32_t> drawn = drawn_by_both(false);
  sequence_->Truncate(0);
  ASSERT_TRUE(Step(1).ok());
  EXPECT_EQ(drawn_by_both(true), drawn);
  EXPECT_EQ(model_->queued_steps(), (QueuedSteps{0, 1}));
}

TEST_F(CudaQueuedStepTest, AModelMayGoAwayWithAStepQueued) {
  ASSERT_TRUE(Step(1).ok());
  EXPECT_GT(emulation::Unfinished(), 0);
  sequence_.reset();
  model_.reset();
}

TEST_F(CudaQueuedStepTest, AFaultInAStepThatIsQueuedIsAStatus) {
  int32_t token = 1;
  for (int i = 0; i < 3; ++i) token = *Step(token);
  emulation::settings.fault = cudaErrorIllegalAddress;
  EXPECT_EQ(Step(token).status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(sequence_->length(), 3);
  emulation::settings.fault = cudaSuccess;
  EXPECT_FALSE(Step(token).ok());
}

TEST_F(CudaQueuedStepTest, AStepThatCannotBeQueuedIsAStatus) {
  int32_t token = 1;
  for (int i = 0; i < 4; ++i) token = *Step(token);
  emulation::settings.next_graph_launch = cudaErrorLaunchFailure;
  EXPECT_EQ(Step(token).status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(sequence_->length(), 4);
}

}  // namespace
}  // namespace nacre::model
