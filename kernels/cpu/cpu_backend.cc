#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "kernels/cpu/dense_matrix.h"
#include "kernels/cpu/quantized_matrix.h"
#include "kernels/kv_address.h"
#include "kernels/quantization.h"

namespace nacre::kernels {
namespace {

// Below this many elements, waking another thread costs more than it saves.
constexpr int64_t kMinElementsToDivide = 16384;

}  // namespace

CpuBackend::CpuBackend(std::vector<int> cpus, WeightType weight_type)
    : cpus_(std::move(cpus)),
      weight_type_(weight_type),
      gemm_(ChooseGemmKernels()),
      quantized_gemm_(ChooseQuantizedGemmKernels()),
      elementwise_(ChooseElementwiseKernels()),
      attention_(ChooseAttentionKernels()),
      threads_(cpus_) {}

std::string CpuBackend::numerics_id() const {
  return absl::StrCat("cpu-", absl::AsciiStrToLower(elementwise_.target_name),
                      WeightTypeSuffix(weight_type_), "-kvf32-v2");
}

std::string CpuBackend::description() const {
  const std::string threads =
      cpus_.empty()
          ? "1 unpinned thread"
          : absl::StrCat(threads_.size(),
                         threads_.size() == 1 ? " thread" : " threads",
                         " on cores ", absl::StrJoin(cpus_, ","));
  return absl::StrCat("cpu (", elementwise_.target_name, ", ", threads, ")");
}

absl::StatusOr<std::unique_ptr<Buffer>> CpuBackend::Allocate(size_t bytes) {
  return AllocateHostBuffer(bytes);
}

void CpuBackend::CopyFromHost(const void* host, size_t bytes, void* device) {
  if (bytes > 0) std::memcpy(device, host, bytes);
}

void CpuBackend::CopyToHost(const void* device, size_t bytes, void* host) {
  if (bytes > 0) std::memcpy(host, device, bytes);
}

absl::StatusOr<std::unique_ptr<PackedMatrix>> CpuBackend::Pack(
    absl::Span<const HostMatrix> parts) {
  if (QuantizedGroupSize(weight_type_) > 0) {
    return QuantizedMatrix::Create(parts, weight_type_, quantized_gemm_);
  }
  return DenseMatrix::Create(parts, weight_type_, gemm_);
}

void CpuBackend::Divide(int count, int elements_each,
                        absl::FunctionRef<void(int begin, int end)> task) {
  if (int64_t{count} * elements_each < kMinElementsToDivide) {
    task(0, count);
  } else {
    threads_.RunRanges(count, task);
  }
}

void CpuBackend::MatMul(const float* x, int rows, const PackedMatrix& w,
                        float* y) {
  if (rows == 0) return;
  const auto& matrix = static_cast<const CpuMatrix&>(w);
  if (const size_t bytes = matrix.ActivationBytes(rows);
      bytes > activations_size_) {
    activations_ = hwy::AllocateAligned<char>(bytes);
    NACRE_CHECK(activations_ != nullptr, "no memory for activations");
    activations_size_ = bytes;
  }
  char* const packed = activations_.get();
  const int tiles = matrix.num_tiles(rows);
  Divide(tiles, rows / tiles * w.cols(), [&](int begin, int end) {
    matrix.PackActivations(x, rows, begin, end, packed);
  });
  const int units = matrix.num_units();
  Divide(units, w.rows() / units * w.cols(), [&](int begin, int end) {
    matrix.Multiply(packed, rows, begin, end, y);
  });
}

void CpuBackend::Embed(const HostMatrix& table, absl::Span<const int32_t> ids,
                       float* out) {
  for (size_t i = 0; i < ids.size(); ++i, out += table.cols) {
    NACRE_CHECK(ids[i] >= 0 && ids[i] < table.rows,
                "a token id outside the embedding table");
    LoadRow(table, ids[i], out);
  }
}

void CpuBackend::RmsNorm(const float* x, int rows, int cols,
                         const float* weight, float epsilon, float* out) {
  Divide(rows, cols, [&](int begin, int end) {
    const size_t start = static_cast<size_t>(begin) * cols;
    elementwise_.rms_norm(x + start, end - begin, cols, weight, epsilon,
                          out + start);
  });
}

void CpuBackend::Rope(float* x, int rows, int row_stride, int num_heads,
                      int head_dim, const float* cos, const float* sin) {
  const int half = head_dim / 2;
  Divide(rows, num_heads * head_dim, [&](int begin, int end) {
    for (int row = begin; row < end; ++row) {
      const size_t angle = static_cast<size_t>(row) * half;
      elementwise_.rope(x + static_cast<size_t>(row) * row_stride, num_heads,
                        head_dim, cos + angle, sin + angle);
    }
  });
}

void CpuBackend::StoreKv(const float* k, const float* v, int row_stride,
                         absl::Span<const RowContext> contexts,
                         const KvLayer& layer) {
  for (const RowContext& context : contexts) {
    for (int head = 0; head < layer.num_kv_heads; ++head) {
      const size_t index = KvIndex(layer, context, context.position, head);
      const size_t bytes = layer.head_dim * sizeof(float);
      std::memcpy(layer.keys + index, k + head * layer.head_dim, bytes);
      std::memcpy(layer.values + index, v + head * layer.head_dim, bytes);
    }
    k += row_stride;
    v += row_stride;
  }
}

void CpuBackend::Attention(const float* q, int q_stride, int num_heads,
                           float scale, absl::Span<const RowContext> contexts,
                           const KvLayer& layer, float* out) {
  NACRE_CHECK(layer.head_dim <= kMaxHeadDim, "head_dim exceeds kMaxHeadDim");
  NACRE_CHECK(num_heads % layer.num_kv_heads == 0,
              "query heads are no multiple of the KV heads");
  const int heads_per_kv_head = num_heads / layer.num_kv_heads;
  int last = 0;
  for (const RowContext& context : contexts) {
    last = std::max(last, context.position);
  }
  const int items = static_cast<int>(contexts.size()) * num_heads;
  Divide(items, (last + 1) * layer.head_dim, [&](int begin, int end) {
    for (int item = begin; item < end; ++item) {
      const int row = item / num_heads;
      const int head = item % num_heads;
      attention_.head(q + static_cast<size_t>(row) * q_stride +
                          static_cast<size_t>(head) * layer.head_dim,
                      scale, contexts[row], head / heads_per_kv_head, layer,
                      out + static_cast<size_t>(item) * layer.head_dim);
    }
  });
}

void CpuBackend::SiluMul(const float* gate_up, int rows, int cols, float* out) {
  Divide(rows, cols, [&](int begin, int end) {
    const size_t start = static_cast<size_t>(begin) * cols;
    elementwise_.silu_mul(gate_up + 2 * start, end - begin, cols, out + start);
  });
}

void CpuBackend::AddInPlace(float* x, const float* y, size_t count) {
  elementwise_.add(x, y, count);
}

}  // namespace nacre::kernels
