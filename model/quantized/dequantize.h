// What quantized weights stand for, in their publishers' arithmetic. Each is
// (number - zero point) * scale, computed exactly and rounded once, to the type
// of the scale.
//
// Pure functions of memory at hand.

#ifndef MODEL_QUANTIZED_DEQUANTIZE_H_
#define MODEL_QUANTIZED_DEQUANTIZE_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "kernels/dtype.h"

namespace nacre::model {

// The bits of a matrix's numbers, packed in words of a matrix of them, stored
// as it is or transposed. The numbers of one word follow each other in a row or
// in a column of what is stored, the first in the lowest bits.
struct PackedCodes {
  const char* data = nullptr;  // any alignment; null: no numbers
  int bits = 8;                // of a number, a power of two, at most 8
  int word_bytes = 4;          // 1 or 4
  int64_t stride = 0;          // words of a row of what is stored
  bool is_transposed = false;
  bool packs_columns = false;  // a word holds numbers of one stored column
  bool has_awq_order = false;  // of eight numbers 0, 2, 4, 6, 1, 3, 5, 7
  uint32_t added = 0;          // to each word; what overflows is lost

  int per_word() const { return word_bytes * 8 / bits; }
  // Whether the numbers of a word are in one column, else in one row.
  bool packs_rows() const { return is_transposed != packs_columns; }
  // The word that holds a number.
  uint32_t WordOf(int64_t row, int64_t col) const;
  // Number `index` of a word.
  uint8_t Number(uint32_t word, int index) const;
  uint8_t At(int64_t row, int64_t col) const;
};

// The number that each code stands for, exact in float32.
using CodeValues = std::array<float, 256>;

CodeValues UnsignedValues();
// Two's complement.
CodeValues SignedValues();
// Of `bits`, counted from 2^(bits - 1).
CodeValues OffsetValues(int bits);
// F8_E4M3: no infinities, two NaNs.
CodeValues Float8Values();

struct QuantizedMatrix {
  int rows = 0;
  int cols = 0;
  PackedCodes codes;  // [rows, cols]
  CodeValues values = {};
  PackedCodes zeros;  // as scales; no data: none
  kernels::DType scale_type = kernels::DType::kF16;
  const char* scales = nullptr;  // of each block of rows and columns
  bool has_transposed_scales = false;
  int scale_rows = 1;  // blocks
  int scale_cols = 1;
  int block_rows = 1;
  int block_cols = 1;
  // Of each column its block, instead of column / block_cols; may be empty.
  absl::Span<const int64_t> column_blocks;
};

// To nearest, ties to even; NaN stays NaN.
uint16_t RoundToF16(float value);

// [rows, cols] of matrix.scale_type.
std::string Dequantize(const QuantizedMatrix& matrix);

}  // namespace nacre::model

#endif  // MODEL_QUANTIZED_DEQUANTIZE_H_
