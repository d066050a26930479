// On the emulated device, where copies are made as late as they may be.

#include "kernels/cuda/staging.h"

#include <cstdint>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/cuda/emulation/runtime.h"

namespace nacre::kernels::cuda {
namespace {

class StagingTest : public ::testing::Test {
 protected:
  StagingTest() {
    emulation::ResetDevice();
    device_ = *Device::Open(0);
    staging_ = *Staging::Create(device_.get());
  }

  std::vector<uint32_t> Download(Buffer& buffer, size_t count) {
    std::vector<uint32_t> values(count);
    EXPECT_EQ(cudaMemcpy(values.data(), buffer.data(), count * 4,
                         cudaMemcpyDeviceToHost),
              cudaSuccess);
    return values;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Staging> staging_;
};

TEST_F(StagingTest, UploadsMoreThanItHolds) {
  const size_t count = 6 * Staging::kPieceBytes / 4 + 11;
  std::vector<uint32_t> values(count);
  std::iota(values.begin(), values.end(), 1u);
  const auto buffer = device_->Allocate(4 * count);
  ASSERT_TRUE(buffer.ok());
  staging_->Upload(values.data(), 4 * count, (*buffer)->data());
  const std::vector<uint32_t> sent = values;
  values.assign(count, 0);  // the call has returned
  EXPECT_EQ(Download(**buffer, count), sent);
  EXPECT_TRUE(device_->Synchronize().ok());
}

TEST_F(StagingTest, ManySmallUploadsKeepTheirOrderAndTheirContents) {
  constexpr size_t kCount = 1000;
  const auto buffer = device_->Allocate(4 * kCount);
  ASSERT_TRUE(buffer.ok());
  // 20 MB in all: every piece is used again.
  for (uint32_t i = 0; i < 5000; ++i) {
    const std::vector<uint32_t> values(kCount, i);
    staging_->Upload(values.data(), 4 * kCount, (*buffer)->data());
  }
  EXPECT_EQ(Download(**buffer, kCount), std::vector<uint32_t>(kCount, 4999));
}

TEST_F(StagingTest, TheHostDoesNotWaitForSmallUploads) {
  const std::vector<uint32_t> values(1000, 7);
  const auto buffer = device_->Allocate(4 * values.size());
  ASSERT_TRUE(buffer.ok());
  const int waits = emulation::counts.waits;
  for (int i = 0; i < 4000; ++i) {
    staging_->Upload(values.data(), 4 * values.size(), (*buffer)->data());
  }
  EXPECT_EQ(emulation::counts.waits, waits);
}

TEST_F(StagingTest, AFaultIsKeptByTheDevice) {
  const std::vector<uint32_t> values(6 * Staging::kPieceBytes / 4);
  const auto buffer = device_->Allocate(4 * values.size());
  ASSERT_TRUE(buffer.ok());
  emulation::settings.fault = cudaErrorECCUncorrectable;
  staging_->Upload(values.data(), 4 * values.size(), (*buffer)->data());
  emulation::settings.fault = cudaSuccess;
  EXPECT_EQ(device_->Synchronize().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace nacre::kernels::cuda
