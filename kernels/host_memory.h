// Host memory and host weights, shared by the backends that compute on the CPU.
//
// Thread-safe: pure functions; a HostBuffer has one owner.

#ifndef KERNELS_HOST_MEMORY_H_
#define KERNELS_HOST_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/dtype.h"
#include "kernels/memory_ops.h"
#include "kernels/product_ops.h"

namespace nacre::kernels {

// A zeroed Buffer of host memory, 64-byte aligned. RESOURCE_EXHAUSTED when the
// system has no room.
absl::StatusOr<std::unique_ptr<Buffer>> AllocateHostBuffer(size_t bytes);

// How many rows of a RowSource to read at a time: a few MB, at least one.
int RowsTogether(size_t row_bytes);

// Row `row` of `matrix`, which has data, as float32, exact. out [matrix.cols]
void LoadRow(const HostMatrix& matrix, size_t row, float* out);
// Columns [first, first + count) of the row.                        out [count]
void LoadValues(const HostMatrix& matrix, size_t row, int first, int count,
                float* out);

// A PackedTable of the backends on the host. A copy: if the
// file of a model that serves is rewritten or truncated, no token changes and
// no process ends.
class HostTable : public PackedTable {
 public:
  // Of weights in groups it is their blocks. RESOURCE_EXHAUSTED when the system
  // has no room.
  static absl::StatusOr<std::unique_ptr<HostTable>> CopyOf(
      const HostMatrix& table);
  // What CopyOf takes, of whose table the values are not read.
  static int64_t Bytes(const HostMatrix& table);

  int rows() const override { return table_.rows; }
  int cols() const override { return table_.cols; }
  // Backend::Embed. Fatal for an id outside the table.
  void Embed(absl::Span<const int32_t> ids, float* out) const;

 private:
  HostTable(const HostMatrix& table, std::unique_ptr<Buffer> memory)
      : table_(table), memory_(std::move(memory)) {}

  const HostMatrix table_;  // in memory_
  const std::unique_ptr<Buffer> memory_;
};

// Fatal for an id outside [0, rows).
void CheckTokenIds(absl::Span<const int32_t> ids, int rows);

// The sum of the rows of `parts`. Fatal unless there is at least one part,
// every size is positive and all have equal cols.
int CheckedTotalRows(absl::Span<const HostMatrix> parts);

}  // namespace nacre::kernels

#endif  // KERNELS_HOST_MEMORY_H_
