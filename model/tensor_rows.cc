#include "model/tensor_rows.h"

namespace nacre::model {

const void* TensorRows::Read(int first, int count,
                             std::vector<char>* scratch) const {
  const auto begin = static_cast<size_t>(first);
  if (decode_ == nullptr) return stored_.data() + begin * stored_row_;
  const auto rows = static_cast<size_t>(count);
  if (scratch->size() < rows * row_bytes_) scratch->resize(rows * row_bytes_);
  (*decode_)(begin, rows, scratch->data());
  return scratch->data();
}

void TensorRows::GiveBack(int first, int count) const {
  if (file_ == nullptr) return;
  file_->GiveBack(stored_.substr(static_cast<size_t>(first) * stored_row_,
                                 static_cast<size_t>(count) * stored_row_));
}

}  // namespace nacre::model
