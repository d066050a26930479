#include "kernels/host_memory.h"

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/kernel_testing.h"

namespace nacre::kernels {
namespace {

TEST(HostMemoryTest, BuffersAreAlignedAndZero) {
  for (const size_t bytes : {0, 1, 63, 64, 1000, 9 << 20}) {
    const auto buffer = AllocateHostBuffer(bytes);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ((*buffer)->size_bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>((*buffer)->data()) % 64, 0u);
    const char* data = static_cast<const char*>((*buffer)->data());
    for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(data[i], 0);
  }
}

TEST(HostMemoryTest, SaysHowMuchDidNotFit) {
  // More than any address space.
  for (const size_t bytes : {std::numeric_limits<size_t>::max() / 2,
                             std::numeric_limits<size_t>::max()}) {
    const absl::Status status = AllocateHostBuffer(bytes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_NE(std::string(status.message()).find(std::to_string(bytes)),
              std::string::npos);
  }
}

TEST(HostMemoryTest, LoadsRowsOfEveryTypeAtOddAddresses) {
  const auto values = RandomFloats(3 * 17, 1);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const UnalignedMatrix matrix(values, 3, 17, dtype);
    std::vector<float> row(17);
    LoadRow(matrix.host(), 2, row.data());
    for (int j = 0; j < 17; ++j) EXPECT_EQ(row[j], matrix.value(2 * 17 + j));
  }
}

// The file that the table came from may change, or end, at any time.
TEST(HostMemoryTest, ATableIsACopy) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const auto values = RandomFloats(3 * 17, 1);
    auto matrix = std::make_unique<UnalignedMatrix>(values, 3, 17, dtype);
    std::vector<float> expected(17);
    LoadRow(matrix->host(), 2, expected.data());
    const auto table = HostTable::CopyOf(matrix->host());
    ASSERT_TRUE(table.ok());
    matrix = nullptr;
    std::vector<float> row(17);
    (*table)->Embed({2}, row.data());
    EXPECT_EQ(row, expected);
    EXPECT_EQ((*table)->rows(), 3);
    EXPECT_EQ((*table)->cols(), 17);
  }
}

TEST(HostMemoryDeathTest, StackedWeightsMustHaveEqualCols) {
  const float data[4] = {};
  const std::vector<HostMatrix> parts = {{DType::kF32, data, 1, 4},
                                         {DType::kF32, data, 2, 2}};
  EXPECT_EQ(CheckedTotalRows({parts.data(), 1}), 1);
  EXPECT_DEATH(CheckedTotalRows(parts), "differ in cols");
}

}  // namespace
}  // namespace nacre::kernels
