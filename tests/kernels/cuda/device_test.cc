// What a device refuses and how it fails, on the emulated one.

#include "kernels/cuda/device.h"

#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/token_drawer.h"
#include "tests/kernels/cuda/emulation/runtime.h"
#include "tests/kernels/kernel_testing.h"

namespace nacre::kernels::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class DeviceTest : public ::testing::Test {
 protected:
  DeviceTest() { emulation::ResetDevice(); }
  ~DeviceTest() override { emulation::ResetDevice(); }

  static void ExpectStatus(const absl::Status& status, absl::StatusCode code,
                           const ::testing::Matcher<std::string>& message) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), message);
  }
};

TEST_F(DeviceTest, StepsAsOneKernelNeedCooperativeLaunches) {
  BackendOptions options;
  options.kind = "cuda";
  options.kv_type = "bf16";
  options.persistent = true;
  EXPECT_TRUE(CreateBackend(options).ok());
  emulation::settings.cooperative = false;
  ExpectStatus(CreateBackend(options).status(),
               absl::StatusCode::kFailedPrecondition,
               HasSubstr("--persistent-steps: "));
  ExpectStatus(CreateBackend(options).status(),
               absl::StatusCode::kFailedPrecondition,
               HasSubstr(", has no cooperative launches"));
  options.persistent = false;
  EXPECT_TRUE(CreateBackend(options).ok());
}

TEST_F(DeviceTest, AttentionByWarpgroupsNeedsADeviceThatHasThem) {
  BackendOptions options;
  options.kind = "cuda";
  options.kv_type = "bf16";
  options.warpgroup_attention = true;
  EXPECT_TRUE(CreateBackend(options).ok());
  for (const int major : {8, 10}) {
    emulation::settings.major = major;
    ExpectStatus(CreateBackend(options).status(),
                 absl::StatusCode::kFailedPrecondition,
                 AllOf(HasSubstr("--warpgroup-attention: "),
                       HasSubstr(", is not of compute capability 9.0")));
  }
  options.warpgroup_attention = false;
  EXPECT_TRUE(CreateBackend(options).ok());
}

