// Steps as one kernel: which they are, what is sent for them, and what fails
// how. On the emulated device. Whole models:
// tests/model/cuda_persistent_test.cc.

#include "kernels/cuda/persistent_steps.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/persistent.h"
#include "kernels/cuda/staging.h"
#include "kernels/cuda/step_graphs.h"
#include "tests/kernels/cuda/emulation/runtime.h"

namespace nacre::kernels::cuda {
namespace {

using emulation::counts;
using emulation::settings;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int kCols = 256;   // a block's
constexpr int kPhases = 10;  // enough
constexpr int kMultiprocessors = 3;
constexpr int kMostRows =
    kMultiprocessors * static_cast<int>(PersistentSteps::kMostTurns);

class PersistentStepsTest : public ::testing::Test {
 protected:
  PersistentStepsTest() {
    emulation::ResetDevice();
    settings.multiprocessors = kMultiprocessors;
    Open();
  }
  ~PersistentStepsTest() override {
    Close();
    emulation::ResetDevice();
  }

  void Open() {
    device_ = *Device::Open(0);
    staging_ = *Staging::Create(device_.get());
    graphs_ = std::make_unique<StepGraphs>();
    steps_ = std::make_unique<PersistentSteps>(device_.get(), staging_.get(),
                                               graphs_.get());
    x_ = *device_->Allocate((kMostRows + 1) * kCols * sizeof(float));
    bias_ = *device_->Allocate(kCols * sizeof(float));
    const std::vector<float> ones(kCols, 1);
    staging_->Upload(ones.data(), kCols * sizeof(float), bias_->data());
    const size_t used_bytes = counts.used_bytes;
    counts = emulation::DeviceCounts();
    counts.used_bytes = used_bytes;
  }
  void Close() {
    steps_ = nullptr;
    graphs_ = nullptr;
    x_ = nullptr;
    bias_ = nullptr;
    staging_ = nullptr;
    device_ = nullptr;
  }

  // x[:rows] += 1, `times` times.
  void Add(int times, int rows) {
    for (int i = 0; i < times; ++i) {
      device_->Check(
          AddToRows(device_->queue(), x_->f32(), rows, kCols, bias_->f32()),
          "bias");
    }
  }
  void Step(int times, int rows = 1) {
    device_->BeginStep(steps_.get());
    Add(times, rows);
    device_->EndStep();
  }

