// The rows of one tensor of a checkpoint, read or computed as they are asked
// for. So a large matrix is never in memory as a whole.
//
// Thread-safe: immutable.

#ifndef MODEL_TENSOR_ROWS_H_
#define MODEL_TENSOR_ROWS_H_

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/mapped_file.h"
#include "kernels/product_ops.h"

namespace nacre::model {

// Writes the values of rows [first, first + count) of a tensor.
using DecodeRows =
    std::function<void(size_t first, size_t count, char* values)>;

// Where the bytes of a row are that its values are decoded from.
using FindRow = std::function<const char*(size_t row)>;

class TensorRows : public kernels::RowSource {
 public:
  // `rows` of `row_bytes` values each. `stored` are they as they are, or what
  // `decode` computes them from, as many bytes of it for each row. They lie in
  // `file`; null: in no file. `blocks` finds rows of blocks; null: there are
  // none. All of it outlives this.
  TensorRows(absl::string_view stored, const MappedFile* file,
             const DecodeRows* decode, const FindRow* blocks, size_t rows,
             size_t row_bytes)
      : stored_(stored),
        file_(file),
        decode_(decode),
        blocks_(blocks),
        stored_row_(stored.size() / rows),
        row_bytes_(row_bytes) {}

  const void* Read(int first, int count,
                   std::vector<char>* scratch) const override;
  const void* Blocks(int row) const override {
    return blocks_ == nullptr ? nullptr : (*blocks_)(static_cast<size_t>(row));
  }
  void GiveBack(int first, int count) const override;

 private:
  const absl::string_view stored_;
  const MappedFile* const file_;
  const DecodeRows* const decode_;  // null: no need to
  const FindRow* const blocks_;
  const size_t stored_row_;  // bytes
  const size_t row_bytes_;
};

}  // namespace nacre::model

#endif  // MODEL_TENSOR_ROWS_H_
