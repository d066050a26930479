// What a tensor core of sm_90 makes of one element of
// mma.sync.m16n8k16.f32.bf16.bf16.f32, bit for bit: sixteen products and the
// accumulator in one sum. With 2^e the largest power of two of a term, each
// term is cut to a multiple of 2^(e - 25), these are added exactly, and the sum
// is cut to f32: all rounding is toward zero.
//
// After MMA-Sim (arXiv 2511.10909).

#ifndef TESTS_KERNELS_CUDA_EMULATION_TENSOR_CORE_H_
#define TESTS_KERNELS_CUDA_EMULATION_TENSOR_CORE_H_

#include <cstdint>

namespace nacre::kernels::cuda::emulation {

inline constexpr int kFusedProducts = 16;

// Sixteen bf16, each as significand * 2^(exponent - 7).
struct Factors {
  // Number `i` is what these bits say.
  void Set(int i, uint16_t bits);

  float significands[kFusedProducts];  // integers
  int32_t exponents[kFusedProducts];
};

// sum + a b, as bits of f32.
uint32_t FusedSum(const Factors& a, const Factors& b, uint32_t sum);

}  // namespace nacre::kernels::cuda::emulation

#endif  // TESTS_KERNELS_CUDA_EMULATION_TENSOR_CORE_H_
