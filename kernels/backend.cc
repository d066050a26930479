#include "kernels/backend.h"

#include <algorithm>
#include <cstring>

#include "common/check.h"
#include "kernels/kv_address.h"

namespace nacre::kernels {
namespace {

size_t Count(int rows, int cols) {
  return static_cast<size_t>(rows) * static_cast<size_t>(cols);
}

void MovePosition(const KvLayer& layer, const KvMove& move) {
  const size_t bytes = SizeOf(layer.type);
  const int per_word = KvElementsPerWord(layer.type);
  const int width = KvWidth(layer);
  const auto copy = [&](size_t from, size_t to, int elements) {
    auto* const blocks = static_cast<char*>(layer.blocks);
    std::memcpy(blocks + to * bytes, blocks + from * bytes,
                static_cast<size_t>(elements) * bytes);
  };
  for (int head = 0; head < layer.num_kv_heads; ++head) {
    for (int d = 0; d < width; d += per_word) {
      copy(KeyIndex(layer, move.from, head, d),
           KeyIndex(layer, move.to, head, d), per_word);
    }
    for (int d = 0; d < width; d += kKvGroup) {
      copy(ValueIndex(layer, move.from, head, d),
           ValueIndex(layer, move.to, head, d), std::min(kKvGroup, width - d));
    }
    const size_t from = KeyScaleIndex(layer, move.from, head);
    const size_t to = KeyScaleIndex(layer, move.to, head);
    for (const size_t half : {size_t{0}, KvHalfElements(layer)}) {
      copy(from + half, to + half, KvScaleElements(layer.type));
    }
  }
}

}  // namespace

void ProductOps::EmbedDrawn(const PackedTable& table, const int32_t* ids,
                            int count, float* out) {
  // Of a device that is the host.
  for (int i = 0; i < count; ++i, out += table.cols()) {
    const int32_t id = std::max(ids[i], 0);  // of kUnsoundDraw
    Embed(table, {&id, 1}, out);
  }
}

void RowOps::NormHeads(float* x, int rows, int row_stride, int num_heads,
                       int head_dim, const float* weight, float epsilon) {
  for (int row = 0; row < rows; ++row, x += row_stride) {
    RmsNorm(x, num_heads, head_dim, weight, epsilon, x);
  }
}

void RowOps::AddBias(float* x, int rows, int cols, const float* bias) {
  const size_t width = static_cast<size_t>(cols);
  for (int row = 0; row < rows; ++row, x += width) AddInPlace(x, bias, width);
}

void RowOps::AddParts(float* parts, int num_parts, size_t count, float* sum) {
  // Of a device that is the host.
  const size_t all = static_cast<size_t>(num_parts);
  for (size_t apart = 1; apart < all; apart *= 2) {
    for (size_t i = 0; i < all; i += 2 * apart) {
      AddInPlace(parts + i * count, parts + (i + apart) * count, count);
    }
  }
  std::copy_n(parts, count, sum);
}

void RowOps::TakeColumns(const float* x, int rows, int stride, int first,
                         int cols, float* out) {
  // Of a device that is the host.
  const size_t width = static_cast<size_t>(cols);
  for (int row = 0; row < rows; ++row, x += stride, out += width) {
    std::copy_n(x + first, width, out);
  }
}

void RowOps::GatherRows(const float* x, absl::Span<const int32_t> rows,
                        int cols, float* out) {
  // Of a device that is the host.
  const size_t width = static_cast<size_t>(cols);
  for (const int32_t row : rows) {
    std::copy_n(x + static_cast<size_t>(row) * width, width, out);
    out += width;
  }
}

void RowOps::CombineRows(float* y, absl::Span<const int32_t> rows,
                         absl::Span<const float> weights, int parts, int cols,
                         float* out) {
  const size_t width = static_cast<size_t>(cols);
  for (size_t i = 0; i < rows.size(); ++i) {
    float* const part = y + static_cast<size_t>(rows[i]) * width;
    float* const to = out + i / static_cast<size_t>(parts) * width;
    if (i % static_cast<size_t>(parts) == 0) std::fill_n(to, width, 0.0f);
    Scale(part, width, weights[i]);
    AddInPlace(to, part, width);
  }
}

void AttentionOps::MoveKv(absl::Span<const KvMove> moves,
                          absl::Span<const KvLayer> layers) {
  // Of a device that is the host.
  for (const KvLayer& layer : layers) {
    for (const KvMove& move : moves) MovePosition(layer, move);
  }
}

void Backend::RunStep(int, absl::FunctionRef<void()> ops) { ops(); }

void Backend::NormMatMul(const float* x, int rows, const float* weight,
                         float epsilon, const PackedMatrix& w, float* normed,
                         float* y) {
  RmsNorm(x, rows, w.cols(), weight, epsilon, normed);
  MatMul(normed, rows, w, y);
}

void Backend::MatMulAdd(const float* x, int rows, const PackedMatrix& w,
                        const float* residual, float* y) {
  MatMul(x, rows, w, y);
  AddInPlace(y, residual, Count(rows, w.rows()));
}

void Backend::SiluMatMulAdd(const float* gate_up, int rows,
                            const PackedMatrix& w, const float* residual,
                            float* gated, float* y) {
  SiluMul(gate_up, rows, w.cols(), gated);
  Backend::MatMulAdd(gated, rows, w, residual, y);
}

void Backend::RopeStoreKv(float* qkv, int num_heads, const float* cos,
                          const float* sin,
                          absl::Span<const RowContext> contexts,
                          const KvLayer& layer) {
  NACRE_CHECK(layer.head_dim % 2 == 0, "rotary embedding of an odd head_dim");
  const int rows = static_cast<int>(contexts.size());
  const int q_size = num_heads * layer.head_dim;
  const int kv_size = layer.num_kv_heads * layer.head_dim;
  const int stride = q_size + 2 * kv_size;
  float* const k = qkv + q_size;
  Rope(qkv, rows, stride, num_heads, layer.head_dim, cos, sin);
  Rope(k, rows, stride, layer.num_kv_heads, layer.head_dim, cos, sin);
  StoreKv(k, k + kv_size, stride, contexts, layer);
}

void Backend::NormSiluMatMulAdd(const NormedRows& in,
                                const PackedMatrix& gate_up,
                                const PackedMatrix& down, const float* residual,
                                const GateScratch& scratch, float* y) {
  NormMatMul(in.x, in.rows, in.weight, in.epsilon, gate_up, in.normed,
             scratch.gate_up);
  SiluMatMulAdd(scratch.gate_up, in.rows, down, residual, scratch.gated, y);
}

void Backend::NormMatMulRopeStoreKv(const NormedRows& in, const PackedMatrix& w,
                                    const float* bias, const HeadAngles& angles,
                                    absl::Span<const RowContext> contexts,
                                    const KvLayer& layer, float* qkv) {
  NormMatMul(in.x, in.rows, in.weight, in.epsilon, w, in.normed, qkv);
  if (bias != nullptr) AddBias(qkv, in.rows, w.rows(), bias);
  RopeStoreKv(qkv, angles.num_heads, angles.cos, angles.sin, contexts, layer);
}

}  // namespace nacre::kernels
