#include "kernels/cpu/dense_matrix.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "common/status_macros.h"
#include "kernels/host_memory.h"

namespace nacre::kernels {

namespace {

struct BF16Pair {
  uint16_t first;
  uint16_t second;
};

// Inputs that are turned from rows into columns at a time: one line of every
// row, 4 KB in all.
constexpr int kPiece = 16;  // words

void LoadWords(const StackedWeights& weights, int row, int word, float* out) {
  weights.Load(row, word, kPiece, out);
}

void LoadWords(const StackedWeights& weights, int row, int word,
               BF16Pair* out) {
  uint16_t values[2 * kPiece];
  weights.LoadBF16(row, 2 * word, 2 * kPiece, values);
  static_assert(sizeof(BF16Pair) == 2 * sizeof(uint16_t));
  std::memcpy(out, values, sizeof(values));
}

}  // namespace

DenseMatrix::DenseMatrix(const StackedWeights& weights, WeightType type,
                         const GemmKernels& kernels)
    : kernels_(kernels),
      rows_(weights.rows()),
      cols_(weights.cols()),
      is_bf16_(type == WeightType::kBF16 || type == WeightType::kBF16A16 ||
               (type == WeightType::kAuto && weights.is_bf16())),
      rounds_inputs_(type == WeightType::kBF16A16),
      cells_(static_cast<size_t>((cols_ + kDenseCellInputs - 1) /
                                 kDenseCellInputs)) {}

size_t DenseMatrix::Bytes() const {
  const size_t inputs = cells_ * kDenseCellInputs;
  return num_units() * inputs * unit_outputs() *
             (is_bf16_ ? sizeof(uint16_t) : sizeof(float)) +
         kPrefetchBytes;
}

size_t DenseMatrix::Bytes(const StackedWeights& weights, WeightType type,
                          const GemmKernels& kernels) {
  return DenseMatrix(weights, type, kernels).Bytes();
}

absl::StatusOr<std::unique_ptr<DenseMatrix>> DenseMatrix::Create(
    const StackedWeights& weights, WeightType type, const GemmKernels& kernels,
    RunRanges run) {
  std::unique_ptr<DenseMatrix> packed(new DenseMatrix(weights, type, kernels));
  NACRE_ASSIGN_OR_RETURN(packed->memory_, AllocateHostBuffer(packed->Bytes()));
  const auto pack = [&](const StackedWeights& rows, int unit) {
    if (packed->is_bf16_) {
      packed->PackUnit<BF16Pair>(rows, unit);
    } else {
      packed->PackUnit<float>(rows, unit);
    }
  };
  run(packed->num_units(), [&](int begin, int end) {
    weights.ForUnits(static_cast<int>(packed->unit_outputs()), begin, end,
                     pack);
  });
  return packed;
}

template <class Word>
void DenseMatrix::PackUnit(const StackedWeights& weights, int unit) {
  const int outputs = static_cast<int>(unit_outputs());
  const int words =
      static_cast<int>(cells_) * kDenseCellInputs / (is_bf16_ ? 2 : 1);
  auto* const out = static_cast<Word*>(memory_->data()) +
                    static_cast<size_t>(unit) * words * outputs;
  const int first = unit * outputs;
  const int present = std::min(outputs, rows_ - first);
  for (int word = 0; word < words; word += kPiece) {
    const int size = std::min(kPiece, words - word);
    for (int o = 0; o < present; ++o) {
      Word values[kPiece];
      LoadWords(weights, first + o, word, values);
      Word* to = out + static_cast<size_t>(word) * outputs + o;
      for (int i = 0; i < size; ++i, to += outputs) *to = values[i];
    }
  }
}

int DenseMatrix::num_units() const {
  const int outputs = static_cast<int>(unit_outputs());
  return (rows_ + outputs - 1) / outputs;
}

RowTiling DenseMatrix::Tiling(int rows) const {
  return RowTiling(rows,
                   is_bf16_ ? kernels_.tile_rows_bf16 : kernels_.tile_rows_f32);
}

size_t DenseMatrix::ActivationBytes(int rows) const {
  return rows * cells_ * kDenseCellInputs * sizeof(float);
}

void DenseMatrix::PackActivations(const float* x, int rows, int tile_begin,
                                  int tile_end, void* packed) const {
  const auto pack = rounds_inputs_ ? kernels_.pack_rounded : kernels_.pack;
  pack(x, Tiling(rows), tile_begin, tile_end, cols_, packed);
}

void DenseMatrix::Multiply(const void* packed, int rows, int unit_begin,
                           int unit_end, float* y) const {
  GemmArgs args;
  args.weights = static_cast<const char*>(memory_->data());
  args.activations = static_cast<const char*>(packed);
  args.rows = rows;
  args.outputs = rows_;
  args.cells = cells_;
  args.y = y;
  const auto multiply = rounds_inputs_ ? kernels_.multiply_rounded
                        : is_bf16_     ? kernels_.multiply_bf16
                                       : kernels_.multiply_f32;
  multiply(args, unit_begin, unit_end);
}

}  // namespace nacre::kernels
