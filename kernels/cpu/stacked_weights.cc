#include "kernels/cpu/stacked_weights.h"

#include <algorithm>
#include <cstring>

#include "common/check.h"
#include "kernels/host_memory.h"

namespace nacre::kernels {

StackedWeights::StackedWeights(absl::Span<const HostMatrix> parts)
    : parts_(parts), rows_(CheckedTotalRows(parts)) {}

bool StackedWeights::is_bf16() const {
  return std::all_of(parts_.begin(), parts_.end(), [](const HostMatrix& part) {
    return part.dtype == DType::kBF16;
  });
}

StackedWeights::Place StackedWeights::Find(int row) const {
  NACRE_CHECK(row >= 0 && row < rows_, "a row outside the weights");
  int part = 0;
  while (row >= parts_[part].rows) row -= parts_[part++].rows;
  return {part, row};
}

void StackedWeights::Load(int row, int first, int count, float* out) const {
  const Place place = Find(row);
  const int present = std::clamp(cols() - first, 0, count);
  LoadValues(parts_[place.part], place.row, first, present, out);
  std::fill(out + present, out + count, 0.0f);
}

void StackedWeights::LoadBF16(int row, int first, int count,
                              uint16_t* out) const {
  const Place place = Find(row);
  const HostMatrix& part = parts_[place.part];
  const int present = std::clamp(cols() - first, 0, count);
  if (part.dtype == DType::kBF16) {
    const size_t index = static_cast<size_t>(place.row) * part.cols + first;
    std::memcpy(out, static_cast<const char*>(part.data) + index * sizeof(*out),
                present * sizeof(*out));
  } else {
    constexpr int kPiece = 16;
    float values[kPiece];
    for (int i = 0; i < present; i += kPiece) {
      const int size = std::min(kPiece, present - i);
      LoadValues(part, place.row, first + i, size, values);
      std::transform(values, values + size, out + i, ToBF16);
    }
  }
  std::fill(out + present, out + count, uint16_t{0});
}

}  // namespace nacre::kernels