  // Of one row.
  std::vector<float> X(int row = 0) {
    std::vector<float> values(kCols);
    device_->Check(cudaMemcpyAsync(values.data(), x_->f32() + row * kCols,
                                   kCols * sizeof(float),
                                   cudaMemcpyDeviceToHost, device_->stream()),
                   "a copy");
    EXPECT_TRUE(device_->Synchronize().ok());
    return values;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<StepGraphs> graphs_;
  std::unique_ptr<PersistentSteps> steps_;
  std::unique_ptr<Buffer> x_;
  std::unique_ptr<Buffer> bias_;
};

TEST_F(PersistentStepsTest, AStepIsOneLaunchAndIsSentOnce) {
  for (int i = 1; i <= 5; ++i) {
    Step(kPhases, kMostRows);
    EXPECT_EQ(counts.launches, i);
    EXPECT_EQ(counts.uploads, 1);
  }
  EXPECT_EQ(counts.cooperative_launches, 5);
  EXPECT_EQ(counts.allocations, 1);
  EXPECT_EQ(steps_->count(), 5u);
  EXPECT_EQ(graphs_->counts(), GraphCounts());
  EXPECT_THAT(X(), Each(5 * kPhases));
  EXPECT_THAT(X(kMostRows - 1), Each(5 * kPhases));
  EXPECT_THAT(X(kMostRows), Each(0));
}

TEST_F(PersistentStepsTest, OthersAreGraphs) {
  const auto twice = [&](const auto& kernels) {
    for (int i = 0; i < 2; ++i) {
      device_->BeginStep(steps_.get());
      kernels();
      device_->EndStep();
    }
  };
  // A kernel that can be no phase.
  twice([&] {
    Add(kPhases, 1);
    device_->Check(ScaleBy(device_->queue(), x_->f32(), kCols, 2), "scale");
  });
  // More blocks than multiprocessors take in a few turns.
  twice([&] { Add(kPhases, kMostRows + 1); });
  // Too few to be worth it, though not as a graph.
  twice([&] { Add(static_cast<int>(PersistentSteps::kLeastPhases) - 1, 1); });
  EXPECT_EQ(counts.graph_launches, 3);
  // Nor as one.
  twice([&] { Add(static_cast<int>(StepGraphs::kLeastLaunches) - 1, 1); });
  EXPECT_EQ(counts.graph_launches, 3);
  EXPECT_EQ(steps_->count(), 0u);
  EXPECT_EQ(counts.cooperative_launches, 0);
  EXPECT_EQ(graphs_->counts(), (GraphCounts{.captured = 3, .plain = 3}));
}

// A kernel of its own might have all the shared memory that a block can have.
TEST_F(PersistentStepsTest, ABlockKeepsSomeSharedMemoryForItsPhases) {
  // A norm needs 32 bytes.
  const auto step = [&] {
    device_->BeginStep(steps_.get());
    for (int i = 0; i < kPhases; ++i) {
      device_->Check(NormalizeRows(device_->queue(), x_->f32(), 1, kCols,
                                   bias_->f32(), 1e-5f, x_->f32()),
                     "norm");
    }
    device_->EndStep();
  };
  step();
  EXPECT_EQ(steps_->count(), 1u);
  Close();
  settings.shared_limit = static_cast<int>(PersistentSharedBytes(32)) - 1;
  Open();
  step();
  EXPECT_EQ(steps_->count(), 0u);
}

TEST_F(PersistentStepsTest, ListsThatDifferHavePhasesOfTheirOwn) {
  for (int i = 0; i < 3; ++i) {
    Step(kPhases, 1);
    Step(kPhases, 2);
    Step(kPhases + 1, 2);
  }
  EXPECT_EQ(counts.uploads, 3);
  EXPECT_EQ(counts.cooperative_launches, 9);
  EXPECT_THAT(X(0), Each(9 * kPhases + 3));
  EXPECT_THAT(X(1), Each(6 * kPhases + 3));
}

TEST_F(PersistentStepsTest, ForgetsTheListThatWasUsedLongestAgo) {
  constexpr int kMost = static_cast<int>(PersistentSteps::kMostLists);
  const auto step = [&](int i) {
    Step(kPhases + i / kMostRows, 1 + i % kMostRows);
  };
  for (int i = 0; i < kMost; ++i) step(i);
  step(0);  // used again: the second is the oldest now
  EXPECT_EQ(counts.uploads, kMost);
  step(kMost);
  step(0);
  step(2);
  EXPECT_EQ(counts.uploads, kMost + 1);
  step(1);
  EXPECT_EQ(counts.uploads, kMost + 2);
  EXPECT_EQ(counts.allocations, 1);
}

// Then all that were kept are sent again.
TEST_F(PersistentStepsTest, MakesRoomForLongerLists) {
  Step(kPhases);
  Step(2 * kPhases);
  EXPECT_EQ(counts.allocations, 1);
  Step(2 * kPhases + 1);
  EXPECT_EQ(counts.allocations, 2);
  EXPECT_EQ(counts.uploads, 3);
  Step(kPhases);
  Step(2 * kPhases + 1);
  EXPECT_EQ(counts.uploads, 4);
  EXPECT_THAT(X(), Each(8 * kPhases + 2));
}

TEST_F(PersistentStepsTest, UploadsAndCopiesKeepTheirPlaceBetweenKernels) {
  for (int step = 1; step <= 3; ++step) {
    device_->BeginStep(steps_.get());
    Add(kPhases, 1);
    const std::vector<float> large(kCols, 1000);
    staging_->Upload(large.data(), kCols * sizeof(float), bias_->data());
    Add(kPhases, 1);
    EXPECT_THAT(X(), Each(1001 * kPhases * step));
    const std::vector<float> ones(kCols, 1);
    staging_->Upload(ones.data(), kCols * sizeof(float), bias_->data());
    device_->EndStep();
  }
  EXPECT_EQ(counts.cooperative_launches, 6);
}

// Counts that have wrapped around.
TEST_F(PersistentStepsTest, MayBeLaunchedAnyNumberOfTimes) {
  for (const unsigned launch :
       {1u, 0x7fffffffu, 0x80000000u, 0xffffffffu, 0u}) {
    std::vector<Phase> phases;
    RecordedLaunches launches;
    const Queue queue = {device_->stream(), false, &launches};
    for (int i = 0; i < kPhases; ++i) {
      AddToRows(queue, x_->f32(), kMultiprocessors, kCols, bias_->f32());
    }
    for (const RecordedLaunch& each : launches) phases.push_back(each.phase());
    const auto memory = *device_->Allocate(kPhases * sizeof(Phase));
    const auto done =
        *device_->Allocate(kPhases * kPhaseCountStride * sizeof(unsigned));
    staging_->Upload(phases.data(), kPhases * sizeof(Phase), memory->data());
    // As after all launches before.
    const std::vector<unsigned> before(kPhases * kPhaseCountStride,
                                       (launch - 1) * kMultiprocessors);
    staging_->Upload(before.data(), before.size() * sizeof(unsigned),
                     done->data());
    PersistentArgs args;
    args.phases = static_cast<const Phase*>(memory->data());
    args.count = kPhases;
    args.counts = static_cast<unsigned*>(done->data());
    args.launch = launch;
    device_->Check(LaunchPersistent(device_->stream(), kMultiprocessors,
                                    PersistentSharedBytes(0), args),
                   "phases");
    EXPECT_TRUE(device_->Synchronize().ok());
  }
  EXPECT_THAT(X(), Each(5 * kPhases));
}

TEST_F(PersistentStepsTest, KeepsTheErrorOfALaunch) {
  settings.next_launch = cudaErrorCooperativeLaunchTooLarge;
  Step(kPhases);
  EXPECT_EQ(counts.launches, 1);
  Step(kPhases);
  EXPECT_EQ(counts.launches, 1);  // nothing is queued after an error
  EXPECT_THAT(std::string(device_->Synchronize().message()),
              HasSubstr("kernels of a step: emulated error"));
}

TEST_F(PersistentStepsTest, NoRoomForPhasesIsResourceExhausted) {
  settings.memory_bytes = counts.used_bytes;
  Step(kPhases);
  EXPECT_EQ(device_->Synchronize().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(counts.launches, 0);
}

}  // namespace
}  // namespace nacre::kernels::cuda
