#include "kernels/cuda/cuda_matrix.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/cpu_quota.h"
#include "common/status_macros.h"
#include "kernels/cpu/stacked_weights.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cuda/gemm_quantization.h"

namespace nacre::kernels::cuda {
namespace {

// INVALID_ARGUMENT unless one of what is staged at once fits into a piece.
absl::Status CheckUnit(size_t bytes) {
  if (bytes <= Staging::kPieceBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("weights that are staged at once have ", bytes,
                   " bytes, the limit is ", Staging::kPieceBytes));
}

absl::optional<GemmFormat> FormatOf(WeightType type, bool is_bf16) {
  switch (type) {
    case WeightType::kInt8:
      return GemmFormat::kInt8;
    case WeightType::kFp8:
      return GemmFormat::kFp8;
    case WeightType::kBF16:
    case WeightType::kBF16A16:  // every product rounds its inputs
      return GemmFormat::kBf16;
    case WeightType::kAuto:
      if (is_bf16) return GemmFormat::kBf16;
      break;
    case WeightType::kInt4:
      return GemmFormat::kInt4;
    case WeightType::kF32:
      break;
  }
  return absl::nullopt;
}

// Memory of the device, and what is staged at once.
struct Layout {
  absl::optional<GemmFormat> format;
  int padded_cols = 0;
  size_t bytes = 0;
  size_t scale_bytes = 0;  // of fp8
  size_t unit_bytes = 0;
};

Layout LayoutOf(const StackedWeights& weights, WeightType type) {
  Layout layout;
  layout.format = FormatOf(type, weights.is_bf16());
  const size_t rows = static_cast<size_t>(weights.rows());
  if (!layout.format.has_value()) {
    layout.padded_cols = weights.cols();
    layout.unit_bytes = sizeof(float) * static_cast<size_t>(weights.cols());
    layout.bytes = layout.unit_bytes * rows;
    return layout;
  }
  layout.padded_cols = PaddedInputs(weights.cols());
  layout.bytes =
      GemmWeightBytes(*layout.format, weights.rows(), layout.padded_cols);
  layout.unit_bytes = PackedTileBytes(*layout.format, weights.cols());
  if (*layout.format == GemmFormat::kFp8) {
    layout.scale_bytes = rows * sizeof(float);
  }
  return layout;
}

// As many threads as this process has cores, for `bytes` of weights; few
// weights are not worth a second thread. They have no cores of their own: other
// ranks load at the same time.
std::vector<int> CoresFor(size_t bytes) {
  constexpr size_t kBytesOfAThread = size_t{1} << 20;
  constexpr size_t kMostThreads = 16;
  const size_t most = std::min(kMostThreads, bytes / kBytesOfAThread);
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return {};
  const auto cores = static_cast<size_t>(CPU_COUNT(&allowed));
  return std::vector<int>(std::min(most, cores), kAnyCpu);
}

// Calls write(unit, memory) for units [first, first + units), on all threads.
// The error is that of the first unit that has one.
absl::Status WriteUnits(ThreadPool* threads, int first, int units,
                        size_t unit_bytes,
                        absl::FunctionRef<absl::Status(int, void*)> write,
                        char* memory) {
  std::atomic<int> next{0};
  absl::Mutex mu;
  int failed = units;
  absl::Status status;
  threads->Run([&](int) {
    for (int i = next++; i < units; i = next++) {
      absl::Status written =
          write(first + i, memory + static_cast<size_t>(i) * unit_bytes);
      if (written.ok()) continue;
      const absl::MutexLock lock(&mu);
      if (i > failed) continue;
      failed = i;
      status = std::move(written);
    }
  });
  return status;
}

// Stages `count` units of `unit_bytes`, written by write(unit, memory), as many
// at a time as fit.
absl::Status Upload(int count, size_t unit_bytes,
                    absl::FunctionRef<absl::Status(int, void*)> write,
                    Staging* staging, void* to) {
  ThreadPool threads(CoresFor(static_cast<size_t>(count) * unit_bytes));
  const int units_each = static_cast<int>(Staging::kPieceBytes / unit_bytes);
  auto* out = static_cast<char*>(to);
  for (int unit = 0; unit < count; unit += units_each) {
    const int units = std::min(units_each, count - unit);
    const size_t bytes = static_cast<size_t>(units) * unit_bytes;
    auto* const staged = static_cast<char*>(staging->Reserve(bytes));
    NACRE_RETURN_IF_ERROR(
        WriteUnits(&threads, unit, units, unit_bytes, write, staged));
    staging->Send(staged, bytes, out);
    out += bytes;
  }
  return absl::OkStatus();
}

absl::Status UploadF32Rows(const StackedWeights& weights, Staging* staging,
                           void* to) {
  const int cols = weights.cols();
  const auto write = [&](int row, void* memory) {
    weights.ForUnits(1, row, row + 1, [&](const StackedWeights& held, int) {
      held.Load(row, 0, cols, static_cast<float*>(memory));
    });
    return absl::OkStatus();
  };
  return Upload(weights.rows(), static_cast<size_t>(cols) * sizeof(float),
                write, staging, to);
}

// Calls load(weights, output, row of the tile) for each output of a tile that
// there is; returns how many there are.
int ForOutputs(const StackedWeights& weights, int tile, int pairs_apart,
               absl::FunctionRef<void(const StackedWeights&, int, int)> load) {
  int count = 0;
  for (int half = 0; half < kTileOutputs; half += kPlainPairs) {
    const int first = OutputOf(tile, half, pairs_apart);
    const int rows = std::min(kPlainPairs, weights.rows() - first);
    if (rows <= 0) continue;
    weights.ForUnits(kPlainPairs, first / kPlainPairs, first / kPlainPairs + 1,
                     [&](const StackedWeights& held, int) {
                       for (int i = 0; i < rows; ++i) {
                         load(held, first + i, count++);
                       }
                     });
  }
  return count;
}

absl::Status UploadBf16Tiles(const StackedWeights& weights, int pairs_apart,
                             Staging* staging, void* to) {
  const int cols = weights.cols();
  const auto write = [&](int index, void* memory) {
    std::vector<uint16_t> tile(static_cast<size_t>(kTileOutputs) *
                               static_cast<size_t>(cols));
    const int count = ForOutputs(
        weights, index, pairs_apart,
        [&](const StackedWeights& held, int output, int row) {
          held.LoadBF16(output, 0, cols,
                        tile.data() + static_cast<size_t>(row) * cols);
        });
    PackBf16Tile(tile.data(), count, cols, memory);
    return absl::OkStatus();
  };
  return Upload(GemmTiles(weights.rows()),
                PackedTileBytes(GemmFormat::kBf16, cols), write, staging, to);
}

// Quantizes and uploads tile by tile. `scales` [rows] is written for fp8.
absl::Status UploadTiles(const StackedWeights& weights, GemmFormat format,
                         int pairs_apart, Staging* staging, void* to,
                         float* scales) {
  const int cols = weights.cols();
  const auto write = [&](int index, void* memory) -> absl::Status {
    std::vector<float> tile(static_cast<size_t>(kTileOutputs) *
                            static_cast<size_t>(cols));
    const int count =
        ForOutputs(weights, index, pairs_apart,
                   [&](const StackedWeights& held, int output, int row) {
                     held.Load(output, 0, cols,
                               tile.data() + static_cast<size_t>(row) * cols);
                   });
    const size_t values =
        static_cast<size_t>(count) * static_cast<size_t>(cols);
    for (size_t i = 0; i < values; ++i) {
      if (std::isfinite(tile[i])) continue;
      const int row = static_cast<int>(i / static_cast<size_t>(cols));
      return absl::InvalidArgumentError(absl::StrCat(
          "weight [", OutputOf(index, row, pairs_apart), ", ", i % cols,
          "] is ", tile[i], ", which cannot be quantized"));
    }
    const HostMatrix matrix = {DType::kF32, tile.data(), count, cols};
    if (format == GemmFormat::kInt8) {
      QuantizeInt8Tile(matrix, 0, memory);
    } else if (format == GemmFormat::kInt4) {
      QuantizeInt4Tile(matrix, 0, memory);
    } else {
      float tile_scales[kTileOutputs];
      QuantizeFp8Tile(matrix, 0, memory, tile_scales);
      for (int row = 0; row < count; ++row) {
        scales[OutputOf(index, row, pairs_apart)] = tile_scales[row];
      }
    }
    return absl::OkStatus();
  };
  return Upload(GemmTiles(weights.rows()), PackedTileBytes(format, cols), write,
                staging, to);
}

}  // namespace

int64_t CudaMatrix::Bytes(absl::Span<const HostMatrix> parts, WeightType type) {
  const Layout layout = LayoutOf(StackedWeights(parts), type);
  return static_cast<int64_t>(layout.bytes + layout.scale_bytes);
}

absl::StatusOr<std::unique_ptr<CudaMatrix>> CudaMatrix::Create(
    absl::Span<const HostMatrix> parts, WeightType type, Device* device,
    Staging* staging, PackHints hints) {
  const StackedWeights weights(parts);
  const Layout layout = LayoutOf(weights, type);
  std::unique_ptr<CudaMatrix> matrix(new CudaMatrix());
  matrix->rows_ = weights.rows();
  matrix->cols_ = weights.cols();
  matrix->padded_cols_ = layout.padded_cols;
  matrix->order_outputs_ = weights.rows() * hints.shares;
  matrix->format_ = layout.format;
  NACRE_RETURN_IF_ERROR(CheckUnit(layout.unit_bytes));
  NACRE_ASSIGN_OR_RETURN(matrix->memory_, device->Allocate(layout.bytes));
  void* const to = matrix->memory_->data();
  if (!layout.format.has_value()) {
    NACRE_RETURN_IF_ERROR(UploadF32Rows(weights, staging, to));
    return matrix;
  }
  if (HavePairs(weights.rows(), hints.pairs_apart)) {
    matrix->pairs_apart_ = hints.pairs_apart;
  }
  const int pairs_apart = matrix->pairs_apart_;
  if (*layout.format == GemmFormat::kBf16) {
    NACRE_RETURN_IF_ERROR(UploadBf16Tiles(weights, pairs_apart, staging, to));
    return matrix;
  }
  std::vector<float> scales(static_cast<size_t>(weights.rows()));
  NACRE_RETURN_IF_ERROR(UploadTiles(weights, *layout.format, pairs_apart,
                                    staging, to, scales.data()));
  if (layout.scale_bytes > 0) {
    NACRE_ASSIGN_OR_RETURN(matrix->scales_,
                           device->Allocate(layout.scale_bytes));
    staging->Upload(scales.data(), layout.scale_bytes, matrix->scales_->data());
  }
  return matrix;
}

absl::StatusOr<std::unique_ptr<CudaTable>> CudaTable::Create(
    const HostMatrix& table, Device* device, Staging* staging) {
  std::unique_ptr<CudaTable> result(new CudaTable());
  const size_t bytes = static_cast<size_t>(table.rows) *
                       static_cast<size_t>(table.cols) * SizeOf(table.dtype);
  NACRE_ASSIGN_OR_RETURN(result->memory_, device->Allocate(bytes));
  staging->Upload(table.data, bytes, result->memory_->data());
  result->table_ = {result->memory_->data(), table.dtype, table.cols};
  result->rows_ = table.rows;
  return result;
}

}  // namespace nacre::kernels::cuda
