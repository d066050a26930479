#include "kernels/reference/reference_backend.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "kernels/cpu/stacked_weights.h"
#include "kernels/kv_address.h"
#include "kernels/quantization.h"

namespace nacre::kernels {
namespace {

// Row-major float32: quantized weights as the values they stand for.
class ReferenceMatrix : public PackedMatrix {
 public:
  ReferenceMatrix(std::vector<float> values, int rows, int cols)
      : values_(std::move(values)), rows_(rows), cols_(cols) {}
  int rows() const override { return rows_; }
  int cols() const override { return cols_; }
  int64_t size_bytes() const override {
    return static_cast<int64_t>(values_.size() * sizeof(float));
  }
  const float* row(int index) const {
    return values_.data() + static_cast<size_t>(index) * cols_;
  }

 private:
  std::vector<float> values_;  // [rows, cols]
  int rows_;
  int cols_;
};

float LoadElement(const KvLayer& layer, size_t index) {
  return layer.type == DType::kBF16
             ? FromBF16(static_cast<const uint16_t*>(layer.blocks)[index])
             : static_cast<const float*>(layer.blocks)[index];
}

void StoreElement(const KvLayer& layer, size_t index, float value) {
  if (layer.type == DType::kBF16) {
    static_cast<uint16_t*>(layer.blocks)[index] = ToBF16(value);
  } else {
    static_cast<float*>(layer.blocks)[index] = value;
  }
}

// Where a head's key of a slot lies, or its value.
struct KvPlace {
  const KvLayer& layer;
  KvSlot slot;
  int head;
  bool is_value;

  size_t Index(int d) const {
    return is_value ? ValueIndex(layer, slot, head, d)
                    : KeyIndex(layer, slot, head, d);
  }
  // Of int8.
  int8_t* integers() const { return static_cast<int8_t*>(layer.blocks); }
  int8_t* scale() const {
    return integers() + KeyScaleIndex(layer, slot, head) +
           (is_value ? KvHalfElements(layer) : 0);
  }
};

//                                                             values [head_dim]
void LoadKv(const KvPlace& place, float* values) {
  const KvLayer& layer = place.layer;
  float scale = 1;
  if (layer.type == DType::kInt8) {
    std::memcpy(&scale, place.scale(), sizeof(scale));
  }
  for (int d = 0; d < layer.head_dim; ++d) {
    const size_t index = place.Index(d);
    values[d] = layer.type == DType::kInt8
                    ? static_cast<float>(place.integers()[index]) * scale
                    : LoadElement(layer, index);
  }
}

void StoreKvAt(const KvPlace& place, const float* values) {
  const KvLayer& layer = place.layer;
  if (layer.type != DType::kInt8) {
    for (int d = 0; d < layer.head_dim; ++d) {
      StoreElement(layer, place.Index(d), values[d]);
    }
    return;
  }
  const int width = KvWidth(layer);
  std::vector<int8_t> integers(static_cast<size_t>(width), 0);
  const float scale =
      QuantizeActivations(values, layer.head_dim, integers.data());
  for (int d = 0; d < width; ++d) {
    place.integers()[place.Index(d)] = integers[static_cast<size_t>(d)];
  }
  std::memcpy(place.scale(), &scale, sizeof(scale));
}

double GeluOf(double x, GeluForm form) {
  if (form == GeluForm::kErf) {
    return 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0)));
  }
  const double factor = std::sqrt(2.0 / 3.14159265358979323846);
  const double inner = factor * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1.0 + std::tanh(inner));
}

double Dot(const float* a, const float* b, int count) {
  double sum = 0;
  for (int j = 0; j < count; ++j) sum += double{a[j]} * b[j];
  return sum;
}

}  // namespace

std::string ReferenceBackend::numerics_id() const {
  return absl::StrCat("reference", WeightTypeSuffix(weight_type_),
                      kv_type() == DType::kF32
                          ? ""
                          : absl::StrCat("-kv", KvTypeName(kv_type())),
                      "-v2");
}

// Replaces a row by what its quantized form stands for. Integer times scale is
// rounded to float32 where the scale is not of bf16.             row [cols]
void ReferenceBackend::Requantize(
    float* row, int cols,
    absl::FunctionRef<float(const float*, int, int8_t*)> quantize) const {
  const int size = QuantizedGroupSize(weight_type_);
  float group[kMaxQuantizedGroup];
  int8_t integers[kMaxQuantizedGroup];
  for (int begin = 0; begin < cols; begin += size) {
    const int count = std::min(size, cols - begin);
    std::fill(std::copy(row + begin, row + begin + count, group), group + size,
              0.0f);
    const float scale = quantize(group, size, integers);
    for (int i = 0; i < count; ++i) row[begin + i] = integers[i] * scale;
  }
}

