#include "model/quantized/dequantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace nacre::model {
namespace {

using kernels::DType;

// Rows whose codes are read together: what is stored transposed has them side
// by side.
constexpr int kRowsAtOnce = 32;
// Lanes of a word of AutoAWQ that hold its numbers 0 to 7.
constexpr int kAwqLanes[] = {0, 4, 1, 5, 2, 6, 3, 7};

float LoadScale(DType type, const char* scales, int64_t index) {
  if (type == DType::kF32) {
    float value;
    std::memcpy(&value, scales + index * 4, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, scales + index * 2, sizeof(bits));
  return type == DType::kBF16 ? kernels::FromBF16(bits)
                              : kernels::FromF16(bits);
}

// The bits of a value rounded to the type.
uint32_t RoundedBits(DType type, float value) {
  if (type == DType::kF32) return std::bit_cast<uint32_t>(value);
  return type == DType::kBF16 ? kernels::ToBF16(value) : RoundToF16(value);
}

// What each code stands for in each block of one row.
class RowTable {
 public:
  explicit RowTable(const QuantizedMatrix& matrix)
      : matrix_(matrix),
        codes_(size_t{1} << matrix.codes.bits),
        bits_(codes_ * static_cast<size_t>(matrix.scale_cols)) {}

  void SetRow(int row) {
    const int block = row / matrix_.block_rows;
    if (block == block_) return;
    block_ = block;
    for (int col = 0; col < matrix_.scale_cols; ++col) SetBlock(col);
  }

  // Rounded to the scales' type.
  uint32_t Bits(int64_t block, uint8_t code) const {
    return bits_[static_cast<size_t>(block) * codes_ + code];
  }

 private:
  void SetBlock(int col) {
    const int64_t index = matrix_.has_transposed_scales
                              ? int64_t{col} * matrix_.scale_rows + block_
                              : int64_t{block_} * matrix_.scale_cols + col;
    const float scale = LoadScale(matrix_.scale_type, matrix_.scales, index);
    const CodeValues& values = matrix_.values;
    const float zero = matrix_.zeros.data == nullptr
                           ? 0.0f
                           : values[matrix_.zeros.At(block_, col)];
    for (size_t code = 0; code < codes_; ++code) {
      bits_[static_cast<size_t>(col) * codes_ + code] =
          RoundedBits(matrix_.scale_type, (values[code] - zero) * scale);
    }
  }

  const QuantizedMatrix& matrix_;
  const size_t codes_;
  std::vector<uint32_t> bits_;
  int block_ = -1;
};

// Codes of rows [first, first + count), `stride` apart; `first` is a multiple
// of kRowsAtOnce, and so of what a word holds.
void ReadCodes(const QuantizedMatrix& matrix, int first, int count,
               size_t stride, uint8_t* out) {
  const PackedCodes& codes = matrix.codes;
  const int per_word = codes.per_word();
  const bool is_down = codes.packs_rows();
  const int row_step = is_down ? per_word : 1;
  const int col_step = is_down ? 1 : per_word;
  const size_t next = is_down ? stride : 1;
  const auto read = [&](int row, int col) {
    const uint32_t word = codes.WordOf(first + row, col);
    const int size =
        std::min(per_word, is_down ? count - row : matrix.cols - col);
    uint8_t* const to = out + static_cast<size_t>(row) * stride + col;
    for (int i = 0; i < size; ++i) {
      to[static_cast<size_t>(i) * next] = codes.Number(word, i);
    }
  };
  // As what is stored lies.
  if (!codes.is_transposed) {
    for (int row = 0; row < count; row += row_step) {
      for (int col = 0; col < matrix.cols; col += col_step) read(row, col);
    }
    return;
  }
  for (int col = 0; col < matrix.cols; col += col_step) {
    for (int row = 0; row < count; row += row_step) read(row, col);
  }
}

// T has the size of the scales' type.
template <typename T>
void StoreRow(const QuantizedMatrix& matrix, const RowTable& table,
              const uint8_t* codes, char* out) {
  const auto store = [&](int col, int64_t block) {
    const T bits = static_cast<T>(table.Bits(block, codes[col]));
    std::memcpy(out + static_cast<size_t>(col) * sizeof(T), &bits, sizeof(T));
  };
  if (!matrix.column_blocks.empty()) {
    for (int col = 0; col < matrix.cols; ++col) {
      store(col, matrix.column_blocks[static_cast<size_t>(col)]);
    }
    return;
  }
  for (int block = 0; block < matrix.scale_cols; ++block) {
    const int64_t begin = int64_t{block} * matrix.block_cols;
    const int64_t end =
        std::min<int64_t>(begin + matrix.block_cols, matrix.cols);
    for (int64_t col = begin; col < end; ++col) {
      store(static_cast<int>(col), block);
    }
  }
}

}  // namespace

uint32_t PackedCodes::WordOf(int64_t row, int64_t col) const {
  int64_t i = is_transposed ? col : row;
  int64_t j = is_transposed ? row : col;
  if (word_bytes == 1) return static_cast<uint8_t>(data[i * stride + j]);
  (packs_columns ? i : j) /= per_word();
  uint32_t word;
  std::memcpy(&word, data + (i * stride + j) * 4, sizeof(word));
  return word + added;
}

uint8_t PackedCodes::Number(uint32_t word, int index) const {
  const int lane = has_awq_order ? kAwqLanes[index] : index;
  return static_cast<uint8_t>((word >> (lane * bits)) & ((1u << bits) - 1));
}

uint8_t PackedCodes::At(int64_t row, int64_t col) const {
  const int64_t packed = packs_rows() ? row : col;
  return Number(WordOf(row, col), static_cast<int>(packed % per_word()));
}

CodeValues UnsignedValues() {
  CodeValues values;
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  return values;
}

CodeValues SignedValues() {
  CodeValues values;
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(static_cast<int8_t>(i));
  }
  return values;
}

