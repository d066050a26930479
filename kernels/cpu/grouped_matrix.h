// Weight matrices in groups (kernels/cpu/grouped_gemm.h), stacked by rows, and
// their product: bit for bit that of a DenseMatrix of the same weights in
// float32.
//
// Immutable; owns its piece of memory.

#ifndef KERNELS_CPU_GROUPED_MATRIX_H_
#define KERNELS_CPU_GROUPED_MATRIX_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cpu/cpu_matrix.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/grouped_gemm.h"
#include "kernels/cpu/row_tiling.h"
#include "kernels/cpu/stacked_weights.h"
#include "kernels/host_arena.h"
#include "kernels/product_ops.h"

namespace nacre::kernels {

class GroupedMatrix : public CpuMatrix {
 public:
  // Whether the weights of all parts are in groups.
  static bool CanHold(absl::Span<const HostMatrix> parts);

  // Packs `parts`, units divided by `run`, into a piece of `memory`.
  // RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<GroupedMatrix>> Create(
      absl::Span<const HostMatrix> parts, const GemmKernels& kernels,
      RunRanges run, HostArena* memory);

  // size_bytes() of what Create makes.
  static size_t Bytes(absl::Span<const HostMatrix> parts,
                      const GemmKernels& kernels);

  int rows() const override { return rows_; }
  int cols() const override { return cols_; }
  int64_t size_bytes() const override {
    return static_cast<int64_t>(memory_->size_bytes());
  }
  size_t ActivationBytes(int rows) const override;
  int num_tiles(int rows) const override { return Tiling(rows).count; }
  void PackActivations(const float* x, int rows, int tile_begin, int tile_end,
                       void* packed) const override;
  int num_units() const override { return num_units_; }
  void Multiply(const void* packed, int rows, int unit_begin, int unit_end,
                float* y) const override;

 private:
  // The units of one matrix: its weights may be said otherwise than those of
  // the others.
  struct Part {
    const WeightGroups* groups;
    GroupedLayout layout;
    GroupedKernels kernels;
    int first_row;
    int rows;
    int first_unit;
    int units;
    size_t offset;  // in memory
    size_t unit_bytes;
  };

  // Without memory yet.
  GroupedMatrix(absl::Span<const HostMatrix> parts, const GemmKernels& kernels);

  size_t unit_outputs() const { return size_t{kUnitVectors} * kernels_.lanes; }
  RowTiling Tiling(int rows) const {
    return RowTiling(rows, parts_[0].kernels.tile_rows);
  }
  const Part& PartOf(int unit) const;
  void PackUnit(const HostMatrix& matrix, const Part& part, int unit,
                char* to) const;
  // Tiles [tile_begin, tile_end) times one unit.
  void MultiplyUnit(const Part& part, int unit, const float* activations,
                    const RowTiling& tiling, int tile_begin, int tile_end,
                    float* y) const;
  // Pieces of a unit in order, and which input each begins with. Fetches what
  // comes after them.
  void ForPieces(
      const Part& part, const char* unit, bool fetches,
      absl::FunctionRef<void(const GroupedPiece& piece, int input)> use) const;
  // sums += the unit times tiles [tile_begin, tile_end), weights in float32.
  void AddDecoded(const Part& part, const char* unit, const float* activations,
                  const RowTiling& tiling, int tile_begin, int tile_end,
                  float* sums) const;

  const GemmKernels kernels_;
  int rows_ = 0;
  const int cols_;
  std::vector<Part> parts_;
  int num_units_ = 0;
  size_t bytes_ = 0;
  std::unique_ptr<Buffer> memory_;
};

}  // namespace nacre::kernels

#endif  // KERNELS_CPU_GROUPED_MATRIX_H_
