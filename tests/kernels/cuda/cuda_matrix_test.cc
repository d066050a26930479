// Weights so large that several threads write them lie on the device as one
// thread would have written them. On the emulated device.

#include "kernels/cuda/cuda_matrix.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/gemm_layout.h"
#include "kernels/cuda/gemm_quantization.h"
#include "tests/kernels/cuda/emulation/runtime.h"
#include "tests/kernels/cuda/packed_tile.h"
#include "tests/kernels/kernel_testing.h"

namespace nacre::kernels::cuda {
namespace {

using ::testing::HasSubstr;

// More than two pieces of staging memory, as bf16 and as int8; edges do not
// fill a tile or a block.
constexpr int kRows = 4099;
constexpr int kCols = 2056;

class CudaMatrixTest : public ::testing::Test {
 protected:
  CudaMatrixTest() {
    emulation::ResetDevice();
    device_ = *Device::Open(0);
    staging_ = *Staging::Create(device_.get());
  }

  absl::StatusOr<std::unique_ptr<CudaMatrix>> Create(
      const std::vector<float>& values, WeightType type) {
    const HostMatrix whole = {DType::kF32, values.data(), kRows, kCols};
    // In two parts, cut within a tile.
    HostMatrix first = whole;
    first.rows = 1001;
    HostMatrix second = whole;
    second.data = values.data() + size_t{1001} * kCols;
    second.rows = kRows - 1001;
    return CudaMatrix::Create({first, second}, type, device_.get(),
                              staging_.get());
  }

  std::vector<char> Download(const CudaMatrix& matrix, size_t bytes) {
    std::vector<char> values(bytes);
    EXPECT_EQ(
        cudaMemcpy(values.data(), matrix.data(), bytes, cudaMemcpyDeviceToHost),
        cudaSuccess);
    return values;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Staging> staging_;
  std::vector<float> values_ = RandomFloats(size_t{kRows} * kCols, 1);
};

TEST_F(CudaMatrixTest, RowsAreWhereTheyBelong) {
  const auto matrix = Create(values_, WeightType::kBF16);
  ASSERT_TRUE(matrix.ok()) << matrix.status();
  const size_t tile_bytes = PackedTileBytes(GemmFormat::kBf16, kCols);
  const std::vector<char> bytes =
      Download(**matrix, static_cast<size_t>(GemmTiles(kRows)) * tile_bytes);
  const size_t columns = static_cast<size_t>(GemmBlocks(kCols)) * kBlockInputs;
  for (int tile = 0; tile < GemmTiles(kRows); ++tile) {
    const std::vector<uint16_t> bits = ReadBf16Tile(
        kCols, bytes.data() + static_cast<size_t>(tile) * tile_bytes);
    for (size_t i = 0; i < bits.size(); ++i) {
      const size_t row = static_cast<size_t>(tile) * kTileOutputs + i / columns;
      const size_t col = i % columns;
      const bool inside = row < kRows && col < kCols;
      ASSERT_EQ(bits[i], inside ? ToBF16(values_[row * kCols + col]) : 0)
          << row << " " << col;
    }
  }
}

TEST_F(CudaMatrixTest, TilesAreQuantizedAsByOneThread) {
  const auto matrix = Create(values_, WeightType::kInt8);
  ASSERT_TRUE(matrix.ok()) << matrix.status();
  const size_t tile_bytes = PackedTileBytes(GemmFormat::kInt8, kCols);
  const std::vector<char> bytes =
      Download(**matrix, static_cast<size_t>(GemmTiles(kRows)) * tile_bytes);
  std::vector<char> expected(tile_bytes);
  for (int tile = 0; tile < GemmTiles(kRows); ++tile) {
    QuantizeInt8Tile({DType::kF32, values_.data(), kRows, kCols}, tile,
                     expected.data());
    ASSERT_EQ(std::memcmp(bytes.data() + static_cast<size_t>(tile) * tile_bytes,
                          expected.data(), tile_bytes),
              0)
        << tile;
  }
}

TEST_F(CudaMatrixTest, TheFirstOfSeveralBadWeightsIsNamed) {
  for (const int row : {900, 90, 37}) {
    values_[static_cast<size_t>(row) * kCols + 5] = std::nanf("");
  }
  const absl::Status status = Create(values_, WeightType::kInt8).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("weight [37, 5] is nan"));
}

// In two parts, as gate and up.
TEST_F(CudaMatrixTest, OutputsInPairsAreWhereTheyBelong) {
  constexpr int kOutputs = 96, kInputs = 200, kApart = 48;
  const HostMatrix first = {DType::kF32, values_.data(), kApart, kInputs};
  HostMatrix second = first;
  second.data = values_.data() + size_t{kApart} * kInputs;
  PackHints hints;
  hints.pairs_apart = kApart;
  const auto create = [&](WeightType type) {
    return CudaMatrix::Create({first, second}, type, device_.get(),
                              staging_.get(), hints);
  };
  const auto matrix = *create(WeightType::kBF16);
  EXPECT_EQ(matrix->pairs_apart(), kApart);
  const size_t tile_bytes = PackedTileBytes(GemmFormat::kBf16, kInputs);
  const std::vector<char> bytes = Download(*matrix, 6 * tile_bytes);
  const size_t columns =
      static_cast<size_t>(GemmBlocks(kInputs)) * kBlockInputs;
  for (int place = 0; place < kOutputs; ++place) {
    const std::vector<uint16_t> tile = ReadBf16Tile(
        kInputs, bytes.data() + static_cast<size_t>(place / 16) * tile_bytes);
    const int output = OutputOf(place / 16, place % 16, kApart);
    for (size_t i = 0; i < kInputs; ++i) {
      ASSERT_EQ(tile[static_cast<size_t>(place % 16) * columns + i],
                ToBF16(values_[static_cast<size_t>(output) * kInputs + i]))
          << output << " " << i;
    }
  }
  // Scales of fp8 stand as results do.
  const auto scales = [&](const CudaMatrix& of) {
    std::vector<float> found(kOutputs);
    EXPECT_EQ(cudaMemcpy(found.data(), of.scales(), kOutputs * sizeof(float),
                         cudaMemcpyDeviceToHost),
              cudaSuccess);
    return found;
  };
  const auto in_pairs = scales(**create(WeightType::kFp8));
  hints.pairs_apart = 0;
  EXPECT_EQ(scales(**create(WeightType::kFp8)), in_pairs);
  hints.pairs_apart = 20;  // no multiple of 8
  EXPECT_EQ((*create(WeightType::kBF16))->pairs_apart(), kPlainPairs);
  // Bad weights are named as they are.
  hints.pairs_apart = kApart;
  values_[61 * kInputs + 5] = std::nanf("");
  EXPECT_THAT(std::string(create(WeightType::kInt8).status().message()),
              HasSubstr("weight [61, 5] is nan"));
}

TEST_F(CudaMatrixTest, BytesAreWhatItTakes) {
  const HostMatrix part = {DType::kF32, values_.data(), kRows, kCols};
  for (const WeightType type :
       {WeightType::kAuto, WeightType::kF32, WeightType::kBF16,
        WeightType::kInt8, WeightType::kInt4}) {
    const int64_t before = device_->Memory().used;
    const auto matrix =
        CudaMatrix::Create({part}, type, device_.get(), staging_.get());
    ASSERT_TRUE(matrix.ok()) << matrix.status();
    EXPECT_EQ(device_->Memory().used - before, CudaMatrix::Bytes({part}, type));
  }
  EXPECT_EQ(device_->Memory().used, 0);
}

}  // namespace
}  // namespace nacre::kernels::cuda
