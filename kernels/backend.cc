#include "kernels/backend.h"

#include <algorithm>
#include <vector>

#include "common/check.h"

namespace nacre::kernels {
namespace {

size_t Count(int rows, int cols) {
  return static_cast<size_t>(rows) * static_cast<size_t>(cols);
}

}  // namespace

void Backend::EmbedDrawn(const PackedTable& table, const int32_t* ids,
                         int count, float* out) {
  // Of a device that is the host.
  std::vector<int32_t> rows(ids, ids + count);
  for (int32_t& row : rows) row = std::max(row, 0);  // of kUnsoundDraw
  Embed(table, rows, out);
}

void Backend::AddBias(float* x, int rows, int cols, const float* bias) {
  const size_t width = static_cast<size_t>(cols);
  for (int row = 0; row < rows; ++row, x += width) AddInPlace(x, bias, width);
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

}  // namespace nacre::kernels