std::string ReferenceBackend::description() const {
  return "reference (scalar, double accumulation, 1 thread)";
}

int64_t ReferenceBackend::PackedBytes(
    absl::Span<const HostMatrix> parts) const {
  return int64_t{CheckedTotalRows(parts)} * parts[0].cols *
         static_cast<int64_t>(sizeof(float));
}

absl::StatusOr<std::unique_ptr<PackedMatrix>> ReferenceBackend::Pack(
    absl::Span<const HostMatrix> parts) {
  NACRE_CHECK(weight_type_ != WeightType::kFp8, "no fp8 weights");
  const StackedWeights weights(parts);
  const int rows = weights.rows();
  const int cols = weights.cols();
  std::vector<float> values(static_cast<size_t>(rows) * cols);
  weights.ForUnits(1, 0, rows, [&](const StackedWeights& held, int row) {
    held.Load(row, 0, cols, values.data() + static_cast<size_t>(row) * cols);
  });
  if (weight_type_ == WeightType::kBF16 ||
      weight_type_ == WeightType::kBF16A16) {
    for (float& value : values) value = FromBF16(ToBF16(value));
  }
  if (QuantizedGroupSize(weight_type_) > 0) {
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::isfinite(values[i])) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("weight [", i / cols, ", ", i % cols, "] is ", values[i],
                       ", which cannot be quantized"));
    }
    for (int row = 0; row < rows; ++row) {
      Requantize(values.data() + static_cast<size_t>(row) * cols, cols,
                 [this](const float* group, int, int8_t* integers) {
                   return QuantizeWeights(group, weight_type_, integers);
                 });
    }
  }
  return std::make_unique<ReferenceMatrix>(std::move(values), rows, cols);
}

absl::StatusOr<std::unique_ptr<PackedTable>> ReferenceBackend::PackTable(
    const HostMatrix& table) {
  return HostTable::CopyOf(table);
}

void ReferenceBackend::MatMul(const float* x, int rows, const PackedMatrix& w,
                              float* y) {
  const auto& matrix = static_cast<const ReferenceMatrix&>(w);
  std::vector<float> input(static_cast<size_t>(w.cols()));
  for (int i = 0; i < rows; ++i, x += w.cols()) {
    std::copy(x, x + w.cols(), input.begin());
    if (QuantizedGroupSize(weight_type_) > 0) {
      Requantize(input.data(), w.cols(), QuantizeActivations);
    }
    if (weight_type_ == WeightType::kBF16A16) {
      for (float& value : input) value = FromBF16(ToBF16(value));
    }
    for (int o = 0; o < w.rows(); ++o) {
      *y++ = static_cast<float>(Dot(input.data(), matrix.row(o), w.cols()));
    }
  }
}

void ReferenceBackend::Embed(const PackedTable& table,
                             absl::Span<const int32_t> ids, float* out) {
  static_cast<const HostTable&>(table).Embed(ids, out);
}

void ReferenceBackend::RmsNorm(const float* x, int rows, int cols,
                               const float* weight, float epsilon, float* out) {
  for (int i = 0; i < rows; ++i, x += cols, out += cols) {
    const double mean_square = Dot(x, x, cols) / cols;
    const double scale = 1.0 / std::sqrt(mean_square + double{epsilon});
    for (int j = 0; j < cols; ++j) {
      out[j] = static_cast<float>(x[j] * scale * weight[j]);
    }
  }
}

void ReferenceBackend::LayerNorm(const float* x, int rows, int cols,
                                 const float* weight, const float* bias,
                                 float epsilon, float* out) {
  for (int i = 0; i < rows; ++i, x += cols, out += cols) {
    double mean = 0;
    for (int j = 0; j < cols; ++j) mean += x[j];
    mean /= cols;
    double variance = 0;
    for (int j = 0; j < cols; ++j) variance += (x[j] - mean) * (x[j] - mean);
    variance /= cols;
    const double scale = 1.0 / std::sqrt(variance + double{epsilon});
    for (int j = 0; j < cols; ++j) {
      out[j] = static_cast<float>((x[j] - mean) * scale * weight[j] + bias[j]);
    }
  }
}

