// How quantized products walk through the cells of a segment, some outputs of a
// cell at a time. A file that includes this does so once, inside the attributes
// of its instructions, and brings
//   struct Outputs {
//     static constexpr int kVectors;           // of outputs, in a unit
//     // Vectors that pass at a time: the registers hold all sums.
//     static constexpr int Count(int rows);
//     // One cell times kCount vectors from `first` on. Fetches kLines lines
//     // each step.
//     template <class Cells, int kRows, int kCount, int kLines>
//     static void Add(const GemmSegment& s, const char* cell, const char* x,
//                     const char* ahead, int first);
//   };

#ifndef KERNELS_CPU_QUANTIZED_CELLS_INL_H_
#define KERNELS_CPU_QUANTIZED_CELLS_INL_H_

#include "kernels/cpu/quantized_gemm.h"

namespace nacre::kernels {

template <class Outputs>
struct CellWalk {
  template <class Cells>
  static constexpr bool (*kIsFar)(int rows, int tiles) = nullptr;

  template <class Cells, int kRows, int kLines>
  static void Run(const GemmSegment& s) {
    constexpr int kCount = Outputs::Count(kRows);
    const char* w = s.weights;
    const char* ahead = s.ahead;
    const char* x = s.x;
    for (size_t c = 0; c < s.cells; ++c) {
      Outputs::template Add<Cells, kRows, kCount, kLines>(s, w, x, ahead, 0);
      for (int first = kCount; first < Outputs::kVectors; first += kCount) {
        Outputs::template Add<Cells, kRows, kCount, 0>(s, w, x, ahead, first);
      }
      ahead += Cells::kSteps * s.ahead_step;
      __builtin_prefetch(ahead);
      ahead += s.ahead_cell;
      w += Cells::kBytes;
      x += kRows * Cells::kRowBytes;
    }
  }
};

}  // namespace nacre::kernels

#endif  // KERNELS_CPU_QUANTIZED_CELLS_INL_H_
