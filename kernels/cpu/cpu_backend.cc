#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/dense_matrix.h"
#include "kernels/cpu/grouped_matrix.h"
#include "kernels/cpu/quantized_matrix.h"
#include "kernels/kv_address.h"
#include "kernels/quantization.h"

namespace nacre::kernels {
namespace {

// Below this many elements, waking another thread costs more than it saves.
constexpr int64_t kMinElementsToDivide = 16384;

void CheckKvLayer(const KvLayer& layer) {
  NACRE_CHECK(layer.head_dim <= kMaxHeadDim, "head_dim exceeds kMaxHeadDim");
  NACRE_CHECK(layer.type != DType::kBF16 || layer.head_dim % 2 == 0,
              "bf16 keys of an odd head_dim");
}

void StoreElement(float value, float* to) { *to = value; }
void StoreElement(float value, uint16_t* to) { *to = ToBF16(value); }

template <class Element>
void StoreKvAs(const float* k, const float* v, int row_stride,
               absl::Span<const RowContext> contexts, const KvLayer& layer) {
  constexpr int kPerWord = sizeof(uint32_t) / sizeof(Element);
  auto* const blocks = static_cast<Element*>(layer.blocks);
  const size_t key_stride = static_cast<size_t>(layer.block_size) * kPerWord;
  for (const RowContext& context : contexts) {
    const KvSlot slot = SlotOf(layer, context, context.position);
    for (int head = 0; head < layer.num_kv_heads; ++head) {
      Element* key = blocks + KeyIndex(layer, slot, head, 0);
      const float* const from_k = k + size_t{1} * head * layer.head_dim;
      const float* const from_v = v + size_t{1} * head * layer.head_dim;
      for (int d = 0; d < layer.head_dim; d += kPerWord, key += key_stride) {
        for (int i = 0; i < kPerWord; ++i) StoreElement(from_k[d + i], key + i);
      }
      for (int group = 0; group < layer.head_dim; group += kKvGroup) {
        const int width = std::min(kKvGroup, layer.head_dim - group);
        Element* const value = blocks + ValueIndex(layer, slot, head, group);
        for (int d = 0; d < width; ++d) {
          StoreElement(from_v[group + d], value + d);
        }
      }
    }
    k += row_stride;
    v += row_stride;
  }
}

// One position's key and value of a head, with their scales.
void StoreIntegers(const float* k, const float* v, KvSlot slot, int head,
                   const KvLayer& layer) {
  constexpr int kPerWord = KvElementsPerWord(DType::kInt8);
  auto* const blocks = static_cast<int8_t*>(layer.blocks);
  const int width = KvWidth(layer);
  int8_t integers[kMaxHeadDim] = {};
  float scale = QuantizeActivations(k, layer.head_dim, integers);
  int8_t* key = blocks + KeyIndex(layer, slot, head, 0);
  const size_t key_stride = static_cast<size_t>(layer.block_size) * kPerWord;
  for (int d = 0; d < width; d += kPerWord, key += key_stride) {
    std::memcpy(key, integers + d, kPerWord);
  }
  int8_t* const key_scale = blocks + KeyScaleIndex(layer, slot, head);
  std::memcpy(key_scale, &scale, sizeof(scale));
  scale = QuantizeActivations(v, layer.head_dim, integers);
  for (int group = 0; group < width; group += kKvGroup) {
    std::memcpy(blocks + ValueIndex(layer, slot, head, group), integers + group,
                static_cast<size_t>(std::min(kKvGroup, width - group)));
  }
  std::memcpy(key_scale + KvHalfElements(layer), &scale, sizeof(scale));
}

void StoreKvAsIntegers(const float* k, const float* v, int row_stride,
                       absl::Span<const RowContext> contexts,
                       const KvLayer& layer) {
  for (const RowContext& context : contexts) {
    const KvSlot slot = SlotOf(layer, context, context.position);
    for (int head = 0; head < layer.num_kv_heads; ++head) {
      const size_t begin = size_t{1} * head * layer.head_dim;
      StoreIntegers(k + begin, v + begin, slot, head, layer);
    }
    k += row_stride;
    v += row_stride;
  }
}

}  // namespace

CpuBackend::CpuBackend(std::vector<int> cpus, WeightType weight_type,
                       DType kv_type)
    : HostBackend(kv_type),
      cpus_(std::move(cpus)),
      weight_type_(weight_type),
      gemm_(ChooseGemmKernels()),
      quantized_gemm_(ChooseQuantizedGemmKernels()),
      elementwise_(ChooseElementwiseKernels()),
      attention_(ChooseAttentionKernels()),
      threads_(cpus_) {}

std::string CpuBackend::numerics_id() const {
  const bool pairs =
      weight_type_ == WeightType::kBF16A16 && gemm_.has_pair_products;
  return absl::StrCat("cpu-", absl::AsciiStrToLower(elementwise_.target_name),
                      WeightTypeSuffix(weight_type_), pairs ? "-pairs" : "",
                      "-kv", KvTypeName(kv_type()), "-v3");
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

bool CpuBackend::KeepsGroups(absl::Span<const HostMatrix> parts) const {
  return weight_type_ == WeightType::kAuto && GroupedMatrix::CanHold(parts);
}

int64_t CpuBackend::PackedBytes(absl::Span<const HostMatrix> parts) const {
  if (KeepsGroups(parts)) {
    return static_cast<int64_t>(GroupedMatrix::Bytes(parts, gemm_));
  }
  const StackedWeights weights(parts);
  return static_cast<int64_t>(
      QuantizedGroupSize(weight_type_) > 0
          ? QuantizedMatrix::Bytes(weights, weight_type_, quantized_gemm_)
          : DenseMatrix::Bytes(weights, weight_type_, gemm_));
}

int64_t CpuBackend::MayBeSaved(absl::Span<const HostMatrix> parts) const {
  return static_cast<int64_t>(
      DenseMatrix::MayBeSaved(StackedWeights(parts), weight_type_, gemm_));
}

absl::StatusOr<std::unique_ptr<PackedMatrix>> CpuBackend::Pack(
    absl::Span<const HostMatrix> parts) {
  NACRE_CHECK(weight_type_ != WeightType::kFp8, "no fp8 weights");
  const StackedWeights weights(parts);
  const auto run = [&](int units, absl::FunctionRef<void(int, int)> task) {
    Divide(units, weights.rows() / units * weights.cols(), task);
  };
  if (QuantizedGroupSize(weight_type_) > 0) {
    return QuantizedMatrix::Create(weights, weight_type_, quantized_gemm_, run,
                                   &weights_);
  }
  if (KeepsGroups(parts)) {
    return GroupedMatrix::Create(parts, gemm_, run, &weights_);
  }
  NACRE_ASSIGN_OR_RETURN(
      std::unique_ptr<DenseMatrix> matrix,
      DenseMatrix::Create(weights, weight_type_, gemm_, run, &weights_));
  if (MayBeSaved(parts) == 0) return matrix;
  const int64_t saved = PackedBytes(parts) - matrix->size_bytes();
  ++(saved > 0 ? saved_.matrices : saved_.others);
  saved_.bytes += saved;
  return matrix;
}

void CpuBackend::Divide(int count, int elements_each,
                        absl::FunctionRef<void(int begin, int end)> task) {
  if (int64_t{count} * elements_each < kMinElementsToDivide) {
    task(0, count);
  } else {
    threads_.RunRanges(count, task);
  }
}

absl::StatusOr<std::unique_ptr<PackedTable>> CpuBackend::PackTable(
    const HostMatrix& table) {
  return HostTable::CopyOf(table);
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

void CpuBackend::Embed(const PackedTable& table, absl::Span<const int32_t> ids,
                       float* out) {
  static_cast<const HostTable&>(table).Embed(ids, out);
}

void CpuBackend::RmsNorm(const float* x, int rows, int cols,
                         const float* weight, float epsilon, float* out) {
  Divide(rows, cols, [&](int begin, int end) {
    const size_t start = static_cast<size_t>(begin) * cols;
    elementwise_.rms_norm(x + start, end - begin, cols, weight, epsilon,
                          out + start);
  });
}

void CpuBackend::LayerNorm(const float* x, int rows, int cols,
                           const float* weight, const float* bias,
                           float epsilon, float* out) {
  Divide(rows, cols, [&](int begin, int end) {
    const size_t start = static_cast<size_t>(begin) * cols;
    elementwise_.layer_norm(x + start, end - begin, cols, weight, bias, epsilon,
                            out + start);
  });
}

void CpuBackend::Rope(float* x, int rows, int row_stride, int num_heads,
                      int head_dim, const float* cos, const float* sin) {
  const size_t half = static_cast<size_t>(head_dim) / 2;
  const auto turn = [&](int first_row, int end_row, int head, int heads) {
    for (int64_t row = first_row; row < end_row; ++row) {
      elementwise_.rope(x + row * row_stride + int64_t{1} * head * head_dim,
                        heads, head_dim, cos + row * half, sin + row * half);
    }
  };
  if (num_heads < threads_.size()) {
    Divide(rows, num_heads * head_dim,
           [&](int begin, int end) { turn(begin, end, 0, num_heads); });
  } else {
    // As attention is: rows would send all heads to other cores.
    Divide(num_heads, rows * head_dim,
           [&](int begin, int end) { turn(0, rows, begin, end - begin); });
  }
}

void CpuBackend::StoreKv(const float* k, const float* v, int row_stride,
                         absl::Span<const RowContext> contexts,
                         const KvLayer& layer) {
  CheckKvLayer(layer);
  const auto store = layer.type == DType::kInt8   ? StoreKvAsIntegers
                     : layer.type == DType::kBF16 ? StoreKvAs<uint16_t>
                                                  : StoreKvAs<float>;
  const int rows = static_cast<int>(contexts.size());
  Divide(rows, 2 * layer.num_kv_heads * layer.head_dim,
         [&](int begin, int end) {
           const int64_t first = int64_t{begin} * row_stride;
           store(k + first, v + first, row_stride,
                 contexts.subspan(begin, end - begin), layer);
         });
}

void CpuBackend::Attention(const float* q, int q_stride, int num_heads,
                           const AttentionRule& rule,
                           absl::Span<const RowContext> contexts,
                           const KvLayer& layer, float* out) {
  CheckKvLayer(layer);
  NACRE_CHECK(num_heads % layer.num_kv_heads == 0,
              "query heads are no multiple of the KV heads");
  groups_.clear();
  DealAttention({q, q_stride, num_heads, contexts, layer, out},
                attention_.tile_queries, threads_.size(), &groups_);
  int64_t positions = 0;
  for (const RowContext& context : contexts) positions += context.position + 1;
  const bool is_divided =
      positions * num_heads * layer.head_dim >= kMinElementsToDivide;
  // The last ones first, as later rows of a prompt have more to attend to; of
  // these each thread takes the heads that it had in Rope, if it can.
  const size_t threads = static_cast<size_t>(threads_.size());
  const size_t count = groups_.size();
  const size_t first = count - std::min(count, threads);
  std::atomic<size_t> next{threads};
  const auto run = [&](int thread) {
    for (size_t i = static_cast<size_t>(thread); i < count;
         i = next.fetch_add(1, std::memory_order_relaxed)) {
      attention_.attend(groups_[i < threads ? first + i : count - 1 - i], rule,
                        layer);
    }
  };
  if (is_divided) {
    threads_.Run(run);
  } else {
    next = 1;
    run(0);
  }
}

void CpuBackend::SiluMul(const float* gate_up, int rows, int cols, float* out) {
  Divide(rows, cols, [&](int begin, int end) {
    const size_t start = static_cast<size_t>(begin) * cols;
    elementwise_.silu_mul(gate_up + 2 * start, end - begin, cols, out + start);
  });
}

void CpuBackend::GeluMul(const float* gate_up, int rows, int cols, float* out) {
  Divide(rows, cols, [&](int begin, int end) {
    const size_t start = static_cast<size_t>(begin) * cols;
    elementwise_.gelu_mul(gate_up + 2 * start, end - begin, cols, out + start);
  });
}

void CpuBackend::Gelu(float* x, int rows, int cols, GeluForm form) {
  const auto gelu =
      form == GeluForm::kErf ? elementwise_.gelu_erf : elementwise_.gelu_tanh;
  Divide(rows, cols, [&](int begin, int end) {
    const size_t width = static_cast<size_t>(cols);
    gelu(x + static_cast<size_t>(begin) * width,
         static_cast<size_t>(end - begin) * width);
  });
}

void CpuBackend::DivideElements(
    size_t count, absl::FunctionRef<void(size_t first, size_t count)> task) {
  // Whole vectors, so that an element is computed as it would be alone.
  constexpr size_t kPiece = 1024;
  const int pieces = static_cast<int>((count + kPiece - 1) / kPiece);
  Divide(pieces, kPiece, [&](int begin, int end) {
    const size_t first = kPiece * begin;
    task(first, std::min(kPiece * end, count) - first);
  });
}

void CpuBackend::Scale(float* x, size_t count, float factor) {
  DivideElements(count, [&](size_t first, size_t some) {
    elementwise_.scale(x + first, some, factor);
  });
}

void CpuBackend::SoftCap(float* x, size_t count, float cap) {
  DivideElements(count, [&](size_t first, size_t some) {
    elementwise_.soft_cap(x + first, some, cap);
  });
}

void CpuBackend::AddInPlace(float* x, const float* y, size_t count) {
  DivideElements(count, [&](size_t first, size_t some) {
    elementwise_.add(x + first, y + first, some);
  });
}

void CpuBackend::AddBias(float* x, int rows, int cols, const float* bias) {
  const size_t width = static_cast<size_t>(cols);
  Divide(rows, cols, [&](int begin, int end) {
    for (int row = begin; row < end; ++row) {
      elementwise_.add(x + static_cast<size_t>(row) * width, bias, width);
    }
  });
}

}  // namespace nacre::kernels
