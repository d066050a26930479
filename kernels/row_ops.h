// What is computed of each row by itself, without weights to multiply with, and
// rows that are brought together for others.
//
// A part of Backend, and under its conventions and threads (backend.h).

#ifndef KERNELS_ROW_OPS_H_
#define KERNELS_ROW_OPS_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace nacre::kernels {

enum class GeluForm {
  kTanh,  // x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
  kErf,   // x / 2 * (1 + erf(x / sqrt(2)))
};

class RowOps {
 public:
  virtual ~RowOps() = default;

  // out[i, j] = x[i, j] / sqrt(mean_j(x[i, j]^2) + epsilon) * weight[j]
  //   x, out [rows, cols] (out may be x), weight [cols]
  virtual void RmsNorm(const float* x, int rows, int cols, const float* weight,
                       float epsilon, float* out) = 0;

  // out[i, j] = (x[i, j] - m) / sqrt(mean_j((x[i, j] - m)^2) + epsilon)
  //             * weight[j] + bias[j], with m = mean_j(x[i, j])
  //   x, out [rows, cols] (out may be x), weight, bias [cols]
  virtual void LayerNorm(const float* x, int rows, int cols,
                         const float* weight, const float* bias, float epsilon,
                         float* out) = 0;

  // RmsNorm of each head by itself, in place.
  //   x: row i starts at x + i * row_stride, [num_heads * head_dim]
  //   weight [head_dim]
  virtual void NormHeads(float* x, int rows, int row_stride, int num_heads,
                         int head_dim, const float* weight, float epsilon);

  // Rotary embedding, in place. The two halves of a head are pairs (Hugging
  // Face's "rotate_half"). With h = head_dim / 2, for each j < h:
  //   new x[j]     = x[j] * cos[j] - x[j + h] * sin[j]
  //   new x[j + h] = x[j + h] * cos[j] + x[j] * sin[j]
  // x: row i starts at x + i * row_stride, [num_heads * head_dim]
  // cos, sin [rows, head_dim / 2]
  virtual void Rope(float* x, int rows, int row_stride, int num_heads,
                    int head_dim, const float* cos, const float* sin) = 0;

  // out[i, j] = silu(gate_up[i, j]) * gate_up[i, cols + j]
  //   gate_up [rows, 2 * cols], out [rows, cols]
  virtual void SiluMul(const float* gate_up, int rows, int cols,
                       float* out) = 0;

  // out[i, j] = gelu(gate_up[i, j]) * gate_up[i, cols + j], GeluForm::kTanh
  //   gate_up [rows, 2 * cols], out [rows, cols]
  virtual void GeluMul(const float* gate_up, int rows, int cols,
                       float* out) = 0;

  // x[i, j] = gelu(x[i, j]), in place                         x [rows, cols]
  virtual void Gelu(float* x, int rows, int cols, GeluForm form) = 0;

  // x[i] *= factor, in place                                         x [count]
  virtual void Scale(float* x, size_t count, float factor) = 0;

  // x[i] = cap * tanh(x[i] / cap), in place                          x [count]
  virtual void SoftCap(float* x, size_t count, float cap) = 0;

  // x[i] += y[i], in place                                         x, y [count]
  virtual void AddInPlace(float* x, const float* y, size_t count) = 0;

  // sum[i] = parts[0, i] + parts[1, i] + ..., added in pairs of neighbours:
  // (p0 + p1) + (p2 + p3).
  //   parts [num_parts, count]: scratch afterwards; num_parts: a power of two
  //   of at most 8; sum [count]
  virtual void AddParts(float* parts, int num_parts, size_t count, float* sum);

  // x[i, j] += bias[j], in place                x [rows, cols], bias [cols]
  virtual void AddBias(float* x, int rows, int cols, const float* bias);

  // out[i, j] = x[i, first + j]       x [rows, stride], out [rows, cols]
  virtual void TakeColumns(const float* x, int rows, int stride, int first,
                           int cols, float* out);

  // out[i, :] = x[rows[i], :]               out [rows.size(), cols], rows: host
  virtual void GatherRows(const float* x, absl::Span<const int32_t> rows,
                          int cols, float* out);

  // out[i, :] = 0 + weights[i, 0] y[rows[i, 0], :] + weights[i, 1] ..., each
  // product rounded, then added in this order.
  //   rows, weights [count, parts], on the host; y: scratch afterwards, each of
  //   its rows in one part; out [count, cols]
  virtual void CombineRows(float* y, absl::Span<const int32_t> rows,
                           absl::Span<const float> weights, int parts, int cols,
                           float* out);
};

}  // namespace nacre::kernels

#endif  // KERNELS_ROW_OPS_H_
