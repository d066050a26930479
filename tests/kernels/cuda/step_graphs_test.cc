// Steps of kernels that are recorded and queued as graphs: what is queued, in
// which order, and what fails how. On the emulated device.

#include "kernels/cuda/step_graphs.h"

#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/staging.h"
#include "tests/kernels/cuda/emulation/runtime.h"

namespace nacre::kernels::cuda {
namespace {

using emulation::counts;
using emulation::settings;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int kValues = 8;
constexpr int kKernels = 10;  // enough for a graph

class StepGraphsTest : public ::testing::Test {
 protected:
  StepGraphsTest() {
    emulation::ResetDevice();
    device_ = *Device::Open(0);
    staging_ = *Staging::Create(device_.get());
    graphs_ = std::make_unique<StepGraphs>();
    x_ = *device_->Allocate(kValues * sizeof(float));
    y_ = *device_->Allocate(kValues * sizeof(float));
    SetY(1);
  }
  ~StepGraphsTest() override {
    graphs_ = nullptr;
    EXPECT_EQ(counts.graphs, 0);
    emulation::ResetDevice();
  }

  void SetY(float value) {
    const std::vector<float> values(kValues, value);
    staging_->Upload(values.data(), kValues * sizeof(float), y_->data());
  }

  // x += y, `times` times.
  void Add(int times, int count = kValues) {
    for (int i = 0; i < times; ++i) {
      device_->Check(AddTo(device_->queue(), x_->f32(), y_->f32(),
                           static_cast<size_t>(count)),
                     "residual");
    }
  }
  void Step(int times, int count = kValues) {
    device_->BeginStep(graphs_.get());
    Add(times, count);
    device_->EndStep();
  }