CodeValues OffsetValues(int bits) {
  CodeValues values = UnsignedValues();
  for (float& value : values) value -= static_cast<float>(1 << (bits - 1));
  return values;
}

CodeValues Float8Values() {
  CodeValues values;
  for (int i = 0; i < 256; ++i) {
    const int exponent = (i >> 3) & 0xF;
    const int fraction = i & 0x7;
    float value = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                                : std::ldexp(static_cast<float>(8 + fraction),
                                             exponent - 10);
    if ((i & 0x7F) == 0x7F) value = std::numeric_limits<float>::quiet_NaN();
    values[static_cast<size_t>(i)] = (i & 0x80) != 0 ? -value : value;
  }
  return values;
}

uint16_t RoundToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u);
  if (magnitude >= 0x477FF000u) {  // 65520, half a step above the largest
    return static_cast<uint16_t>(sign | 0x7C00u);
  }
  if (magnitude < 0x38800000u) {  // below 2^-14: a step is 2^-24, as at 0.5
    const float sum = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign |
                                 (std::bit_cast<uint32_t>(sum) - 0x3F000000u));
  }
  const uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
}

std::string Dequantize(const QuantizedMatrix& matrix) {
  const bool is_f32 = matrix.scale_type == DType::kF32;
  const auto store_row = is_f32 ? StoreRow<uint32_t> : StoreRow<uint16_t>;
  const size_t row_bytes =
      static_cast<size_t>(matrix.cols) * kernels::SizeOf(matrix.scale_type);
  std::string out(static_cast<size_t>(matrix.rows) * row_bytes, '\0');
  // Rows a power of two apart would share their places in the cache.
  const size_t stride = static_cast<size_t>(matrix.cols) + 64;
  std::vector<uint8_t> codes(kRowsAtOnce * stride);
  RowTable table(matrix);
  for (int first = 0; first < matrix.rows; first += kRowsAtOnce) {
    const int count = std::min(kRowsAtOnce, matrix.rows - first);
    ReadCodes(matrix, first, count, stride, codes.data());
    for (int row = 0; row < count; ++row) {
      table.SetRow(first + row);
      store_row(matrix, table, codes.data() + row * stride,
                out.data() + static_cast<size_t>(first + row) * row_bytes);
    }
  }
  return out;
}

}  // namespace nacre::model
