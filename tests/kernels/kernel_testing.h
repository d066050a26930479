// What the kernel tests share: seeded inputs, SIMD targets, paged caches and
// the error that float32 sums may have.

#ifndef TESTS_KERNELS_KERNEL_TESTING_H_
#define TESTS_KERNELS_KERNEL_TESTING_H_

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/backend_factory.h"

namespace nacre::kernels {

// Sizes that are no multiple of anything, and those of the bundled models.
inline const std::vector<int> kAwkwardSizes = {1,   3,   17,  64,  100,
                                               172, 256, 344, 688, 1000};
inline constexpr int kMaxRows = 33;
inline constexpr DType kKvTypes[] = {DType::kF32, DType::kBF16, DType::kInt8};

// Uniform in [-magnitude, magnitude].
std::vector<float> RandomFloats(size_t count, uint32_t seed,
                                float magnitude = 1.0f);

// The sum of parts [num_parts, ...], a power of two: that of the first half and
// that of the second, added.
std::vector<float> SumOfPairs(const std::vector<float>& parts, int num_parts);

// Largest error of a float32 sum of `terms` products in any order (Higham,
// "Accuracy and Stability of Numerical Algorithms", 3.1), relative to the sum
// of their magnitudes. A few roundings more for what surrounds the sum.
double SumTolerance(int terms);

std::unique_ptr<Backend> MakeBackend(const std::string& kind,
                                     const std::string& weights = "auto",
                                     std::vector<int> cpus = {},
                                     const std::string& kv_type = "f32");

// Cores that this process may run on, at most `limit`.
std::vector<int> AllowedCores(size_t limit);

// A matrix in host memory at an odd address.
class UnalignedMatrix {
 public:
  // Converts `values` [rows, cols] to `dtype`, rounding to nearest.
  UnalignedMatrix(const std::vector<float>& values, int rows, int cols,
                  DType dtype);
  HostMatrix host() const;
  // Element i after the conversion, exact.
  float value(size_t i) const;

 private:
  DType dtype_;
  int rows_;
  int cols_;
  std::vector<char> bytes_;
};

// KV of several sessions, whose blocks lie scattered over one layer.
class PagedCache {
 public:
  struct Shape {
    int sessions;
    int positions;  // of each session
    int num_kv_heads;
    int block_size;
    int head_dim;
    DType type = DType::kF32;
  };
  PagedCache(const Shape& shape, uint32_t seed);
  const KvLayer& layer() const { return layer_; }
  RowContext Row(int session, int position) const;
  // All of the layer, bit by bit.
  const std::vector<uint32_t>& words() const { return words_; }

 private:
  void FillWithIntegers(const std::vector<float>& values);

  std::vector<uint32_t> words_;
  std::vector<std::vector<int32_t>> tables_;  // one a session
  KvLayer layer_;
};

// While it lives, every CPU backend made is of one SIMD target.
class ForcedTarget {
 public:
  explicit ForcedTarget(int64_t target);
  ~ForcedTarget();
  ForcedTarget(const ForcedTarget&) = delete;
  ForcedTarget& operator=(const ForcedTarget&) = delete;
};

// Tests that run once for each SIMD target of this CPU.
class EveryTargetTest : public ::testing::TestWithParam<int64_t> {
 private:
  ForcedTarget target_{GetParam()};
};

std::vector<int64_t> SupportedSimdTargets();
std::string SimdTargetName(const ::testing::TestParamInfo<int64_t>& info);

}  // namespace nacre::kernels

#endif  // TESTS_KERNELS_KERNEL_TESTING_H_
