// A weight matrix of the CPU backend: how its product with some rows is cut
// into pieces for threads. Two kinds: dense_matrix.h and quantized_matrix.h.
//
// Immutable; any thread may call it.

#ifndef KERNELS_CPU_CPU_MATRIX_H_
#define KERNELS_CPU_CPU_MATRIX_H_

#include <cstddef>

#include "kernels/backend.h"

namespace nacre::kernels {

class CpuMatrix : public PackedMatrix {
 public:
  // Room for `rows` packed rows of activations, in bytes.
  virtual size_t ActivationBytes(int rows) const = 0;

  // Packs tiles [tile_begin, tile_end) of num_tiles(rows) tiles of the rows.
  //   x [rows, cols]; packed: 64-byte aligned, ActivationBytes(rows)
  virtual int num_tiles(int rows) const = 0;
  virtual void PackActivations(const float* x, int rows, int tile_begin,
                               int tile_end, void* packed) const = 0;

  // Computes what units [unit_begin, unit_end) of num_units() hold, outputs
  // after each other, of every row.                          y [rows, rows()]
  virtual int num_units() const = 0;
  virtual void Multiply(const void* packed, int rows, int unit_begin,
                        int unit_end, float* y) const = 0;
};

}  // namespace nacre::kernels

#endif  // KERNELS_CPU_CPU_MATRIX_H_
