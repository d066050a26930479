// bf16 weights in 12 bits each, exactly: exponent's last bit and fraction in a
// byte, and for sign and the rest of the exponent, the high byte, a code of 4
// bits, one of the 16 that the weights of a unit (kernels/cpu/gemm.h) have most
// often. A weight with another high byte is kept aside, as a patch. Trained
// weights of a matrix lie close enough together that of 10,000 about one is
// (the exponents of large models have an entropy of 2.6 bits: Zhang et al.,
// DFloat11, arXiv:2504.11651). A step of few rows waits for memory, and this is
// a quarter less to wait for; the products, and so their bits, are those of the
// same weights in 16 bits.
//
// A code stands for a whole byte since to join bytes is an instruction, and to
// join bits within a byte is one more, which a product would wait for.
//
//   unit  [cell] of 8 inputs:
//         [2 inputs of 4] of:
//           [64 outputs of 2 inputs] of 128 bytes: the low byte
//           64 bytes: the code of byte i low, that of byte 64 + i high
// Bytes are in the order in which AVX-512 joins those of two vectors.
//
// Values; any thread.

#ifndef KERNELS_CPU_CODED_WEIGHTS_H_
#define KERNELS_CPU_CODED_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cpu/gemm_loop.h"

namespace nacre::kernels {

inline constexpr int kHighBytes = 16;
// 2 inputs of 64 outputs.
inline constexpr size_t kCodedStepWeights = 128;
inline constexpr size_t kCodedStepBytes = kCodedStepWeights / 2 * 3;

// More than one of so many weights without one of the 16 high bytes: a matrix
// stays as it is.
inline constexpr size_t kWeightsPerPatch = 1024;

// A weight that has no code.
struct WeightPatch {
  uint32_t step;   // of the unit
  uint16_t place;  // of the step's weights in 16 bits
  uint16_t value;  // bf16
};

// What one unit's codes mean.
struct CodedUnit {
  uint8_t high[kHighBytes];
  const WeightPatch* patches;  // in order of steps
  const WeightPatch* patches_end;
};

// The 16 most frequent high bytes of a unit of `steps` * 128 weights, steps >
// 0, of all of them: what a part of a small unit lacks, the rest may have more
// often than may be kept aside. Sets high.
void ChooseHighBytes(const uint16_t* weights, size_t steps, CodedUnit* unit);

struct CodedKernels {
  // weights [steps * 128], 64-byte aligned, to coded [steps * 192], 64-byte
  // aligned. Adds to `patches`, in order of steps.
  void (*encode)(const uint16_t* weights, size_t steps, const CodedUnit& unit,
                 uint8_t* coded, std::vector<WeightPatch>* patches);
  // As GemmKernels::multiply_rounded, of GemmArgs::coded.
  void (*multiply)(const GemmArgs& args, int unit_begin, int unit_end);
};

// Those of AVX-512 with VBMI and BF16; null on a CPU without.
const CodedKernels* FindCodedKernels();

}  // namespace nacre::kernels

#endif  // KERNELS_CPU_CODED_WEIGHTS_H_
