// What is asked of cublasLt, on the emulated device with a cublasLt of the
// tests.

#include "kernels/cuda/cublas_lt.h"

#include <memory>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda/cublas_fixture.h"

namespace nacre::kernels::cuda {
namespace {

using ::testing::HasSubstr;

class CublasLtTest : public CublasTest {
 protected:
  static std::unique_ptr<CublasLt> Open() {
    auto library = OpenCublasLt(NACRE_CUBLAS_LIBRARY);
    EXPECT_TRUE(library.ok()) << library.status();
    return *std::move(library);
  }
  static void ExpectLack(const std::string& file, const std::string& message) {
    const absl::Status status = OpenCublasLt(file).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }
};

TEST_F(CublasLtTest, SaysWhatTheMachineLacks) {
  ExpectLack("libcublasLt-that-there-is-not.so",
             "no cuBLAS on this machine: libcublasLt-that-there-is-not.so");
  ExpectLack("libm.so.6", "cublasLt without cublasLtGetVersion: too old a one");
  state_->created = CUBLAS_STATUS_NOT_INITIALIZED;
  ExpectLack(NACRE_CUBLAS_LIBRARY, "cublasLtCreate: not initialized");
}

TEST_F(CublasLtTest, KnowsItsVersion) {
  state_->version = 120803;
  EXPECT_EQ(Open()->version(), 120803);
}

TEST_F(CublasLtTest, TakesTheFirstAlgorithmThatSumsInOnePlace) {
  const auto library = Open();
  const CublasLt::Shape shape = {32, 64, 256};
  // Of id 21 and on: one in parts, one with a workspace, one as wanted.
  EXPECT_EQ((*library->Plan(shape))->algorithm(), "23.0.0.0.0.5.5.");
  state_->workspace_proposals = 0;
  EXPECT_EQ((*library->Plan(shape))->algorithm(), "22.0.0.0.0.5.5.");
  state_->split_proposals = 0;
  EXPECT_EQ((*library->Plan(shape))->algorithm(), "21.0.0.0.0.5.5.");
}

TEST_F(CublasLtTest, RefusesAShapeWithoutSuchAnAlgorithm) {
  const auto library = Open();
  state_->split_proposals = 3;
  absl::Status status = library->Plan({32, 64, 256}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(),
            "cublasLt proposes 3 algorithms, none that sums an output in one "
            "place");
  state_->proposals = 0;
  status = library->Plan({32, 64, 256}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("proposes 0"));
}

TEST_F(CublasLtTest, ProductsOutliveWhatPlannedThem) {
  auto library = Open();
  auto product = *library->Plan({32, 64, 256});
  library.reset();
  EXPECT_EQ(state_->handles, 1);
  product.reset();
  EXPECT_EQ(state_->handles, 0);
}

}  // namespace
}  // namespace nacre::kernels::cuda
