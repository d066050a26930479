#include "kernels/cpu/quantized_matrix.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/cpu/row_tiling.h"
#include "kernels/host_memory.h"
#include "kernels/quantization.h"

namespace nacre::kernels {
namespace {

uint32_t FourBytes(const int8_t* from) {
  uint32_t bytes;
  std::memcpy(&bytes, from, sizeof(bytes));
  return bytes;
}

// The integers of one output and group in their places of a cell. A sign bit
// turned over adds the offset.
void StoreIntegers(Int8Cells, const int8_t* integers, uint8_t* to) {
  for (int step = 0; step < Int8Cells::kSteps; ++step) {
    const uint32_t bytes = FourBytes(integers + size_t{4} * step) ^ 0x80808080u;
    std::memcpy(to + step * Int8Cells::kStepBytes, &bytes, sizeof(bytes));
  }
}

void StoreIntegers(Int4Cells, const int8_t* integers, uint8_t* to) {
  constexpr uint32_t kLow = 0x0F0F0F0Fu;
  constexpr uint32_t kSigns = 0x08080808u;
  for (int step = 0; step < Int4Cells::kSteps; ++step) {
    const uint32_t low =
        (FourBytes(integers + size_t{4} * step) & kLow) ^ kSigns;
    const uint32_t high =
        (FourBytes(integers + size_t{4} * (Int4Cells::kSteps + step)) & kLow) ^
        kSigns;
    const uint32_t bytes = low | high << 4;
    std::memcpy(to + step * Int4Cells::kStepBytes, &bytes, sizeof(bytes));
  }
}

absl::Status NotFinite(const StackedWeights& weights, int row,
                       WeightType type) {
  std::vector<float> values(weights.cols());
  weights.ForUnits(1, row, row + 1, [&](const StackedWeights& rows, int) {
    rows.Load(row, 0, weights.cols(), values.data());
  });
  const auto bad = std::find_if_not(values.begin(), values.end(),
                                    [](float v) { return std::isfinite(v); });
  const StackedWeights::Place place = weights.Find(row);
  return absl::InvalidArgumentError(
      absl::StrCat("weight [", place.row, ", ", bad - values.begin(),
                   "] of matrix ", place.part, " is ", *bad, ", which has no ",
                   type == WeightType::kInt8 ? 8 : 4,
                   "-bit value: keep the weights as bf16 or f32"));
}

}  // namespace

QuantizedMatrix::QuantizedMatrix(const StackedWeights& weights, WeightType type,
                                 const QuantizedGemmKernels& kernels)
    : kernels_(kernels),
      type_(type),
      rows_(weights.rows()),
      cols_(weights.cols()),
      groups_(static_cast<size_t>((cols_ + QuantizedGroupSize(type) - 1) /
                                  QuantizedGroupSize(type))) {}

size_t QuantizedMatrix::Bytes() const {
  return num_units() * groups_ *
         (type_ == WeightType::kInt8 ? Int8Cells::kBytes : Int4Cells::kBytes);
}

size_t QuantizedMatrix::Bytes(const StackedWeights& weights, WeightType type,
                              const QuantizedGemmKernels& kernels) {
  return QuantizedMatrix(weights, type, kernels).Bytes();
}

absl::StatusOr<std::unique_ptr<QuantizedMatrix>> QuantizedMatrix::Create(
    const StackedWeights& weights, WeightType type,
    const QuantizedGemmKernels& kernels, RunRanges run, HostArena* memory) {
  std::unique_ptr<QuantizedMatrix> matrix(
      new QuantizedMatrix(weights, type, kernels));
  NACRE_ASSIGN_OR_RETURN(matrix->memory_, memory->Allocate(matrix->Bytes()));
  matrix->weights_ = static_cast<uint8_t*>(matrix->memory_->data());
  std::atomic<int> bad_row{matrix->rows_};  // the first one
  const auto pack = [&](const StackedWeights& rows, int unit) {
    const int bad = type == WeightType::kInt8
                        ? matrix->PackUnit<Int8Cells>(rows, unit)
                        : matrix->PackUnit<Int4Cells>(rows, unit);
    int first = bad_row.load();
    while (bad < first && !bad_row.compare_exchange_weak(first, bad)) {
    }
  };
  run(matrix->num_units(), [&](int begin, int end) {
    weights.ForUnits(QuantizedCells::kUnitOutputs, begin, end, pack);
  });
  if (bad_row.load() < matrix->rows_) {
    return NotFinite(weights, bad_row.load(), type);
  }
  return matrix;
}

template <class Cells>
int QuantizedMatrix::PackUnit(const StackedWeights& weights, int unit) {
  const auto quantize =
      Cells::kQuadsPerStep == 1 ? kernels_.weights_int8 : kernels_.weights_int4;
  const int first_row = unit * QuantizedCells::kUnitOutputs;
  const int outputs = std::min(QuantizedCells::kUnitOutputs, rows_ - first_row);
  uint8_t* cell = weights_ + unit * groups_ * Cells::kBytes;
  int bad_row = rows_;
  // Group by group: a cell stays in the level-1 cache while it is written.
  for (int k = 0; k < cols_; k += Cells::kGroup, cell += Cells::kBytes) {
    for (int output = 0; output < outputs; ++output) {
      float values[Cells::kGroup];
      int8_t integers[Cells::kGroup];
      weights.Load(first_row + output, k, Cells::kGroup, values);
      const float scale = quantize(values, integers);
      if (std::isnan(scale)) bad_row = std::min(bad_row, first_row + output);
      StoreIntegers(Cells(), integers, cell + size_t{4} * output);
      const uint16_t bits = ToBF16(scale);
      std::memcpy(
          cell + Cells::kSteps * Cells::kStepBytes + output * sizeof(bits),
          &bits, sizeof(bits));
    }
  }
  return bad_row;
}

size_t QuantizedMatrix::ActivationBytes(int rows) const {
  const size_t row_bytes =
      type_ == WeightType::kInt8 ? Int8Cells::kRowBytes : Int4Cells::kRowBytes;
  return rows * groups_ * row_bytes;
}

int QuantizedMatrix::num_tiles(int rows) const {
  return RowTiling(rows, kQuantizedTileRows).count;
}

int QuantizedMatrix::num_units() const {
  return (rows_ + QuantizedCells::kUnitOutputs - 1) /
         QuantizedCells::kUnitOutputs;
}

template <class Cells>
void QuantizedMatrix::PackRow(const float* values, int i, int tile_rows,
                              char* out) const {
  float padded[Cells::kGroup] = {};
  int8_t integers[Cells::kGroup];
  for (int k = 0; k < cols_;
       k += Cells::kGroup, out += tile_rows * Cells::kRowBytes) {
    const float* from = values + k;
    if (cols_ - k < Cells::kGroup) {
      std::memcpy(padded, from, (cols_ - k) * sizeof(float));
      from = padded;
    }
    const float scale = kernels_.quantize(from, Cells::kGroup, integers);
    int32_t sum = 0;
    for (const int8_t integer : integers) sum += integer;
    const int32_t correction = -Cells::kOffset * sum;
    char* quad = out + size_t{4} * i;
    for (int j = 0; j < Cells::kGroup; j += 4, quad += size_t{4} * tile_rows) {
      std::memcpy(quad, integers + j, 4);
    }
    char* const scales = out + tile_rows * Cells::kGroup;
    std::memcpy(scales + size_t{4} * i, &scale, 4);
    std::memcpy(scales + size_t{4} * (tile_rows + i), &correction, 4);
  }
}

void QuantizedMatrix::PackActivations(const float* x, int rows, int tile_begin,
                                      int tile_end, void* packed) const {
  const RowTiling tiling(rows, kQuantizedTileRows);
  const PackActivationTiles pack =
      type_ == WeightType::kInt8 ? kernels_.pack_int8 : kernels_.pack_int4;
  if (pack != nullptr) {
    pack(x, tiling, tile_begin, tile_end, cols_, packed);
    return;
  }
  for (int tile = tile_begin; tile < tile_end; ++tile) {
    const int begin = tiling.begin(tile);
    char* const out = static_cast<char*>(packed) + ActivationBytes(begin);
    for (int i = 0; i < tiling.size(tile); ++i) {
      const float* values = x + static_cast<size_t>(begin + i) * cols_;
      if (type_ == WeightType::kInt8) {
        PackRow<Int8Cells>(values, i, tiling.size(tile), out);
      } else {
        PackRow<Int4Cells>(values, i, tiling.size(tile), out);
      }
    }
  }
}

void QuantizedMatrix::Multiply(const void* packed, int rows, int unit_begin,
                               int unit_end, float* y) const {
  GemmArgs args;
  args.weights = reinterpret_cast<const char*>(weights_);
  args.activations = static_cast<const char*>(packed);
  args.rows = rows;
  args.outputs = rows_;
  args.cells = groups_;
  args.y = y;
  if (type_ == WeightType::kInt8) {
    kernels_.multiply_int8(args, unit_begin, unit_end);
  } else {
    kernels_.multiply_int4(args, unit_begin, unit_end);
  }
}

}  // namespace nacre::kernels