  std::vector<float> X() {
    std::vector<float> values(kValues);
    device_->Check(
        cudaMemcpyAsync(values.data(), x_->data(), kValues * sizeof(float),
                        cudaMemcpyDeviceToHost, device_->stream()),
        "a copy");
    EXPECT_TRUE(device_->Synchronize().ok());
    return values;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<StepGraphs> graphs_;
  std::unique_ptr<Buffer> x_;
  std::unique_ptr<Buffer> y_;
};

TEST_F(StepGraphsTest, AStepThatComesAgainIsAGraph) {
  Step(kKernels);
  EXPECT_EQ(counts.launches, kKernels);
  EXPECT_EQ(counts.graph_launches, 0);
  EXPECT_THAT(X(), Each(kKernels));
  Step(kKernels);
  EXPECT_EQ(counts.launches, 2 * kKernels);  // captured
  EXPECT_EQ(counts.graph_launches, 1);
  EXPECT_THAT(X(), Each(2 * kKernels));
  SetY(100);
  Step(kKernels);
  Step(kKernels);
  EXPECT_EQ(counts.launches, 2 * kKernels);
  EXPECT_EQ(counts.graph_launches, 3);
  EXPECT_EQ(counts.graphs, 1);
  EXPECT_THAT(X(), Each(202 * kKernels));
  EXPECT_EQ(graphs_->counts(),
            (GraphCounts{.replayed = 2, .captured = 1, .plain = 1}));
}

TEST_F(StepGraphsTest, FewKernelsAreNoGraph) {
  const int few = static_cast<int>(StepGraphs::kLeastLaunches) - 1;
  for (int i = 0; i < 3; ++i) Step(few);
  EXPECT_EQ(counts.graph_launches, 0);
  EXPECT_EQ(counts.launches, 3 * few);
  EXPECT_EQ(graphs_->counts(), GraphCounts());
  EXPECT_THAT(X(), Each(3 * few));
}

TEST_F(StepGraphsTest, OutsideAStepNothingIsRecorded) {
  Add(1);
  EXPECT_EQ(counts.launches, 1);
  Step(kKernels);
  Add(1);
  EXPECT_EQ(counts.launches, kKernels + 2);
}

// Arguments, grids, kernels and their number tell steps apart.
TEST_F(StepGraphsTest, WhatDiffersIsAnotherStep) {
  for (int i = 0; i < 3; ++i) {
    Step(kKernels);
    Step(kKernels, kValues - 1);
    Step(kKernels + 1);
    device_->BeginStep(graphs_.get());
    Add(kKernels - 1);
    device_->Check(GateRows(device_->queue(), y_->f32(), 1, 1, x_->f32()), "");
    device_->EndStep();
  }
  EXPECT_EQ(counts.graph_launches, 2 * 4);
  EXPECT_EQ(counts.graphs, 4);
}

TEST_F(StepGraphsTest, UploadsAndCopiesKeepTheirPlaceBetweenKernels) {
  for (int step = 1; step <= 4; ++step) {
    device_->BeginStep(graphs_.get());
    Add(kKernels);
    SetY(1000);
    Add(kKernels);
    // What was recorded so far is in it.
    EXPECT_THAT(X(), Each(1001 * kKernels * step));
    SetY(1);
    device_->EndStep();
  }
  EXPECT_EQ(counts.graphs, 1);  // the same twice a step
  EXPECT_EQ(counts.graph_launches, 7);
}

TEST_F(StepGraphsTest, AGraphNeverUsesABufferThatHasMoved) {
  for (int i = 0; i < 3; ++i) Step(kKernels);
  std::unique_ptr<Buffer> kept = std::move(y_);
  y_ = *device_->Allocate(kValues * sizeof(float));
  SetY(5);
  for (int i = 0; i < 3; ++i) Step(kKernels);
  EXPECT_THAT(X(), Each(3 * kKernels + 15 * kKernels));
  EXPECT_EQ(counts.graphs, 2);
}

// Kernels that are only recorded still need what a buffer held.
TEST_F(StepGraphsTest, GrowingABufferWaitsForWhatUsesIt) {
  device_->BeginStep(graphs_.get());
  Add(kKernels);
  ASSERT_TRUE(device_->Grow(1000, &y_));
  SetY(2);
  Add(kKernels);
  device_->EndStep();
  EXPECT_THAT(X(), Each(3 * kKernels));
}

TEST_F(StepGraphsTest, ForgetsTheStepThatWasUsedLongestAgo) {
  constexpr int kMost = static_cast<int>(StepGraphs::kMostSteps);
  const auto twice = [this](int times) {
    Step(times);
    Step(times);
  };
  for (int i = 0; i < kMost; ++i) twice(kKernels + i);
  EXPECT_EQ(counts.graphs, kMost);
  Step(kKernels);  // used again: the second is the oldest now
  twice(kKernels + kMost);
  EXPECT_EQ(counts.graphs, kMost);
  int launches = counts.launches;
  Step(kKernels);
  EXPECT_EQ(counts.launches, launches);  // a graph
  Step(kKernels + 1);
  EXPECT_EQ(counts.launches, launches + kKernels + 1);  // as new
  EXPECT_TRUE(device_->Synchronize().ok());
}

// As of ranks, which wait for each other twice a layer.
TEST_F(StepGraphsTest, AStepMayHaveManyLists) {
  constexpr int kLists = static_cast<int>(StepGraphs::kMostSteps) * 2 / 3;
  for (int turn = 0; turn < 3; ++turn) {
    counts.graph_launches = 0;
    for (const int count : {kValues, kValues - 1}) {
      device_->BeginStep(graphs_.get());
      for (int i = 0; i < kLists; ++i) {
        Add(kKernels + i, count);
        SetY(1);  // what is not a kernel ends a list
      }
      device_->EndStep();
    }
    EXPECT_EQ(counts.graph_launches, turn == 0 ? 0 : 2 * kLists);
  }
  EXPECT_EQ(counts.graphs, 2 * kLists);
  const int added = 3 * 2 * (kLists * kKernels + kLists * (kLists - 1) / 2);
  EXPECT_EQ(X().front(), added);
  EXPECT_EQ(X().back(), added / 2);
}

using FailingStepTest = StepGraphsTest;

void ExpectFailure(Device& device) {
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = device.Synchronize();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("kernels of a step: emulated error"));
  }
}

TEST_F(FailingStepTest, KeepsTheErrorOfALaunch) {
  settings.next_launch = cudaErrorLaunchOutOfResources;
  Step(kKernels);
  EXPECT_EQ(counts.launches, 1);
  Step(kKernels);
  EXPECT_EQ(counts.launches, 1);  // nothing is queued after an error
  ExpectFailure(*device_);
}

TEST_F(FailingStepTest, KeepsTheErrorOfALaunchInACapture) {
  Step(kKernels);
  settings.next_launch = cudaErrorLaunchOutOfResources;
  Step(kKernels);
  EXPECT_EQ(counts.graphs, 0);
  EXPECT_EQ(counts.graph_launches, 0);
  ExpectFailure(*device_);
}

TEST_F(FailingStepTest, KeepsTheErrorOfACapture) {
  Step(kKernels);
  settings.next_capture = cudaErrorUnknown;
  Step(kKernels);
  EXPECT_EQ(counts.graph_launches, 0);
  ExpectFailure(*device_);
}

TEST_F(FailingStepTest, KeepsTheErrorOfMakingAGraph) {
  Step(kKernels);
  settings.next_instantiation = cudaErrorUnknown;
  Step(kKernels);
  EXPECT_EQ(counts.graph_launches, 0);
  ExpectFailure(*device_);
}

TEST_F(FailingStepTest, KeepsTheErrorOfAGraphsLaunch) {
  Step(kKernels);
  Step(kKernels);
  settings.next_graph_launch = cudaErrorLaunchFailure;
  Step(kKernels);
  EXPECT_EQ(counts.graph_launches, 1);
  ExpectFailure(*device_);
}

TEST_F(FailingStepTest, MemoryForAGraphIsResourceExhausted) {
  Step(kKernels);
  settings.next_instantiation = cudaErrorMemoryAllocation;
  Step(kKernels);
  EXPECT_EQ(device_->Synchronize().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace nacre::kernels::cuda
