#include "kernels/cpu/stacked_weights.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "common/check.h"
#include "kernels/host_memory.h"

namespace nacre::kernels {

namespace {

// Some rows of stacked matrices, in memory as long as this object.
class HeldRows {
 public:
  HeldRows(absl::Span<const HostMatrix> parts, int first, int count,
           std::vector<std::vector<char>>* scratch) {
    scratch->resize(parts.size());
    for (size_t i = 0; i < parts.size(); ++i) {
      const HostMatrix& part = parts[i];
      const int begin = std::clamp(first, 0, part.rows);
      const int end = std::clamp(first + count, 0, part.rows);
      first -= part.rows;
      if (begin == end) continue;
      HostMatrix rows = part;
      rows.rows = end - begin;
      if (part.source != nullptr) {
        rows.data = part.source->Read(begin, rows.rows, &(*scratch)[i]);
        rows.source = nullptr;
        read_.push_back({part.source, begin, rows.rows});
      } else {
        rows.data = static_cast<const char*>(part.data) +
                    static_cast<size_t>(begin) * part.cols * SizeOf(part.dtype);
      }
      parts_.push_back(rows);
    }
  }
  ~HeldRows() {
    for (const Read& read : read_) {
      read.source->GiveBack(read.first, read.count);
    }
  }
  HeldRows(const HeldRows&) = delete;
  HeldRows& operator=(const HeldRows&) = delete;

  absl::Span<const HostMatrix> parts() const { return parts_; }

 private:
  struct Read {
    const RowSource* source;
    int first;
    int count;
  };
  std::vector<HostMatrix> parts_;
  std::vector<Read> read_;
};

}  // namespace

StackedWeights::StackedWeights(absl::Span<const HostMatrix> parts)
    : parts_(parts), rows_(CheckedTotalRows(parts)) {}

void StackedWeights::ForUnits(
    int unit_rows, int begin, int end,
    absl::FunctionRef<void(const StackedWeights& weights, int unit)> pack)
    const {
  const bool has_all = std::all_of(
      parts_.begin(), parts_.end(),
      [](const HostMatrix& part) { return part.source == nullptr; });
  const size_t row_bytes = static_cast<size_t>(cols()) * sizeof(float);
  const int together =
      has_all ? end - begin : std::max(1, RowsTogether(row_bytes) / unit_rows);
  std::vector<std::vector<char>> scratch;
  for (int first = begin; first < end; first += together) {
    const int last = std::min(first + together, end);
    const int first_row = first * unit_rows;
    const int rows = std::min(last * unit_rows, rows_) - first_row;
    const HeldRows held(parts_, first_row, rows, &scratch);
    const StackedWeights weights(held.parts(), first_row, rows);
    for (int unit = first; unit < last; ++unit) pack(weights, unit);
  }
}

bool StackedWeights::is_bf16() const {
  return std::all_of(parts_.begin(), parts_.end(), [](const HostMatrix& part) {
    return part.dtype == DType::kBF16;
  });
}

StackedWeights::Place StackedWeights::Find(int row) const {
  row -= first_row_;
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