void ReferenceBackend::Rope(float* x, int rows, int row_stride, int num_heads,
                            int head_dim, const float* cos, const float* sin) {
  const int half = head_dim / 2;
  for (int i = 0; i < rows; ++i, cos += half, sin += half) {
    float* head = x + static_cast<size_t>(i) * row_stride;
    for (int h = 0; h < num_heads; ++h, head += head_dim) {
      for (int j = 0; j < half; ++j) {
        const double first = head[j];
        const double second = head[j + half];
        head[j] = static_cast<float>(first * cos[j] - second * sin[j]);
        head[j + half] = static_cast<float>(second * cos[j] + first * sin[j]);
      }
    }
  }
}

void ReferenceBackend::StoreKv(const float* k, const float* v, int row_stride,
                               absl::Span<const RowContext> contexts,
                               const KvLayer& layer) {
  for (const RowContext& context : contexts) {
    const KvSlot slot = SlotOf(layer, context, context.position);
    for (int head = 0; head < layer.num_kv_heads; ++head) {
      const std::ptrdiff_t begin = std::ptrdiff_t{head} * layer.head_dim;
      StoreKvAt({layer, slot, head, false}, k + begin);
      StoreKvAt({layer, slot, head, true}, v + begin);
    }
    k += row_stride;
    v += row_stride;
  }
}

void ReferenceBackend::Attention(const float* q, int q_stride, int num_heads,
                                 const AttentionRule& rule,
                                 absl::Span<const RowContext> contexts,
                                 const KvLayer& layer, float* out) {
  const int head_dim = layer.head_dim;
  const int heads_per_kv_head = num_heads / layer.num_kv_heads;
  std::vector<double> weights;
  std::vector<double> sum(head_dim);
  std::vector<float> loaded(head_dim);
  for (const RowContext& context : contexts) {
    for (int head = 0; head < num_heads; ++head, out += head_dim) {
      const int kv_head = head / heads_per_kv_head;
      const int first = rule.First(context.position);
      weights.assign(context.position + 1, 0);
      double maximum = -std::numeric_limits<double>::infinity();
      for (int p = first; p <= context.position; ++p) {
        LoadKv({layer, SlotOf(layer, context, p), kv_head, false},
               loaded.data());
        weights[p] =
            Dot(q + size_t{1} * head * head_dim, loaded.data(), head_dim) *
            rule.scale;
        if (rule.soft_cap > 0) {
          weights[p] = rule.soft_cap * std::tanh(weights[p] / rule.soft_cap);
        }
        maximum = std::max(maximum, weights[p]);
      }
      double total = 0;
      for (int p = first; p <= context.position; ++p) {
        weights[p] = std::exp(weights[p] - maximum);
        total += weights[p];
      }
      std::fill(sum.begin(), sum.end(), 0);
      for (int p = first; p <= context.position; ++p) {
        LoadKv({layer, SlotOf(layer, context, p), kv_head, true},
               loaded.data());
        for (int j = 0; j < head_dim; ++j) sum[j] += weights[p] * loaded[j];
      }
      for (int j = 0; j < head_dim; ++j) {
        out[j] = static_cast<float>(sum[j] / total);
      }
    }
    q += q_stride;
  }
}

void ReferenceBackend::SiluMul(const float* gate_up, int rows, int cols,
                               float* out) {
  for (int i = 0; i < rows; ++i, gate_up += size_t{2} * cols, out += cols) {
    for (int j = 0; j < cols; ++j) {
      const double gate = gate_up[j];
      out[j] = static_cast<float>(gate / (1.0 + std::exp(-gate)) *
                                  gate_up[cols + j]);
    }
  }
}

void ReferenceBackend::GeluMul(const float* gate_up, int rows, int cols,
                               float* out) {
  for (int i = 0; i < rows; ++i, gate_up += size_t{2} * cols, out += cols) {
    for (int j = 0; j < cols; ++j) {
      out[j] = static_cast<float>(GeluOf(gate_up[j], GeluForm::kTanh) *
                                  gate_up[cols + j]);
    }
  }
}

void ReferenceBackend::Gelu(float* x, int rows, int cols, GeluForm form) {
  for (int i = 0; i < rows; ++i, x += cols) {
    for (int j = 0; j < cols; ++j) {
      x[j] = static_cast<float>(GeluOf(x[j], form));
    }
  }
}

void ReferenceBackend::Scale(float* x, size_t count, float factor) {
  for (size_t i = 0; i < count; ++i) x[i] *= factor;
}

void ReferenceBackend::SoftCap(float* x, size_t count, float cap) {
  for (size_t i = 0; i < count; ++i) {
    x[i] = static_cast<float>(cap * std::tanh(double{x[i]} / cap));
  }
}

void ReferenceBackend::AddInPlace(float* x, const float* y, size_t count) {
  for (size_t i = 0; i < count; ++i) x[i] += y[i];
}

}  // namespace nacre::kernels
