// Weight matrix in the panels of kernels/cpu/gemm.h.
//
// Immutable; owns its memory.

#ifndef KERNELS_CPU_PACKED_WEIGHTS_H_
#define KERNELS_CPU_PACKED_WEIGHTS_H_

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cpu/gemm.h"
#include "kernels/host_memory.h"

namespace nacre::kernels {

class PackedWeights : public PackedMatrix {
 public:
  // Stacks `parts` by rows for a target of `lanes` floats a vector. `type`
  // kAuto keeps bf16 when every part is bf16, else f32. RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<PackedWeights>> Create(
      absl::Span<const HostMatrix> parts, WeightType type, int lanes);

  int rows() const override { return rows_; }
  int cols() const override { return cols_; }
  bool is_bf16() const { return is_bf16_; }
  const PackedShape& shape() const { return shape_; }
  const void* data() const { return memory_->data(); }

 private:
  PackedWeights() = default;
  void PackRow(const float* values, int row, int lanes);

  int rows_ = 0;
  int cols_ = 0;
  bool is_bf16_ = false;
  PackedShape shape_;
  std::unique_ptr<Buffer> memory_;
};

}  // namespace nacre::kernels

#endif  // KERNELS_CPU_PACKED_WEIGHTS_H_
