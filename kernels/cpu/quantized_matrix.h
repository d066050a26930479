// Weight matrix in the cells of kernels/cpu/quantized_gemm.h, and its product.
//
// Immutable; owns its piece of memory.

#ifndef KERNELS_CPU_QUANTIZED_MATRIX_H_
#define KERNELS_CPU_QUANTIZED_MATRIX_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cpu/cpu_matrix.h"
#include "kernels/cpu/quantized_gemm.h"
#include "kernels/cpu/stacked_weights.h"
#include "kernels/host_arena.h"
#include "kernels/weight_type.h"

namespace nacre::kernels {

class QuantizedMatrix : public CpuMatrix {
 public:
  // Quantizes `weights` to `type`, kInt8 or kInt4, units divided by `run`, into
  // a piece of `memory`. INVALID_ARGUMENT with the part, row and column of the
  // first weight that is not finite; RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<QuantizedMatrix>> Create(
      const StackedWeights& weights, WeightType type,
      const QuantizedGemmKernels& kernels, RunRanges run, HostArena* memory);

  // size_bytes() of what Create makes.
  static size_t Bytes(const StackedWeights& weights, WeightType type,
                      const QuantizedGemmKernels& kernels);

  int rows() const override { return rows_; }
  int cols() const override { return cols_; }
  int64_t size_bytes() const override {
    return static_cast<int64_t>(memory_->size_bytes());
  }
  size_t ActivationBytes(int rows) const override;
  int num_tiles(int rows) const override;
  void PackActivations(const float* x, int rows, int tile_begin, int tile_end,
                       void* packed) const override;
  int num_units() const override;
  void Multiply(const void* packed, int rows, int unit_begin, int unit_end,
                float* y) const override;

 private:
  // Without memory yet.
  QuantizedMatrix(const StackedWeights& weights, WeightType type,
                  const QuantizedGemmKernels& kernels);
  size_t Bytes() const;

  // Returns the first row with a weight that is not finite, else rows().
  template <class Cells>
  int PackUnit(const StackedWeights& weights, int unit);
  // Row i of a tile.                                            values [cols]
  template <class Cells>
  void PackRow(const float* values, int i, int tile_rows, char* out) const;

  const QuantizedGemmKernels kernels_;
  const WeightType type_;
  const int rows_;
  const int cols_;
  const size_t groups_;  // of a row
  std::unique_ptr<Buffer> memory_;
  uint8_t* weights_ = nullptr;
};

}  // namespace nacre::kernels

#endif  // KERNELS_CPU_QUANTIZED_MATRIX_H_
