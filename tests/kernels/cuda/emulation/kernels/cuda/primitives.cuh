// Stands in for kernels/cuda/primitives.cuh where kernels are compiled for the
// emulated device: this folder's parent comes first in the search for headers.

#ifndef TESTS_KERNELS_CUDA_EMULATION_KERNELS_CUDA_PRIMITIVES_CUH_
#define TESTS_KERNELS_CUDA_EMULATION_KERNELS_CUDA_PRIMITIVES_CUH_

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/math.cuh"
#include "tests/kernels/cuda/emulation/machine.h"

namespace nacre::kernels::cuda {

inline void CopyVector(uint4* shared, const char* global, bool inside) {
  emulation::Copy(shared, global, sizeof(uint4), inside);
}
inline void CopyWord(uint32_t* shared, const uint32_t* global, bool inside) {
  emulation::Copy(shared, global, sizeof(uint32_t), inside);
}

inline void CommitCopies() { emulation::Commit(); }

template <int kPending>
void WaitCopies() {
  emulation::Wait(kPending);
}

// The next kernel may start at once, whether this is called or not.
inline void LaunchDependents() {}
inline void WaitForPrevious() { emulation::WaitForPrevious(); }

template <int kThreads>
void GroupBarrier(int group) {
  emulation::GroupBarrier(group, kThreads);
}

inline void LoadMatrices(uint32_t (&words)[4], const uint4* row) {
  emulation::LoadMatrices(words, row);
}

inline void MultiplyAdd(float4& sum, uint32_t a0, uint32_t a1, uint32_t a2,
                        uint32_t a3, uint32_t b0, uint32_t b1) {
  float d[4] = {sum.x, sum.y, sum.z, sum.w};
  const uint32_t a[4] = {a0, a1, a2, a3};
  const uint32_t b[2] = {b0, b1};
  emulation::MultiplyAdd(d, a, b);
  sum = {d[0], d[1], d[2], d[3]};
}

inline void LoadTransposed(const uint4* row, uint32_t (&words)[4]) {
  emulation::LoadTransposed(row, words);
}

inline float MaxOrNan(float a, float b) {
  return a != a || b != b ? __uint_as_float(0x7fffffffu) : std::max(a, b);
}

inline uint32_t RoundedPair(float low, float high) {
  const auto round = [](float value) {
    return value == value ? uint32_t{RoundToBF16(value)} : 0x7fffu;
  };
  return round(low) | round(high) << 16;
}

}  // namespace nacre::kernels::cuda

#endif  // TESTS_KERNELS_CUDA_EMULATION_KERNELS_CUDA_PRIMITIVES_CUH_
