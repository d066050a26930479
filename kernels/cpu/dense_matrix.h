// Weight matrix in float32 or bf16, in the panels of kernels/cpu/gemm.h, and
// its product. A large one in bf16 is kept in 12 bits a weight where that gives
// the same products sooner (kernels/cpu/coded_weights.h).
//
// Immutable; owns its piece of memory.

#ifndef KERNELS_CPU_DENSE_MATRIX_H_
#define KERNELS_CPU_DENSE_MATRIX_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cpu/coded_weights.h"
#include "kernels/cpu/cpu_matrix.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/row_tiling.h"
#include "kernels/cpu/stacked_weights.h"
#include "kernels/host_arena.h"
#include "kernels/weight_type.h"

namespace nacre::kernels {

class DenseMatrix : public CpuMatrix {
 public:
  // Packs `weights`, units divided by `run`, into a piece of `memory`. `type`
  // kAuto keeps bf16 when all of them are, else f32; kBF16A16 rounds the inputs
  // of products as well. RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<DenseMatrix>> Create(
      const StackedWeights& weights, WeightType type,
      const GemmKernels& kernels, RunRanges run, HostArena* memory);

  // size_bytes() of what Create makes, or more: whether weights have codes is
  // not known before they are read.
  static size_t Bytes(const StackedWeights& weights, WeightType type,
                      const GemmKernels& kernels);

  // So much less it may be, but for what is kept of weights without a code.
  static size_t MayBeSaved(const StackedWeights& weights, WeightType type,
                           const GemmKernels& kernels);

  int rows() const override { return rows_; }
  int cols() const override { return cols_; }
  int64_t size_bytes() const override {
    return static_cast<int64_t>(memory_->size_bytes() +
                                coded_.size() * sizeof(CodedUnit) +
                                patches_.size() * sizeof(WeightPatch));
  }
  size_t ActivationBytes(int rows) const override;
  int num_tiles(int rows) const override { return Tiling(rows).count; }
  void PackActivations(const float* x, int rows, int tile_begin, int tile_end,
                       void* packed) const override;
  int num_units() const override;
  void Multiply(const void* packed, int rows, int unit_begin, int unit_end,
                float* y) const override;

 private:
  // Without memory yet.
  DenseMatrix(const StackedWeights& weights, WeightType type,
              const GemmKernels& kernels);
  size_t Bytes() const;
  size_t unit_weights() const {
    return cells_ * kDenseCellInputs * unit_outputs();
  }
  RowTiling Tiling(int rows) const;
  size_t unit_outputs() const { return size_t{kUnitVectors} * kernels_.lanes; }
  // Word is a float32, or two bf16 inputs.
  template <class Word>
  void PackUnit(const StackedWeights& weights, int unit, void* to) const;
  bool CanBeCoded() const;
  size_t CodedBytes() const;
  // Whether codes stand for nearly all weights of some units.
  bool SampleHasCodes(const StackedWeights& weights) const;
  // False, and nothing is kept: they do not for those of the matrix.
  absl::StatusOr<bool> Code(const StackedWeights& weights, RunRanges run,
                            HostArena* memory);

  const GemmKernels kernels_;
  const int rows_;
  const int cols_;
  const bool is_bf16_;
  const bool rounds_inputs_;
  const size_t cells_;  // of a unit
  std::unique_ptr<Buffer> memory_;
  // Of weights in 12 bits, else empty.
  std::vector<CodedUnit> coded_;
  std::vector<WeightPatch> patches_;
};

}  // namespace nacre::kernels

#endif  // KERNELS_CPU_DENSE_MATRIX_H_
