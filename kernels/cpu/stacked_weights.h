// Weight matrices stacked by rows, read as one while they are packed.
//
// Does not own the weights. Immutable; any thread may call it.

#ifndef KERNELS_CPU_STACKED_WEIGHTS_H_
#define KERNELS_CPU_STACKED_WEIGHTS_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "kernels/host_memory.h"

namespace nacre::kernels {

// Cuts [0, count) into ranges and calls task(begin, end) for each, perhaps at
// the same time; returns when all have returned.
using RunRanges = absl::FunctionRef<void(
    int count, absl::FunctionRef<void(int begin, int end)> task)>;

class StackedWeights {
 public:
  struct Place {
    int part;
    int row;  // of that part
  };

  // Fatal where CheckedTotalRows is.
  explicit StackedWeights(absl::Span<const HostMatrix> parts);

  int rows() const { return rows_; }
  int cols() const { return parts_[0].cols; }
  bool is_bf16() const;  // every part is

  Place Find(int row) const;

  // Columns [first, first + count) of a row, zeros past the last column;
  // exact. LoadBF16 rounds what is not bf16. Of parts that have a source only
  // within ForUnits.                                               out [count]
  void Load(int row, int first, int count, float* out) const;
  void LoadBF16(int row, int first, int count, uint16_t* out) const;

  // Calls pack(weights, unit) for each unit of [begin, end), which is
  // `unit_rows` rows, or what is left of them; `weights` are these, and load
  // rows of the unit, under their numbers here.
  void ForUnits(int unit_rows, int begin, int end,
                absl::FunctionRef<void(const StackedWeights& weights, int unit)>
                    pack) const;

 private:
  // Rows [first_row, first_row + rows) of others.
  StackedWeights(absl::Span<const HostMatrix> parts, int first_row, int rows)
      : parts_(parts), first_row_(first_row), rows_(rows) {}

  const absl::Span<const HostMatrix> parts_;
  const int first_row_ = 0;  // of parts_
  const int rows_;
};

}  // namespace nacre::kernels

#endif  // KERNELS_CPU_STACKED_WEIGHTS_H_
