#include "model/qkv_rows.h"

#include "kernels/dtype.h"

namespace nacre::model {
namespace {

using kernels::HostMatrix;

// Rows [first, first + count) of a matrix.
HostMatrix RowsOf(const HostMatrix& matrix, int first, int count) {
  const size_t row_bytes =
      static_cast<size_t>(matrix.cols) * kernels::SizeOf(matrix.dtype);
  return {matrix.dtype,
          static_cast<const char*>(matrix.data) +
              static_cast<size_t>(first) * row_bytes,
          count, matrix.cols};
}

void AppendRow(const HostMatrix& matrix, int row, std::string* to) {
  to->append(static_cast<const char*>(RowsOf(matrix, row, 1).data),
             static_cast<size_t>(matrix.cols) * kernels::SizeOf(matrix.dtype));
}

// The row of QkvLayout::kByHead that holds row `row` of the queries (part 0),
// the keys (1) or the values (2).
int RowByHead(int head_dim, int part, int row) {
  return (row / head_dim * 3 + part) * head_dim + row % head_dim;
}

}  // namespace

HeadOrder::HeadOrder(const ModelConfig& config)
    : from_(static_cast<size_t>(config.head_dim)) {
  const size_t half = from_.size() / 2;
  const size_t pairs = static_cast<size_t>(config.rotary_pairs());
  size_t rest = 2 * pairs;
  for (size_t j = 0; j < half; ++j) from_[j] = j < pairs ? j : rest++;
  for (size_t j = 0; j < half; ++j) {
    from_[half + j] = j < pairs ? pairs + j : rest++;
  }
  is_same_ = pairs == half || pairs == 0;
}

int HeadOrder::From(int row) const {
  const int size = static_cast<int>(from_.size());
  return row / size * size +
         static_cast<int>(from_[static_cast<size_t>(row % size)]);
}

void HeadOrder::Apply(HostMatrix* matrix, std::string* storage) const {
  if (is_same_) return;
  for (int row = 0; row < matrix->rows; ++row) {
    AppendRow(*matrix, From(row), storage);
  }
  matrix->data = storage->data();
}

void HeadOrder::Apply(int count, std::vector<float>* values) const {
  if (is_same_) return;
  const std::vector<float> before = *values;
  for (int i = 0; i < count; ++i) {
    (*values)[static_cast<size_t>(i)] = before[static_cast<size_t>(From(i))];
  }
}

std::vector<HostMatrix> SeparateQkv(const ModelConfig& config,
                                    const HostMatrix& all,
                                    std::string* storage) {
  std::vector<HostMatrix> parts;
  int first = 0;
  for (const int size : {config.q_size(), config.kv_size(), config.kv_size()}) {
    const int part = static_cast<int>(parts.size());
    HostMatrix& rows = parts.emplace_back(RowsOf(all, first, size));
    first += size;
    if (config.blocks.qkv_layout == QkvLayout::kStacked) continue;
    std::string& copy = storage[part];
    for (int row = 0; row < size; ++row) {
      AppendRow(all, RowByHead(config.head_dim, part, row), &copy);
    }
    rows.data = copy.data();
  }
  return parts;
}

void SeparateQkv(const ModelConfig& config, std::vector<float>* biases) {
  if (config.blocks.qkv_layout == QkvLayout::kStacked) return;
  const std::vector<float> before = *biases;
  const int size = config.q_size();  // that of each part
  for (int i = 0; i < 3 * size; ++i) {
    const int from = RowByHead(config.head_dim, i / size, i % size);
    (*biases)[static_cast<size_t>(i)] = before[static_cast<size_t>(from)];
  }
}

}  // namespace nacre::model