TEST_F(DeviceTest, SaysWhyThereIsNone) {
  emulation::settings.count_error = cudaErrorNoDevice;
  ExpectStatus(Device::Open(0).status(), absl::StatusCode::kFailedPrecondition,
               HasSubstr("device 0: no CUDA-capable device is detected"));
  BackendOptions options;
  options.kind = "cuda";
  ExpectStatus(CreateBackend(options).status(),
               absl::StatusCode::kFailedPrecondition,
               HasSubstr("cudaErrorNoDevice"));
  emulation::settings.count_error = cudaErrorInsufficientDriver;
  emulation::settings.driver_version = 12040;
  ExpectStatus(
      Device::Open(0).status(), absl::StatusCode::kFailedPrecondition,
      AllOf(HasSubstr("device 0: the NVIDIA driver is too old: it has CUDA "
                      "12.4, this program needs "),
            HasSubstr("cudaErrorInsufficientDriver")));
#if CUDART_VERSION / 1000 == 13
  EXPECT_THAT(std::string(Device::Open(0).status().message()),
              HasSubstr(", a driver of version 580 or later: "));
#endif
  emulation::settings.driver_version = 0;
  ExpectStatus(Device::Open(0).status(), absl::StatusCode::kFailedPrecondition,
               HasSubstr("device 0: no NVIDIA driver: "));
  emulation::settings.count_error = cudaErrorDevicesUnavailable;
  EXPECT_EQ(Device::Open(0).status().code(), absl::StatusCode::kUnavailable);
  emulation::settings.count_error = cudaSuccess;
  emulation::settings.devices = 0;
  EXPECT_EQ(Device::Open(0).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(DeviceTest, SaysHowManyThereAre) {
  ExpectStatus(Device::Open(3).status(), absl::StatusCode::kInvalidArgument,
               HasSubstr("device 3 does not exist: 1 found"));
  EXPECT_EQ(Device::Open(-1).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(DeviceTest, RefusesOneThatIsTooOld) {
  emulation::settings.major = 7;
  emulation::settings.minor = 5;
  ExpectStatus(Device::Open(0).status(), absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("emulated device"),
                     HasSubstr("compute capability 7.5, the least is 8.0")));
}

TEST_F(DeviceTest, KernelsOverlapOnlyWhereTheDeviceCan) {
  const auto hopper = Device::Open(0);
  ASSERT_TRUE(hopper.ok());
  EXPECT_TRUE((*hopper)->queue().overlap);
  EXPECT_EQ((*hopper)->sm(), "sm90");
  emulation::settings.major = 8;
  emulation::settings.minor = 6;
  const auto ampere = Device::Open(0);
  ASSERT_TRUE(ampere.ok());
  EXPECT_FALSE((*ampere)->queue().overlap);
  EXPECT_EQ((*ampere)->sm(), "sm86");
}

TEST_F(DeviceTest, GivesZeroedMemoryAndTakesItBack) {
  auto device = Device::Open(0);
  ASSERT_TRUE(device.ok());
  const size_t before = emulation::counts.used_bytes;
  {
    const auto buffer = (*device)->Allocate(1000);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ((*buffer)->size_bytes(), 1000u);
    std::vector<char> bytes(1000, 1);
    ASSERT_EQ(cudaMemcpy(bytes.data(), (*buffer)->data(), 1000,
                         cudaMemcpyDeviceToHost),
              cudaSuccess);
    EXPECT_EQ(bytes, std::vector<char>(1000, 0));
  }
  EXPECT_EQ(emulation::counts.used_bytes, before);
}

TEST_F(DeviceTest, SaysHowMuchRoomThereWas) {
  emulation::settings.memory_bytes = 5000;
  auto device = Device::Open(0);
  ASSERT_TRUE(device.ok());
  ExpectStatus(
      (*device)->Allocate(6000).status(), absl::StatusCode::kResourceExhausted,
      AllOf(HasSubstr("no room for 6000 bytes on device 0"),
            HasSubstr("5000 of 5000 are free"), HasSubstr("out of memory")));
  // Nothing was enqueued: the device goes on.
  EXPECT_TRUE((*device)->Synchronize().ok());
  EXPECT_TRUE((*device)->Allocate(4000).ok());
}

TEST_F(DeviceTest, KeepsToItsLimit) {
  auto device = Device::Open({0, 3000});
  ASSERT_TRUE(device.ok());
  auto first = (*device)->Allocate(2000);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ((*device)->Memory().available(), 1000);
  ExpectStatus((*device)->Allocate(1001).status(),
               absl::StatusCode::kResourceExhausted,
               AllOf(HasSubstr("no room for 1001 bytes on device 0"),
                     HasSubstr("; 2000 of the limit of 3000 are used")));
  EXPECT_TRUE((*device)->Synchronize().ok());
  first->reset();
  EXPECT_TRUE((*device)->Allocate(3000).ok());
  EXPECT_EQ((*device)->Memory().used, 0);
}

TEST_F(DeviceTest, GrowsAndKeepsTheErrorWhereItCannot) {
  emulation::settings.memory_bytes = 5000;
  auto device = Device::Open(0);
  ASSERT_TRUE(device.ok());
  std::unique_ptr<Buffer> buffer;
  ASSERT_TRUE((*device)->Grow(1000, &buffer));
  const void* const first = buffer->data();
  ASSERT_TRUE((*device)->Grow(500, &buffer));
  EXPECT_EQ(buffer->data(), first);
  ASSERT_TRUE((*device)->Grow(1001, &buffer));
  EXPECT_EQ(buffer->size_bytes(), 2000u);
  EXPECT_FALSE((*device)->Grow(6000, &buffer));
  EXPECT_EQ(buffer, nullptr);
  EXPECT_EQ((*device)->Synchronize().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(DeviceTest, KeepsHostMemoryOfBuffersThatAreGone) {
  auto device = Device::Open(0);
  ASSERT_TRUE(device.ok());
  (*device)->KeepPinned();
  auto buffer = (*device)->AllocatePinned(100'000);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ((*buffer)->size_bytes(), size_t{128} << 10);
  auto* const data = static_cast<char*>((*buffer)->data());
  EXPECT_EQ(data[99'999], 0);
  data[99'999] = 'x';
  buffer->reset();
  // Of memory that is freed a sanitizer tells.
  EXPECT_EQ(data[99'999], 'x');
  const auto other = (*device)->AllocatePinned(1);
  ASSERT_TRUE(other.ok());
  EXPECT_EQ((*other)->size_bytes(), size_t{64} << 10);
  EXPECT_NE((*other)->data(), data);
}

TEST_F(DeviceTest, GivesZeroedHostMemoryOrSaysHowMuchItWas) {
  auto device = Device::Open(0);
  ASSERT_TRUE(device.ok());
  for (const size_t bytes : {0, 1000}) {
    const auto buffer = (*device)->AllocatePinned(bytes);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ((*buffer)->size_bytes(), bytes);
    const auto* const data = static_cast<const char*>((*buffer)->data());
    EXPECT_EQ(std::vector<char>(data, data + bytes),
              std::vector<char>(bytes, 0));
  }
  ExpectStatus((*device)->AllocatePinned(size_t{1} << 60).status(),
               absl::StatusCode::kResourceExhausted,
               HasSubstr("1152921504606846976 bytes of pinned memory"));
  EXPECT_TRUE((*device)->Synchronize().ok());
}

class FailingBackendTest : public DeviceTest {
 protected:
  std::unique_ptr<Backend> backend_ = MakeBackend("cuda");
  std::unique_ptr<Buffer> x_ = *backend_->Allocate(64);
};

TEST_F(FailingBackendTest, KeepsTheFirstErrorOfALaunch) {
  emulation::settings.next_launch = cudaErrorLaunchOutOfResources;
  backend_->AddInPlace(x_->f32(), x_->f32() + 8, 8);
  const int launches = emulation::counts.launches;
  backend_->SiluMul(x_->f32(), 1, 4, x_->f32() + 8);  // not even queued
  EXPECT_EQ(emulation::counts.launches, launches);
  for (int i = 0; i < 2; ++i) {
    ExpectStatus(backend_->Synchronize(), absl::StatusCode::kInternal,
                 AllOf(HasSubstr("residual: "), HasSubstr("emulated error")));
  }
}

TEST_F(FailingBackendTest, ReportsAFaultOfAKernelWhenItWaits) {
  backend_->AddInPlace(x_->f32(), x_->f32() + 8, 8);
  EXPECT_TRUE(backend_->Synchronize().ok());
  backend_->AddInPlace(x_->f32(), x_->f32() + 8, 8);
  emulation::settings.fault = cudaErrorIllegalAddress;
  float values[8] = {};
  backend_->CopyToHost(x_->data(), sizeof(values), values);
  EXPECT_EQ(backend_->Synchronize().code(), absl::StatusCode::kInternal);
  emulation::settings.fault = cudaSuccess;
  EXPECT_EQ(backend_->Synchronize().code(), absl::StatusCode::kInternal);
}

TEST_F(FailingBackendTest, QueuedCopiesAreThereOnceItHasWaited) {
  const auto host = *backend_->AllocateOnHost(2 * sizeof(float));
  const float values[] = {3, 4};
  backend_->CopyFromHost(values, sizeof(values), x_->data());
  emulation::counts.waits = 0;
  backend_->QueueCopyToHost(x_->data(), 4, host->f32() + 1);
  backend_->QueueCopyToHost(x_->f32() + 1, 4, host->f32());
  EXPECT_EQ(emulation::counts.waits, 0);
  EXPECT_EQ(host->f32()[0], 0);
  ASSERT_TRUE(backend_->Synchronize().ok());
  EXPECT_EQ(host->f32()[0], 4);
  EXPECT_EQ(host->f32()[1], 3);
}

TEST_F(FailingBackendTest, AMarkIsWaitedForWithoutWhatIsBehindIt) {
  const auto host = *backend_->AllocateOnHost(2 * sizeof(float));
  const float values[] = {3, 4};
  backend_->CopyFromHost(values, sizeof(values), x_->data());
  backend_->QueueCopyToHost(x_->data(), 4, host->data());
  const int64_t first = backend_->Mark();
  backend_->QueueCopyToHost(x_->f32() + 1, 4, host->f32() + 1);
  const int64_t second = backend_->Mark();
  ASSERT_TRUE(backend_->WaitFor(first).ok());
  EXPECT_EQ(host->f32()[0], 3);
  EXPECT_EQ(host->f32()[1], 0);
  ASSERT_TRUE(backend_->WaitFor(second).ok());
  EXPECT_EQ(host->f32()[1], 4);
  emulation::settings.fault = cudaErrorIllegalAddress;
  EXPECT_EQ(backend_->WaitFor(second).code(), absl::StatusCode::kInternal);
  for (int i = 0; i < Device::kMarks; ++i) backend_->Mark();
  EXPECT_DEATH(backend_->WaitFor(second).IgnoreError(),
               "a mark that is forgotten");
  EXPECT_DEATH(backend_->WaitFor(second + Device::kMarks + 1).IgnoreError(),
               "a mark that is forgotten");
}

TEST_F(FailingBackendTest, DrawsLeaveTheirErrorsToSynchronize) {
  const RowDraw draw = {{1, 2, 1.0f, 8}, 0};
  auto* const ids = static_cast<int32_t*>(x_->data()) + 8;
  emulation::settings.next_launch = cudaErrorLaunchOutOfResources;
  backend_->token_drawer()->Draw(x_->f32(), 8, {draw}, ids);
  ExpectStatus(backend_->Synchronize(), absl::StatusCode::kInternal,
               HasSubstr("drawing tokens: "));
}

TEST_F(FailingBackendTest, DrawsNeedRoom) {
  emulation::settings.memory_bytes = emulation::counts.used_bytes + 40;
  const std::vector<RowDraw> draws(100, {{1, 2, 1.0f, 8}, 0});
  backend_->token_drawer()->Draw(x_->f32(), 8, draws,
                                 static_cast<int32_t*>(x_->data()) + 8);
  EXPECT_EQ(backend_->Synchronize().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(FailingBackendTest, PackSaysThatThereIsNoRoom) {
  emulation::settings.memory_bytes = emulation::counts.used_bytes + 100;
  const UnalignedMatrix w(RandomFloats(1000, 2), 10, 100, DType::kBF16);
  ExpectStatus(backend_->Pack({w.host()}).status(),
               absl::StatusCode::kResourceExhausted, HasSubstr("100 of "));
  ExpectStatus(backend_->PackTable(w.host()).status(),
               absl::StatusCode::kResourceExhausted,
               HasSubstr("no room for 2000 bytes"));
  // The weights fit, what products need beside them does not.
  emulation::settings.memory_bytes = emulation::counts.used_bytes + 3000;
  EXPECT_EQ(backend_->Pack({w.host()}).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(FailingBackendTest, PackRefusesRowsThatNoPieceHolds) {
  const std::vector<float> row((Staging::kPieceBytes / 4) + 1);
  const HostMatrix w = {DType::kF32, row.data(), 1,
                        static_cast<int>(row.size())};
  ExpectStatus(backend_->Pack({w}).status(), absl::StatusCode::kInvalidArgument,
               HasSubstr("4194308 bytes, the limit is 4194304"));
}

}  // namespace
}  // namespace nacre::kernels::cuda
