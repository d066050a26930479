#include "kernels/cpu/grouped_matrix.h"

#include <algorithm>
#include <cstring>

#include "common/check.h"
#include "common/status_macros.h"
#include "kernels/host_memory.h"

namespace nacre::kernels {
namespace {

constexpr int kMaxPieceWords = 8;
// Vectors of more lanes than that are not compiled for.
constexpr size_t kMaxUnitOutputs = size_t{kUnitVectors} * 16;
// Tiles for which pieces are decoded once, and how many pieces: they stay in
// the level-1 cache.
constexpr int kTilesTogether = 16;
constexpr int kPiecesTogether = 2;
constexpr int kMaxRowsTogether = 48;
constexpr int kPieceCells = kPieceInputs / kDenseCellInputs;
// Weights are fetched this far ahead of their use.
constexpr size_t kAheadBytes = 4096;

// One output of a block, the others of which lie beside it.
void StoreBlock(const WeightGroups& groups, const GroupedLayout& layout,
                const SplitBlock& split, size_t output, size_t outputs,
                char* to) {
  std::memcpy(to + 2 * output, &split.scale, sizeof(split.scale));
  if (groups.has_offsets) {
    std::memcpy(to + 2 * (outputs + output), &split.offset_scale,
                sizeof(split.offset_scale));
  }
  for (int i = 0; groups.has_steps && i < groups.block / groups.group; ++i) {
    char* const step = to + layout.steps + i * layout.step_bytes + output;
    std::memcpy(step, &split.steps[i], 1);
    if (groups.has_offsets) std::memcpy(step + outputs, &split.offsets[i], 1);
  }
  uint32_t words[kMaxPieceWords];
  for (int i = 0; i < groups.block / kPieceInputs; ++i) {
    PackPiece(groups, split.integers + std::ptrdiff_t{kPieceInputs} * i, words);
    char* const out = to + layout.pieces + i * layout.piece_bytes;
    for (int w = 0; w < groups.low_bits + groups.high_bits; ++w) {
      std::memcpy(out + sizeof(uint32_t) * (w * outputs + output), &words[w],
                  sizeof(uint32_t));
    }
  }
}

}  // namespace

bool GroupedMatrix::CanHold(absl::Span<const HostMatrix> parts) {
  return std::all_of(parts.begin(), parts.end(), [](const HostMatrix& part) {
    return part.groups != nullptr;
  });
}

GroupedMatrix::GroupedMatrix(absl::Span<const HostMatrix> parts,
                             const GemmKernels& kernels)
    : kernels_(kernels), cols_(parts[0].cols) {
  const int outputs = static_cast<int>(unit_outputs());
  for (const HostMatrix& matrix : parts) {
    NACRE_CHECK(matrix.cols % matrix.groups->block == 0,
                "columns that are no whole blocks");
    Part part = {matrix.groups, GroupedLayout(*matrix.groups, unit_outputs())};
    part.kernels = ChooseGroupedKernels(*matrix.groups);
    part.first_row = rows_;
    part.rows = matrix.rows;
    part.first_unit = num_units_;
    part.units = (matrix.rows + outputs - 1) / outputs;
    part.offset = bytes_;
    part.unit_bytes = static_cast<size_t>(cols_ / matrix.groups->block) *
                      part.layout.block_bytes;
    rows_ += part.rows;
    num_units_ += part.units;
    bytes_ += part.units * part.unit_bytes;
    parts_.push_back(part);
  }
}

size_t GroupedMatrix::Bytes(absl::Span<const HostMatrix> parts,
                            const GemmKernels& kernels) {
  return GroupedMatrix(parts, kernels).bytes_;
}

absl::StatusOr<std::unique_ptr<GroupedMatrix>> GroupedMatrix::Create(
    absl::Span<const HostMatrix> parts, const GemmKernels& kernels,
    RunRanges run, HostArena* memory) {
  CheckedTotalRows(parts);
  std::unique_ptr<GroupedMatrix> matrix(new GroupedMatrix(parts, kernels));
  NACRE_ASSIGN_OR_RETURN(matrix->memory_, memory->Allocate(matrix->bytes_));
  char* const to = static_cast<char*>(matrix->memory_->data());
  run(matrix->num_units_, [&](int begin, int end) {
    for (int unit = begin; unit < end; ++unit) {
      const Part& part = matrix->PartOf(unit);
      const int in_part = unit - part.first_unit;
      matrix->PackUnit(parts[&part - matrix->parts_.data()], part, in_part,
                       to + part.offset + in_part * part.unit_bytes);
    }
  });
  return matrix;
}

const GroupedMatrix::Part& GroupedMatrix::PartOf(int unit) const {
  size_t i = 0;
  while (unit >= parts_[i].first_unit + parts_[i].units) ++i;
  return parts_[i];
}

void GroupedMatrix::PackUnit(const HostMatrix& matrix, const Part& part,
                             int unit, char* to) const {
  const WeightGroups& groups = *part.groups;
  const int outputs = static_cast<int>(unit_outputs());
  const int first = unit * outputs;
  const int present = std::min(outputs, part.rows - first);
  // Memory of an arena may have been another matrix's.
  std::memset(to, 0, part.unit_bytes);
  SplitBlock split;
  for (int block = 0; block < cols_ / groups.block; ++block) {
    for (int output = 0; output < present; ++output) {
      const auto* const row =
          static_cast<const uint8_t*>(matrix.source->Blocks(first + output));
      groups.split(row + block * groups.block_bytes, &split);
      StoreBlock(groups, part.layout, split, static_cast<size_t>(output),
                 unit_outputs(), to);
    }
    to += part.layout.block_bytes;
  }
  matrix.source->GiveBack(first, present);
}

size_t GroupedMatrix::ActivationBytes(int rows) const {
  return static_cast<size_t>(rows) * cols_ * sizeof(float);
}

void GroupedMatrix::PackActivations(const float* x, int rows, int tile_begin,
                                    int tile_end, void* packed) const {
  const RowTiling tiling = Tiling(rows);
  for (int tile = tile_begin; tile < tile_end; ++tile) {
    const size_t first = static_cast<size_t>(tiling.begin(tile)) * cols_;
    const int count = tiling.size(tile);
    auto* out = static_cast<float*>(packed) + first;
    for (int k = 0; k < cols_; ++k) {
      const float* from = x + first + k;
      for (int row = 0; row < count; ++row, from += cols_) *out++ = *from;
    }
  }
}

void GroupedMatrix::Multiply(const void* packed, int rows, int unit_begin,
                             int unit_end, float* y) const {
  const RowTiling tiling = Tiling(rows);
  int end = unit_begin;
  for (int begin = unit_begin; begin < unit_end; begin = end) {
    const Part& part = PartOf(begin);
    // Units that stay in the level-2 cache while all rows pass.
    const int block =
        std::max(1, static_cast<int>(kBlockBytes / part.unit_bytes));
    end = std::min({begin + block, unit_end, part.first_unit + part.units});
    const int together = part.kernels.decode == nullptr ? 1 : kTilesTogether;
    for (int t = 0; t < tiling.count; t += together) {
      for (int unit = begin; unit < end; ++unit) {
        MultiplyUnit(part, unit - part.first_unit,
                     static_cast<const float*>(packed), tiling, t,
                     std::min(t + together, tiling.count), y);
      }
    }
  }
}

void GroupedMatrix::MultiplyUnit(const Part& part, int unit,
                                 const float* activations,
                                 const RowTiling& tiling, int tile_begin,
                                 int tile_end, float* y) const {
  alignas(64) float sums[kMaxRowsTogether * kMaxUnitOutputs];
  const size_t outputs = unit_outputs();
  const int first_row = tiling.begin(tile_begin);
  const int num_rows = tiling.begin(tile_end) - first_row;
  NACRE_CHECK(num_rows <= kMaxRowsTogether, "tiles of too many rows");
  std::fill_n(sums, num_rows * outputs, 0.0f);
  const char* const unit_data = static_cast<const char*>(memory_->data()) +
                                part.offset + unit * part.unit_bytes;
  const bool fetches = tile_begin == 0;
  if (tile_end - tile_begin == 1) {
    const float* x = activations + size_t{1} * first_row * cols_;
    ForPieces(part, unit_data, fetches, [&](const GroupedPiece& piece, int) {
      part.kernels.add[num_rows - 1](piece, x, sums);
      x += size_t{kPieceInputs} * num_rows;
    });
  } else {
    AddDecoded(part, unit_data, activations, tiling, tile_begin, tile_end,
               sums);
  }
  const size_t first = unit * outputs;
  const size_t count = std::min(outputs, part.rows - first);
  y += size_t{1} * first_row * rows_ + part.first_row + first;
  for (int row = 0; row < num_rows; ++row, y += rows_) {
    std::memcpy(y, sums + row * outputs, count * sizeof(float));
  }
}

void GroupedMatrix::ForPieces(
    const Part& part, const char* unit, bool fetches,
    absl::FunctionRef<void(const GroupedPiece& piece, int input)> use) const {
  const int pieces = part.groups->block / kPieceInputs;
  const size_t fetched = part.layout.block_bytes / pieces;
  GroupedPiece piece = {part.groups, &part.layout, unit, 0};
  for (int input = 0; input < cols_; piece.block += part.layout.block_bytes) {
    for (piece.index = 0; piece.index < pieces;
         ++piece.index, input += kPieceInputs) {
      const char* const ahead =
          piece.block + piece.index * fetched + kAheadBytes;
      for (size_t line = 0; fetches && line < fetched; line += 64) {
        __builtin_prefetch(ahead + line);
      }
      use(piece, input);
    }
  }
}

void GroupedMatrix::AddDecoded(const Part& part, const char* unit,
                               const float* activations,
                               const RowTiling& tiling, int tile_begin,
                               int tile_end, float* sums) const {
  alignas(64) float
      weights[size_t{kPiecesTogether} * kPieceInputs * kMaxUnitOutputs];
  const size_t outputs = unit_outputs();
  const int first_row = tiling.begin(tile_begin);
  GemmSegment segment = {};
  segment.weights = reinterpret_cast<const char*>(weights);
  segment.ahead = segment.weights;
  int decoded = 0;  // pieces
  const auto add = [&](const GroupedPiece& piece, int input) {
    part.kernels.decode(
        piece, weights + outputs * kPieceInputs * static_cast<size_t>(decoded));
    const int end = input + kPieceInputs;
    if (++decoded < kPiecesTogether && end < cols_) return;
    const int begin = end - decoded * kPieceInputs;
    segment.cells = static_cast<size_t>(decoded) * kPieceCells;
    for (int tile = tile_begin; tile < tile_end; ++tile) {
      const int rows = tiling.size(tile);
      segment.x = reinterpret_cast<const char*>(
          activations + size_t{1} * tiling.begin(tile) * cols_ +
          size_t{1} * rows * begin);
      segment.sums = sums + (tiling.begin(tile) - first_row) * outputs;
      kernels_.run_f32[rows - 1](segment);
    }
    decoded = 0;
  };
  ForPieces(part, unit, tile_begin == 0, add);
}

}  // namespace nacre::kernels
