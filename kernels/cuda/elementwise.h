// Operations on activations that need no sum over more than a row: embedding,
// norm, rotary embedding, gate, residual, bias, rounding. What they compute is
// said in kernels/backend.h; all pointers are the device's. A row's bits depend
// on the row and its length alone.
//
// Each queues one kernel and does not block; what it returns is the launch's.
// Free of Abseil: it also builds where only CUDA is installed.

#ifndef KERNELS_CUDA_ELEMENTWISE_H_
#define KERNELS_CUDA_ELEMENTWISE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/dtype.h"

namespace nacre::kernels::cuda {

// Row-major [rows, cols] as in the checkpoint, aligned to its elements.
struct DeviceTable {
  const void* data = nullptr;
  DType type = DType::kF32;
  int cols = 0;
};

// out[i, :] = table[ids[i], :]                  ids [count], out [count, cols]
cudaError_t EmbedRows(const Queue& queue, const DeviceTable& table,
                      const int32_t* ids, int count, float* out);

//   x, out [rows, cols] (out may be x), weight [cols]
// Thread t of 256 sums the squares of elements 4 t + 1024 i + {0, 1, 2, 3}, i
// rising, in four sums. Then sums are added within threads, lanes, warps.
cudaError_t NormalizeRows(const Queue& queue, const float* x, int rows,
                          int cols, const float* weight, float epsilon,
                          float* out);

//   x, out [rows, cols] (out may be x), weight, bias [cols]
// Sums are those of NormalizeRows: of the elements, then of the squares of
// their differences from the mean.
cudaError_t CenterAndNormalizeRows(const Queue& queue, const float* x, int rows,
                                   int cols, const float* weight,
                                   const float* bias, float epsilon,
                                   float* out);

// NormalizeRows of each head by itself, in place.
//   x: row i at x + i * row_stride, [num_heads * head_dim], weight [head_dim]
cudaError_t NormalizeHeads(const Queue& queue, float* x, int rows,
                           int row_stride, int num_heads, int head_dim,
                           const float* weight, float epsilon);

// NormalizeRows and RoundRows in one kernel.
//   x [rows, cols], weight [cols], out bf16 [rows, padded_cols]
cudaError_t NormalizeAndRoundRows(const Queue& queue, const float* x, int rows,
                                  int cols, int padded_cols,
                                  const float* weight, float epsilon,
                                  uint16_t* out);

//   x: row i at x + i * row_stride, [num_heads * head_dim], in place
//   cos, sin [rows, head_dim / 2]
cudaError_t RotateHeads(const Queue& queue, float* x, int rows, int row_stride,
                        int num_heads, int head_dim, const float* cos,
                        const float* sin);

//   gate_up [rows, 2 * cols], out [rows, cols]
cudaError_t GateRows(const Queue& queue, const float* gate_up, int rows,
                     int cols, float* out);

// With gelu for silu.
cudaError_t GeluRows(const Queue& queue, const float* gate_up, int rows,
                     int cols, float* out);

// x[i] = gelu(x[i]), in place                                       x [count]
cudaError_t GeluTanh(const Queue& queue, float* x, size_t count);
cudaError_t GeluErf(const Queue& queue, float* x, size_t count);

// x[i] *= factor                                                    x [count]
cudaError_t ScaleBy(const Queue& queue, float* x, size_t count, float factor);

// x[i] = cap * tanh(x[i] / cap)                                     x [count]
cudaError_t CapTo(const Queue& queue, float* x, size_t count, float cap);

// GateRows and RoundRows in one kernel.
//   gate_up [rows, 2 * cols], out bf16 [rows, padded_cols]
cudaError_t GateAndRoundRows(const Queue& queue, const float* gate_up, int rows,
                             int cols, int padded_cols, uint16_t* out);

// x[i] += y[i]                                                    x, y [count]
cudaError_t AddTo(const Queue& queue, float* x, const float* y, size_t count);

// sum[i] = (parts[0, i] + parts[1, i]) + (parts[2, i] + parts[3, i]) ...
//   parts [num_parts, count], num_parts: 1, 2, 4 or 8; sum [count], apart
cudaError_t AddPairs(const Queue& queue, const float* parts, int num_parts,
                     size_t count, float* sum);

// x[i, j] += bias[j]                            x [rows, cols], bias [cols]
cudaError_t AddToRows(const Queue& queue, float* x, int rows, int cols,
                      const float* bias);

// out[i, :] = 0 + weights[i, 0] y[parts[i, 0], :] + weights[i, 1] ...
//   parts, weights [rows, count], out [rows, cols]
cudaError_t AddWeightedRows(const Queue& queue, const float* y,
                            const int32_t* parts, const float* weights,
                            int rows, int count, int cols, float* out);

// out[i, j] = x[i, first + j]       x [rows, stride], out [rows, cols]
cudaError_t CopyColumns(const Queue& queue, const float* x, int rows,
                        int stride, int first, int cols, float* out);

// Rounded to bf16, zeros past the last column.
//   x [rows, cols], out bf16 [rows, padded_cols]
cudaError_t RoundRows(const Queue& queue, const float* x, int rows, int cols,
                      int padded_cols, uint16_t* out);

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_ELEMENTWISE_H_
