// Matrix product with float32 or bf16 weights. A unit is 4 vectors of outputs,
// a cell 8 inputs (kernels/cpu/gemm_loop.h). With L the lanes of a vector:
//   weights      f32   [input 8][vector 4][L] float
//                bf16  [2 inputs of 4][vector 4][L] 32-bit words: the first of
//                      the inputs low, the second high
//   activations  [input 8][row of the tile] float
//                rounded to bf16: [2 inputs of 4] of the second, then the first
//                [row of the tile] float, or of [row of the tile] 32-bit words
//                like those of the weights where products take them
//
// An output is added up input by input with fused multiply-adds, in both types
// alike: f32 copies of bf16 weights give the same bits. With activations
// rounded to bf16 the second of two inputs comes first, for that is how the
// products of pairs of AVX-512 add. Their bits are those of fused multiply-adds
// (but for numbers below 2^-126, which count as zeros there).

#ifndef KERNELS_CPU_GEMM_H_
#define KERNELS_CPU_GEMM_H_

#include <cstddef>

#include "kernels/cpu/coded_weights.h"
#include "kernels/cpu/gemm_loop.h"
#include "kernels/cpu/row_tiling.h"

namespace nacre::kernels {

inline constexpr int kUnitVectors = 4;
inline constexpr int kDenseCellInputs = 8;

struct GemmKernels {
  int lanes;  // L
  // Rows of a tile at most.
  int tile_rows_f32;
  int tile_rows_bf16;
  // Packs tiles [tile_begin, tile_end) of x [rows, cols], and rounds them.
  //                                              out [rows, cells * 8] floats
  PackActivationTiles pack;
  PackActivationTiles pack_rounded;
  // Computes the outputs of units [unit_begin, unit_end) for all rows.
  void (*multiply_f32)(const GemmArgs& args, int unit_begin, int unit_end);
  void (*multiply_bf16)(const GemmArgs& args, int unit_begin, int unit_end);
  // Of f32 weights: tiles of 1, 2, ... rows times a segment; fetches nothing.
  const RunGemmSegment* run_f32;
  // bf16 weights with rounded activations.
  void (*multiply_rounded)(const GemmArgs& args, int unit_begin, int unit_end);
  // Whether that is by products of pairs: numbers below 2^-126 tell them from
  // fused multiply-adds.
  bool has_pair_products = false;
  // Of bf16 weights with rounded activations, the same bits from less memory;
  // for matrices of so many bytes: smaller ones may stay in a cache.
  const CodedKernels* coded = nullptr;
  size_t min_coded_bytes = size_t{1} << 20;
};

// The table of the best target that this CPU supports.
GemmKernels ChooseGemmKernels();
// The same without what is written for one kind of CPU.
GemmKernels PortableGemmKernels();

// Rounded products by those of pairs of AVX-512, and of weights in 12 bits
// where the CPU can; false, and `kernels` as it was, on a CPU without them.
bool UsePairProducts(GemmKernels* kernels);

}  // namespace nacre::kernels

#endif  // KERNELS_CPU_GEMM_H_
