// Some rows and columns of a matrix of a checkpoint, read as they are asked
// for: a rank's share of it.
//
// Thread-safe: immutable.

#ifndef MODEL_MATRIX_SLICE_H_
#define MODEL_MATRIX_SLICE_H_

#include <vector>

#include "kernels/product_ops.h"

namespace nacre::model {

// Rows [first_row, first_row + rows) and columns [first_col, first_col + cols).
struct MatrixRange {
  int first_row = 0;
  int rows = 0;
  int first_col = 0;
  int cols = 0;
};

class MatrixSlice : public kernels::RowSource {
 public:
  // The range lies within `whole`, which outlives this.
  MatrixSlice(const kernels::HostMatrix& whole, const MatrixRange& range)
      : whole_(whole), range_(range) {}

  // This outlives it. In blocks if all of its columns are whole blocks.
  kernels::HostMatrix matrix() const {
    return {whole_.dtype, nullptr, range_.rows,
            range_.cols,  this,    HasWholeBlocks() ? whole_.groups : nullptr};
  }

  const void* Read(int first, int count,
                   std::vector<char>* scratch) const override;
  const void* Blocks(int row) const override;
  void GiveBack(int first, int count) const override;

 private:
  bool HasWholeBlocks() const;

  const kernels::HostMatrix whole_;
  const MatrixRange range_;
};

}  // namespace nacre::model

#endif  // MODEL_MATRIX_SLICE_H_
