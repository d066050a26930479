#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/kernel_block.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/primitives.cuh"
#include "kernels/cuda/row_kernels.cuh"
#include "kernels/cuda/soft_cap.cuh"
#include "kernels/cuda/sum_of_pairs.cuh"

namespace nacre::kernels::cuda {
namespace {

constexpr int kThreads = kRowThreads;

// Begins a kernel whose threads have one element each; returns the thread's.
__device__ __forceinline__ size_t BeginElement() {
  LaunchDependents();
  WaitForPrevious();
  return size_t{kThreads} * blockIdx.x + threadIdx.x;
}

// One block for each pair of a row (x) and kThreads columns (y).
template <typename Element>
__global__ void __launch_bounds__(kThreads)
    EmbedKernel(const Element* table, const int32_t* ids, int cols,
                float* out) {
  LaunchDependents();
  WaitForPrevious();
  const int column = kThreads * blockIdx.y + threadIdx.x;
  if (column >= cols) return;
  const size_t row = blockIdx.x;
  // Any row for kUnsoundDraw: its step is dropped.
  const auto id = static_cast<size_t>(ids[row] < 0 ? 0 : ids[row]);
  out[row * cols + column] = ToFloat(table[id * cols + column]);
}

// One block a row.
__global__ void __launch_bounds__(kThreads)
    RotateKernel(float* x, int row_stride, int num_heads, int half,
                 const float* cos, const float* sin) {
  LaunchDependents();
  WaitForPrevious();
  const size_t row = blockIdx.x;
  for (int i = threadIdx.x; i < num_heads * half; i += kThreads) {
    const int head = i / half;
    const int j = i % half;
    float* const first = x + row * row_stride + head * 2 * half + j;
    const Pair turned =
        Rotate(first[0], first[half], cos[row * half + j], sin[row * half + j]);
    first[0] = turned.first;
    first[half] = turned.second;
  }
}

template <typename Element>
__global__ void __launch_bounds__(kThreads)
    GateKernel(const float* gate_up, int cols, int out_cols, Element* out) {
  GateRow(KernelBlock(), gate_up, cols, out_cols, out);
}

__global__ void __launch_bounds__(kThreads)
    RoundKernel(const float* x, int cols, int padded_cols, uint16_t* out) {
  RoundRow(KernelBlock(), x, cols, padded_cols, out);
}

__global__ void __launch_bounds__(kThreads)
    AddToRowsKernel(float* x, size_t count, int cols, const float* bias) {
  AddToRow(KernelBlock(), x, count, cols, bias);
}

// x / (1 + e^(-2u)) is x / 2 * (1 + tanh u).
__device__ __forceinline__ float GeluTanhOf(float x) {
  const float inner = x * fmaf(x * x, -0.0713548163f, -1.59576912f);
  return x / (1.0f + Exp(inner));
}

// x P(x), where P is the share of the normal distribution below x. Of -|x| that
// is e^(-x^2 / 2) times a smooth function of t = 1 / (1 + 0.3 |x|), which goes
// through the Chebyshev nodes of |x| <= 13 to 1.5e-7 of itself.
__device__ __forceinline__ float GeluErfOf(float x) {
  const float size = fabsf(x);
  const float t = 1.0f / fmaf(size, 0.3f, 1.0f);
  float p = 0.036565475f;
  p = fmaf(p, t, -0.16081424f);
  p = fmaf(p, t, 0.21239972f);
  p = fmaf(p, t, -0.059085105f);
  p = fmaf(p, t, 0.1313334f);
  p = fmaf(p, t, 0.099098824f);
  p = fmaf(p, t, 0.12088067f);
  p = fmaf(p, t, 0.11962126f);
  const float below = p * t * Exp(size * size * -0.5f);
  return x * (x < 0.0f ? below : 1.0f - below);
}

template <bool kErf>
__global__ void __launch_bounds__(kThreads)
    GeluInPlaceKernel(float* x, size_t count) {
  const size_t i = BeginElement();
  if (i < count) x[i] = kErf ? GeluErfOf(x[i]) : GeluTanhOf(x[i]);
}

__global__ void __launch_bounds__(kThreads)
    GeluKernel(const float* gate_up, size_t count, int cols, float* out) {
  const size_t i = BeginElement();
  if (i >= count) return;
  const size_t row = i / cols;
  const int column = static_cast<int>(i % cols);
  const float* const gates = gate_up + 2 * row * cols + column;
  out[i] = GeluTanhOf(gates[0]) * gates[cols];
}

__device__ __forceinline__ float Scaled(float x, float factor) {
  return x * factor;
}

// kOf(x, value) in place of each x.
template <float (*kOf)(float x, float value)>
__global__ void __launch_bounds__(kThreads)
    EachKernel(float* x, size_t count, float value) {
  const size_t i = BeginElement();
  if (i < count) x[i] = kOf(x[i], value);
}

__global__ void __launch_bounds__(kThreads)
    AddKernel(float* x, const float* y, size_t count) {
  const size_t i = BeginElement();
  if (i < count) x[i] += y[i];
}

template <int kParts>
__global__ void __launch_bounds__(kThreads)
    AddPairsKernel(const float* parts, size_t count, float* sum) {
  const size_t i = BeginElement();
  if (i < count) sum[i] = SumOfPairs<kParts>(parts + i, count);
}

// One block for each pair of a row (x) and kThreads columns (y).
__global__ void __launch_bounds__(kThreads)
    AddWeightedKernel(const float* y, const int32_t* parts,
                      const float* weights, int count, int cols, float* out) {
  LaunchDependents();
  WaitForPrevious();
  const int column = kThreads * blockIdx.y + threadIdx.x;
  if (column >= cols) return;
  const size_t row = blockIdx.x;
  float sum = 0;
  for (size_t i = row * count; i < (row + 1) * count; ++i) {
    sum += y[static_cast<size_t>(parts[i]) * cols + column] * weights[i];
  }
  out[row * cols + column] = sum;
}

__global__ void __launch_bounds__(kThreads)
    CopyColumnsKernel(const float* x, size_t count, int stride, int first,
                      int cols, float* out) {
  const size_t i = BeginElement();
  if (i >= count) return;
  out[i] = x[i / cols * stride + first + static_cast<int>(i % cols)];
}

template <int kParts>
cudaError_t Pairs(const Queue& queue, const float* parts, size_t count,
                  float* sum) {
  return LaunchKernel(queue, {BlocksFor(count, kThreads), kThreads},
                      AddPairsKernel<kParts>, parts, count, sum);
}

dim3 BlocksForRows(int rows, int cols) {
  return dim3(static_cast<unsigned>(rows),
              BlocksFor(static_cast<size_t>(cols), kThreads).x);
}

template <typename Element>
cudaError_t Embed(const Queue& queue, const DeviceTable& table,
                  const int32_t* ids, int count, float* out) {
  return LaunchKernel(
      queue, {BlocksForRows(count, table.cols), kThreads}, EmbedKernel<Element>,
      static_cast<const Element*>(table.data), ids, table.cols, out);
}

template <typename Element>
cudaError_t Gate(const Queue& queue, const float* gate_up, int rows, int cols,
                 int out_cols, Element* out) {
  const PhaseKind phase =
      std::is_same_v<Element, uint16_t> ? PhaseKind::kGate : PhaseKind::kNone;
  return LaunchKernel(queue,
                      {BlocksForRows(rows, out_cols), kThreads, 0, phase},
                      GateKernel<Element>, gate_up, cols, out_cols, out);
}

}  // namespace

cudaError_t EmbedRows(const Queue& queue, const DeviceTable& table,
                      const int32_t* ids, int count, float* out) {
  switch (table.type) {
    case DType::kF32:
      return Embed<float>(queue, table, ids, count, out);
    case DType::kBF16:
      return Embed<uint16_t>(queue, table, ids, count, out);
    case DType::kF16:
      return Embed<__half>(queue, table, ids, count, out);
    case DType::kInt8:
      break;
  }
  return cudaErrorInvalidValue;
}

cudaError_t RotateHeads(const Queue& queue, float* x, int rows, int row_stride,
                        int num_heads, int head_dim, const float* cos,
                        const float* sin) {
  return LaunchKernel(queue, {dim3(static_cast<unsigned>(rows)), kThreads},
                      RotateKernel, x, row_stride, num_heads, head_dim / 2, cos,
                      sin);
}

cudaError_t GateRows(const Queue& queue, const float* gate_up, int rows,
                     int cols, float* out) {
  return Gate(queue, gate_up, rows, cols, cols, out);
}

cudaError_t GateAndRoundRows(const Queue& queue, const float* gate_up, int rows,
                             int cols, int padded_cols, uint16_t* out) {
  return Gate(queue, gate_up, rows, cols, padded_cols, out);
}

cudaError_t GeluRows(const Queue& queue, const float* gate_up, int rows,
                     int cols, float* out) {
  const size_t count = static_cast<size_t>(rows) * static_cast<size_t>(cols);
  return LaunchKernel(queue, {BlocksFor(count, kThreads), kThreads}, GeluKernel,
                      gate_up, count, cols, out);
}

cudaError_t GeluTanh(const Queue& queue, float* x, size_t count) {
  return LaunchKernel(queue, {BlocksFor(count, kThreads), kThreads},
                      GeluInPlaceKernel<false>, x, count);
}

cudaError_t GeluErf(const Queue& queue, float* x, size_t count) {
  return LaunchKernel(queue, {BlocksFor(count, kThreads), kThreads},
                      GeluInPlaceKernel<true>, x, count);
}

cudaError_t ScaleBy(const Queue& queue, float* x, size_t count, float factor) {
  return LaunchKernel(queue, {BlocksFor(count, kThreads), kThreads},
                      EachKernel<Scaled>, x, count, factor);
}

cudaError_t CapTo(const Queue& queue, float* x, size_t count, float cap) {
  return LaunchKernel(queue, {BlocksFor(count, kThreads), kThreads},
                      EachKernel<Capped>, x, count, cap);
}

cudaError_t AddTo(const Queue& queue, float* x, const float* y, size_t count) {
  return LaunchKernel(queue, {BlocksFor(count, kThreads), kThreads}, AddKernel,
                      x, y, count);
}

cudaError_t AddPairs(const Queue& queue, const float* parts, int num_parts,
                     size_t count, float* sum) {
  switch (num_parts) {
    case 1:
      return Pairs<1>(queue, parts, count, sum);
    case 2:
      return Pairs<2>(queue, parts, count, sum);
    case 4:
      return Pairs<4>(queue, parts, count, sum);
    case 8:
      return Pairs<8>(queue, parts, count, sum);
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t AddToRows(const Queue& queue, float* x, int rows, int cols,
                      const float* bias) {
  const size_t count = static_cast<size_t>(rows) * static_cast<size_t>(cols);
  return LaunchKernel(
      queue, {BlocksFor(count, kThreads), kThreads, 0, PhaseKind::kAddToRows},
      AddToRowsKernel, x, count, cols, bias);
}

cudaError_t AddWeightedRows(const Queue& queue, const float* y,
                            const int32_t* parts, const float* weights,
                            int rows, int count, int cols, float* out) {
  return LaunchKernel(queue, {BlocksForRows(rows, cols), kThreads},
                      AddWeightedKernel, y, parts, weights, count, cols, out);
}

cudaError_t CopyColumns(const Queue& queue, const float* x, int rows,
                        int stride, int first, int cols, float* out) {
  const size_t count = static_cast<size_t>(rows) * static_cast<size_t>(cols);
  return LaunchKernel(queue, {BlocksFor(count, kThreads), kThreads},
                      CopyColumnsKernel, x, count, stride, first, cols, out);
}

cudaError_t RoundRows(const Queue& queue, const float* x, int rows, int cols,
                      int padded_cols, uint16_t* out) {
  return LaunchKernel(
      queue, {BlocksForRows(rows, padded_cols), kThreads, 0, PhaseKind::kRound},
      RoundKernel, x, cols, padded_cols, out);
}

}  // namespace nacre::kernels::cuda
