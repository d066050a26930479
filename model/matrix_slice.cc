#include "model/matrix_slice.h"

#include <cstddef>
#include <cstring>

#include "kernels/dtype.h"

namespace nacre::model {

const void* MatrixSlice::Read(int first, int count,
                              std::vector<char>* scratch) const {
  const size_t element = kernels::SizeOf(whole_.dtype);
  const size_t stride = static_cast<size_t>(whole_.cols) * element;
  const size_t bytes = static_cast<size_t>(range_.cols) * element;
  const int first_row = range_.first_row + first;
  std::vector<char> computed;
  const char* from = whole_.source != nullptr
                         ? static_cast<const char*>(
                               whole_.source->Read(first_row, count, &computed))
                         : static_cast<const char*>(whole_.data) +
                               static_cast<size_t>(first_row) * stride;
  from += static_cast<size_t>(range_.first_col) * element;
  if (computed.empty() && bytes == stride) return from;
  scratch->resize(static_cast<size_t>(count) * bytes);
  char* to = scratch->data();
  for (int row = 0; row < count; ++row, to += bytes, from += stride) {
    std::memcpy(to, from, bytes);
  }
  return scratch->data();
}

bool MatrixSlice::HasWholeBlocks() const {
  return whole_.groups != nullptr &&
         range_.first_col % whole_.groups->block == 0 &&
         range_.cols % whole_.groups->block == 0;
}

const void* MatrixSlice::Blocks(int row) const {
  if (!HasWholeBlocks()) return nullptr;
  const size_t before =
      static_cast<size_t>(range_.first_col / whole_.groups->block);
  return static_cast<const char*>(
             whole_.source->Blocks(range_.first_row + row)) +
         before * whole_.groups->block_bytes;
}

void MatrixSlice::GiveBack(int first, int count) const {
  if (whole_.source != nullptr) {
    whole_.source->GiveBack(range_.first_row + first, count);
  }
}

}  // namespace nacre::model
