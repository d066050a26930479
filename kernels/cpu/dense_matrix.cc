#include "kernels/cpu/dense_matrix.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "common/status_macros.h"
#include "hwy/aligned_allocator.h"
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
         (is_bf16_ ? sizeof(uint16_t) : sizeof(float));
}

size_t DenseMatrix::Bytes(const StackedWeights& weights, WeightType type,
                          const GemmKernels& kernels) {
  return DenseMatrix(weights, type, kernels).Bytes();
}

absl::StatusOr<std::unique_ptr<DenseMatrix>> DenseMatrix::Create(
    const StackedWeights& weights, WeightType type, const GemmKernels& kernels,
    RunRanges run, HostArena* memory) {
  std::unique_ptr<DenseMatrix> packed(new DenseMatrix(weights, type, kernels));
  if (packed->CanBeCoded() && packed->SampleHasCodes(weights)) {
    NACRE_ASSIGN_OR_RETURN(const bool is_coded,
                           packed->Code(weights, run, memory));
    if (is_coded) return packed;
  }
  NACRE_ASSIGN_OR_RETURN(packed->memory_, memory->Allocate(packed->Bytes()));
  char* const units = static_cast<char*>(packed->memory_->data());
  const auto pack = [&](const StackedWeights& rows, int unit) {
    const size_t first = unit * packed->unit_weights();
    if (packed->is_bf16_) {
      packed->PackUnit<BF16Pair>(rows, unit, units + first * sizeof(uint16_t));
    } else {
      packed->PackUnit<float>(rows, unit, units + first * sizeof(float));
    }
  };
  run(packed->num_units(), [&](int begin, int end) {
    weights.ForUnits(static_cast<int>(packed->unit_outputs()), begin, end,
                     pack);
  });
  return packed;
}

// A unit in 16 bits, on its way to 12.
using UnitInPairs = hwy::AlignedFreeUniquePtr<uint16_t[]>;

bool DenseMatrix::CanBeCoded() const {
  return rounds_inputs_ && kernels_.coded != nullptr &&
         num_units() * unit_weights() * sizeof(uint16_t) >=
             kernels_.min_coded_bytes;
}

size_t DenseMatrix::CodedBytes() const {
  return num_units() * unit_weights() / kCodedStepWeights * kCodedStepBytes;
}

size_t DenseMatrix::MayBeSaved(const StackedWeights& weights, WeightType type,
                               const GemmKernels& kernels) {
  const DenseMatrix matrix(weights, type, kernels);
  return matrix.CanBeCoded() ? matrix.Bytes() - matrix.CodedBytes() : 0;
}

bool DenseMatrix::SampleHasCodes(const StackedWeights& weights) const {
  const size_t steps = unit_weights() / kCodedStepWeights;
  const UnitInPairs pairs = hwy::AllocateAligned<uint16_t>(unit_weights());
  const auto coded = hwy::AllocateAligned<uint8_t>(steps * kCodedStepBytes);
  if (pairs == nullptr || coded == nullptr) return false;
  std::vector<WeightPatch> patches;
  const int samples = std::min(8, 1 + num_units() / 16);
  for (int i = 0; i < samples; ++i) {
    // From the middle of as many pieces.
    const int unit = static_cast<int>((int64_t{2} * i + 1) * num_units() /
                                      (int64_t{2} * samples));
    weights.ForUnits(static_cast<int>(unit_outputs()), unit, unit + 1,
                     [&](const StackedWeights& rows, int) {
                       PackUnit<BF16Pair>(rows, unit, pairs.get());
                     });
    CodedUnit codes;
    ChooseHighBytes(pairs.get(), steps, &codes);
    kernels_.coded->encode(pairs.get(), steps, codes, coded.get(), &patches);
  }
  return patches.size() * kWeightsPerPatch <= unit_weights() * samples;
}

absl::StatusOr<bool> DenseMatrix::Code(const StackedWeights& weights,
                                       RunRanges run, HostArena* memory) {
  NACRE_ASSIGN_OR_RETURN(memory_, memory->Allocate(CodedBytes()));
  const size_t steps = unit_weights() / kCodedStepWeights;
  auto* const codes = static_cast<uint8_t*>(memory_->data());
  const size_t most = num_units() * unit_weights() / kWeightsPerPatch;
  std::vector<CodedUnit> units(static_cast<size_t>(num_units()));
  std::vector<std::vector<WeightPatch>> patches(units.size());
  std::atomic<size_t> count{0};
  std::atomic<bool> has_memory{true};
  run(num_units(), [&](int begin, int end) {
    const UnitInPairs pairs = hwy::AllocateAligned<uint16_t>(unit_weights());
    if (pairs == nullptr) {
      has_memory = false;
      return;
    }
    weights.ForUnits(static_cast<int>(unit_outputs()), begin, end,
                     [&](const StackedWeights& rows, int unit) {
                       if (count > most) return;
                       PackUnit<BF16Pair>(rows, unit, pairs.get());
                       ChooseHighBytes(pairs.get(), steps, &units[unit]);
                       kernels_.coded->encode(
                           pairs.get(), steps, units[unit],
                           codes + unit * steps * kCodedStepBytes,
                           &patches[unit]);
                       count += patches[unit].size();
                     });
  });
  if (!has_memory || count > most) {
    memory_.reset();
    return false;
  }
  coded_ = std::move(units);
  patches_.reserve(count);
  for (size_t unit = 0; unit < coded_.size(); ++unit) {
    coded_[unit].patches = patches_.data() + patches_.size();
    patches_.insert(patches_.end(), patches[unit].begin(), patches[unit].end());
    coded_[unit].patches_end = patches_.data() + patches_.size();
  }
  return true;
}

template <class Word>
void DenseMatrix::PackUnit(const StackedWeights& weights, int unit,
                           void* to_unit) const {
  const int outputs = static_cast<int>(unit_outputs());
  const int words =
      static_cast<int>(cells_) * kDenseCellInputs / (is_bf16_ ? 2 : 1);
  auto* const out = static_cast<Word*>(to_unit);
  const int first = unit * outputs;
  const int present = std::min(outputs, rows_ - first);
  if (present < outputs)
    std::memset(to_unit, 0, unit_weights() * sizeof(Word) / (is_bf16_ ? 2 : 1));
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
  args.coded = coded_.data();
  const auto multiply = !coded_.empty()  ? kernels_.coded->multiply
                        : rounds_inputs_ ? kernels_.multiply_rounded
                        : is_bf16_       ? kernels_.multiply_bf16
                                         : kernels_.multiply_f32;
  multiply(args, unit_begin, unit_end);
}

}  // namespace nacre::kernels
