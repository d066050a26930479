// Weights on a device, products with them and rows of tables.
//
// A part of Backend, and under its conventions and threads (backend.h).

#ifndef KERNELS_PRODUCT_OPS_H_
#define KERNELS_PRODUCT_OPS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/dtype.h"
#include "kernels/weight_groups.h"

namespace nacre::kernels {

// A weight matrix W [rows, cols] in the layout this backend multiplies with.
// Immutable; lives as long as its owner keeps it, at most as long as the
// backend.
class PackedMatrix {
 public:
  virtual ~PackedMatrix() = default;
  virtual int rows() const = 0;  // outputs
  virtual int cols() const = 0;  // inputs
  // Bytes of MemoryOps::Allocate's memory that it takes.
  virtual int64_t size_bytes() const = 0;
};

// An embedding table where this backend's Embed reads it. Immutable; lives as a
// PackedMatrix does.
class PackedTable {
 public:
  virtual ~PackedTable() = default;
  virtual int rows() const = 0;  // vocabulary
  virtual int cols() const = 0;
};

// The rows of a HostMatrix that is not in memory as a whole: a large file's, or
// computed when they are asked for. Any thread may call it.
class RowSource {
 public:
  virtual ~RowSource() = default;
  // Rows [first, first + count) as HostMatrix::data has them, at any alignment:
  // where they lie, or in *scratch, which grows.
  virtual const void* Read(int first, int count,
                           std::vector<char>* scratch) const = 0;
  // Where the blocks of a row lie that HostMatrix::groups say it in; null:
  // there are none.
  virtual const void* Blocks(int row) const {
    static_cast<void>(row);
    return nullptr;
  }
  // They are not needed any more; they can be read again.
  virtual void GiveBack(int first, int count) const = 0;
};

// Weights in host memory as a checkpoint holds them, row-major [rows, cols].
struct HostMatrix {
  DType dtype = DType::kF32;
  const void* data = nullptr;  // any alignment
  int rows = 0;
  int cols = 0;
  // In place of data; not of a table on a device.
  const RowSource* source = nullptr;
  // How its source has the values, too; null: as they are.
  const WeightGroups* groups = nullptr;
};

// What a backend may follow when it packs; decides no bits but as said.
struct PackHints {
  // Ranks that each have a share of the outputs, all alike. A product has the
  // bits of the whole matrix', whose order may follow from the number of its
  // outputs.
  int shares = 1;
  // Not 0: outputs o and o + pairs_apart, of every 2 pairs_apart, are used
  // together. Of gate and up that is half of the outputs, of heads whose halves
  // turn half of head_dim.
  int pairs_apart = 0;
};

// What Pack has found of the matrices of which MayBeSaved says something.
struct SavedWeights {
  int matrices = 0;   // whose values are said in fewer bytes
  int64_t bytes = 0;  // fewer than PackedBytes
  int others = 0;     // whose values are not
};

class ProductOps {
 public:
  virtual ~ProductOps() = default;

  // PackedMatrix::size_bytes of what Pack makes of these, whose values are not
  // read; more, where fewer bytes turn out to say the same.
  virtual int64_t PackedBytes(absl::Span<const HostMatrix> parts) const = 0;
  // How much less that may be.
  virtual int64_t MayBeSaved(absl::Span<const HostMatrix>) const { return 0; }
  // How much less it was, of all that Pack has made.
  virtual SavedWeights Saved() const { return {}; }

  // Repacks weights; several matrices with equal cols are stacked by rows (q, k
  // and v; gate and up). Copies: `parts` may go away afterwards.
  virtual absl::StatusOr<std::unique_ptr<PackedMatrix>> Pack(
      absl::Span<const HostMatrix> parts) = 0;

  virtual absl::StatusOr<std::unique_ptr<PackedMatrix>> PackFor(
      absl::Span<const HostMatrix> parts, PackHints hints) {
    static_cast<void>(hints);
    return Pack(parts);
  }

  // Keeps the table's elements as they are. Copies: what table.data points to
  // may go away afterwards.
  virtual absl::StatusOr<std::unique_ptr<PackedTable>> PackTable(
      const HostMatrix& table) = 0;

  // y[i, o] = sum_k x[i, k] * w[o, k]        x [rows, w.cols], y [rows, w.rows]
  virtual void MatMul(const float* x, int rows, const PackedMatrix& w,
                      float* y) = 0;

  // out[i, :] = table[ids[i], :]. ids are host memory, each in [0, table.rows).
  //   out [ids.size, table.cols]
  virtual void Embed(const PackedTable& table, absl::Span<const int32_t> ids,
                     float* out) = 0;

  // Embed of ids that are in this backend's memory, unchecked: drawn by
  // Backend::token_drawer, or copied there.
  // kUnsoundDraw stands for any row.   ids [count], the device's
  virtual void EmbedDrawn(const PackedTable& table, const int32_t* ids,
                          int count, float* out);
};

}  // namespace nacre::kernels

#endif  // KERNELS_PRODUCT_OPS_H_
