// Random products for a tensor core, of six classes. Tiles of sixteen rows by
// eight columns; four tiles in turn are of one class and one right matrix.
// tests/data/kernels/make_tensor_core_goldens.py makes the same ones.

#ifndef TESTS_KERNELS_CUDA_TENSOR_CORE_CASES_H_
#define TESTS_KERNELS_CUDA_TENSOR_CORE_CASES_H_

#include <cstdint>

namespace nacre::kernels::cuda {

inline constexpr int kTileRows = 16;
inline constexpr int kTileColumns = 8;
inline constexpr int kTileInputs = 16;
inline constexpr int kTileSums = kTileRows * kTileColumns;

inline constexpr int kCaseClasses = 6;
inline constexpr const char* kCaseClassNames[kCaseClasses] = {
    "near 1",     "spread over 2^+-20", "any finite",
    "not normal", "cancelling",         "zeros and large"};

class TensorCoreTile {
 public:
  explicit TensorCoreTile(int number)
      : class_(number / 4 % kCaseClasses),
        right_(uint64_t{24} * (number / 4) + class_),
        left_(right_ + uint64_t{6} * (number % 4)) {}

  int case_class() const { return class_; }
  // bf16 bits of product `step` of a chain.
  uint16_t Left(int step, int row, int input) const {
    return Bf16(Unit(left_, step), 0, row * kTileInputs + input);
  }
  uint16_t Right(int step, int input, int column) const {
    return Bf16(Unit(right_, step), 1, column * kTileInputs + input);
  }
  // f32 bits of what a chain starts with.
  uint32_t Start(int row, int column) const {
    return F32(left_, row * kTileColumns + column);
  }

 private:
  static uint64_t Mix(uint64_t z) {
    z += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  static uint64_t Unit(uint64_t unit, int step) {
    return unit + uint64_t{6'000'000} * step;
  }

  uint16_t Bf16(uint64_t unit, uint64_t operand, uint64_t i) const {
    const uint64_t random = Mix(Mix(unit * 2 + operand) + i);
    const auto pick = static_cast<uint32_t>(random >> 8 & 0xffff);
    const auto sign = static_cast<uint32_t>(random >> 63 << 15);
    const auto fraction = static_cast<uint32_t>(random & 0x7f);
    return static_cast<uint16_t>(sign | Bf16Magnitude(pick, fraction));
  }
  uint32_t Bf16Magnitude(uint32_t pick, uint32_t fraction) const {
    switch (class_) {
      case 0:
        return (127 - pick % 9) << 7 | fraction;
      case 1:
        return (107 + pick % 41) << 7 | fraction;
      case 2:
        return pick % 255 << 7 | fraction;
      case 3: {
        const uint32_t kind = pick % 16;
        if (kind < 4) return fraction;
        if (kind < 7) return 0;
        const bool rare = (pick >> 8) % 64 == 0;
        if (kind == 7 && rare) return 0x7f80;
        if (kind == 8 && rare) return 0x7f81 | fraction;
        return (1 + (pick >> 4) % 100) << 7 | fraction;
      }
      case 4:
        return (126 + pick % 3) << 7 | fraction;
      default:
        return pick % 3 == 0 ? 0 : (64 + (pick >> 2) % 160) << 7 | fraction;
    }
  }

  uint32_t F32(uint64_t unit, uint64_t i) const {
    const uint64_t random = Mix(Mix(unit * 2 + 77) + 1000 + i);
    const auto pick = static_cast<uint32_t>(random >> 24 & 0xffff);
    if (class_ == 0 && pick % 4 == 0) return 0;
    const auto sign = static_cast<uint32_t>(random >> 63) << 31;
    return sign | F32Magnitude(pick, static_cast<uint32_t>(random & 0x7fffff));
  }
  uint32_t F32Magnitude(uint32_t pick, uint32_t fraction) const {
    switch (class_) {
      case 0:
        return (124 + pick % 8) << 23 | fraction;
      case 1:
        return (100 + pick % 61) << 23 | fraction;
      case 2:
        return pick % 255 << 23 | fraction;
      case 3: {
        const uint32_t kind = pick % 16;
        if (kind < 3) return fraction;
        if (kind < 6) return 0;
        if (kind == 6 && (pick >> 8) % 16 == 0) return 0x7f800000;
        return (1 + (pick >> 4) % 250) << 23 | fraction;
      }
      case 4:
        return (128 + pick % 4) << 23 | fraction;
      default:
        return pick % 2 != 0 ? 0 : (1 + (pick >> 1) % 254) << 23 | fraction;
    }
  }

  int class_;
  uint64_t right_;
  uint64_t left_;
};

}  // namespace nacre::kernels::cuda

#endif  // TESTS_KERNELS_CUDA_TENSOR_CORE_CASES_H_
