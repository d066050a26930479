#include "kernels/cuda/step_upload.h"

#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/cuda/emulation/runtime.h"

namespace nacre::kernels::cuda {
namespace {

class StepUploadTest : public ::testing::Test {
 protected:
  StepUploadTest() {
    emulation::ResetDevice();
    device_ = *Device::Open(0);
    staging_ = *Staging::Create(device_.get());
    step_ = std::make_unique<StepUpload>(device_.get(), staging_.get());
  }

  void Add(StepPart part, const std::vector<int32_t>& ints, size_t room = 0) {
    step_->Add(part, ints.data(), ints.size() * sizeof(int32_t), room);
  }

  static std::vector<int32_t> Download(const int32_t* from, size_t count) {
    std::vector<int32_t> ints(count);
    EXPECT_EQ(cudaMemcpy(ints.data(), from, count * sizeof(int32_t),
                         cudaMemcpyDeviceToHost),
              cudaSuccess);
    return ints;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<StepUpload> step_;
};

TEST_F(StepUploadTest, SendsAllPartsAtOnce) {
  const std::vector<int32_t> ids = {5, 6, 7};
  const std::vector<int32_t> rows = {1, 2};
  Add(StepPart::kTokenIds, ids);
  Add(StepPart::kRows, rows);
  emulation::counts.uploads = 0;
  ASSERT_TRUE(step_->Send(0));
  EXPECT_EQ(emulation::counts.uploads, 1);
  const int32_t* const found = step_->Find(StepPart::kTokenIds, ids);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(Download(found, 3), ids);
  ASSERT_NE(step_->Find(StepPart::kRows, rows), nullptr);
  EXPECT_EQ(Download(step_->Find(StepPart::kRows, rows), 2), rows);
}

TEST_F(StepUploadTest, FindsOnlyWhatItWasSent) {
  const std::vector<int32_t> ids = {5, 6, 7};
  Add(StepPart::kTokenIds, ids);
  EXPECT_EQ(step_->Find(StepPart::kTokenIds, ids), nullptr) << "not sent yet";
  ASSERT_TRUE(step_->Send(0));
  EXPECT_EQ(step_->Find(StepPart::kTokenIds, {5, 6}), nullptr);
  EXPECT_EQ(step_->Find(StepPart::kTokenIds, {5, 6, 8}), nullptr);
  EXPECT_EQ(step_->Find(StepPart::kRows, ids), nullptr);
  EXPECT_EQ(step_->Find(StepPart::kDraws), nullptr);
  step_->Clear();
  EXPECT_EQ(step_->Find(StepPart::kTokenIds, ids), nullptr);
  ASSERT_TRUE(step_->Send(0) || !device_->ok());
  EXPECT_EQ(step_->Find(StepPart::kTokenIds), nullptr);
}

// Graphs know addresses.
TEST_F(StepUploadTest, PartsStayWhereThoseBeforeThemAreAsLarge) {
  const auto place_of_rows = [&](size_t tables) {
    step_->Clear();
    Add(StepPart::kTokenIds,
        tables % 2 == 0 ? std::vector<int32_t>{1} : std::vector<int32_t>{},
        4 * sizeof(int32_t));
    Add(StepPart::kRows, std::vector<int32_t>(tables, 1));
    EXPECT_TRUE(step_->Send(1 << 16));
    return step_->Find(StepPart::kRows);
  };
  const void* const place = place_of_rows(2);
  emulation::counts.allocations = 0;
  for (const size_t tables : {3, 100, 1000}) {
    EXPECT_EQ(place_of_rows(tables), place) << tables;
  }
  EXPECT_EQ(emulation::counts.allocations, 0);
}

TEST_F(StepUploadTest, FindsNothingAfterAnError) {
  emulation::settings.memory_bytes = emulation::counts.used_bytes;
  const std::vector<int32_t> ids = {5};
  Add(StepPart::kTokenIds, ids);
  EXPECT_FALSE(step_->Send(1 << 10));
  EXPECT_EQ(step_->Find(StepPart::kTokenIds, ids), nullptr);
  EXPECT_EQ(device_->Synchronize().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace nacre::kernels::cuda
