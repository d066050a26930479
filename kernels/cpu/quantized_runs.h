// The tables of what is written for one kind of CPU, from its code for one
// segment:
//   struct Code {
//     // A tile of kRows rows. Fetches kLines lines of weights to come each
//     // step.
//     template <class Cells, int kRows, int kLines>
//     static void Run(const GemmSegment& s);
//     // GemmRuns::is_far.
//     template <class Cells>
//     static constexpr auto kIsFar;
//   };
// No vector code here.

#ifndef KERNELS_CPU_QUANTIZED_RUNS_H_
#define KERNELS_CPU_QUANTIZED_RUNS_H_

#include <cstring>

#include "hwy/base.h"
#include "kernels/cpu/gemm_loop.h"
#include "kernels/cpu/quantized_gemm.h"

namespace nacre::kernels {

template <class T>
HWY_INLINE T LoadAs(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

template <class Code, class Cells, int kLines>
inline constexpr RunGemmSegment kQuantizedRuns[kQuantizedTileRows] = {
    Code::template Run<Cells, 1, kLines>, Code::template Run<Cells, 2, kLines>,
    Code::template Run<Cells, 3, kLines>, Code::template Run<Cells, 4, kLines>,
    Code::template Run<Cells, 5, kLines>, Code::template Run<Cells, 6, kLines>};

template <class Code, class Cells>
void MultiplyQuantized(const GemmArgs& args, int unit_begin, int unit_end) {
  MultiplyUnits<Cells>(
      args, unit_begin, unit_end,
      {kQuantizedRuns<Code, Cells, 2>, kQuantizedRuns<Code, Cells, 1>,
       kQuantizedRuns<Code, Cells, 1>, Code::template kIsFar<Cells>});
}

template <class Code>
void UseProductsOf(QuantizedGemmKernels* kernels) {
  kernels->multiply_int8 = MultiplyQuantized<Code, Int8Cells>;
  kernels->multiply_int4 = MultiplyQuantized<Code, Int4Cells>;
}

}  // namespace nacre::kernels

#endif  // KERNELS_CPU_QUANTIZED_RUNS_H_
