#include "kernels/cuda/cuda_products.h"

#include <algorithm>

#include "common/check.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/f32_gemm.h"
#include "kernels/cuda/gemm.h"

namespace nacre::kernels::cuda {

bool CudaProducts::Reserve(const CudaMatrix& w) {
  if (!w.format().has_value()) return true;
  const size_t activations =
      sizeof(uint16_t) * kPassRows * static_cast<size_t>(w.padded_cols());
  const size_t workspace = GemmWorkspaceBytes(
      *w.format(), w.rows(), w.padded_cols(), kPassRows, w.order_outputs());
  return device_->Grow(activations, &activations_) &&
         device_->Grow(workspace, &workspace_) &&
         device_->Grow(sizeof(unsigned) * kGemmCounters, &counters_);
}

GemmArgs CudaProducts::ArgsOf(int rows, const CudaMatrix& w) const {
  GemmArgs args;
  args.format = *w.format();
  args.weights = w.data();
  args.scales = w.scales();
  args.activations = rounded();
  args.workspace = workspace_->data();
  if (fusion_) args.counters = static_cast<unsigned*>(counters_->data());
  args.outputs = w.rows();
  args.pairs_apart = w.pairs_apart();
  args.order_outputs = w.order_outputs();
  args.inputs = w.padded_cols();
  args.rows = rows;
  return args;
}

void CudaProducts::MultiplyRounded(WriteRounded write, int rows,
                                   const CudaMatrix& w, const float* residual,
                                   float* y) {
  int row = 0;
  if (w.prompt() != nullptr) {
    for (const PromptRun& run : prompts_->runs()) {
      MultiplyRows(write, row, run.first_row, w, residual, y);
      row = run.first_row + run.count;
      NACRE_CHECK(row <= rows, "more rows of prompts than rows");
      prompts_->Multiply(write, run, w, residual, y);
    }
  }
  MultiplyRows(write, row, rows, w, residual, y);
}

void CudaProducts::MultiplyRows(WriteRounded write, int first, int end,
                                const CudaMatrix& w, const float* residual,
                                float* y) {
  for (int row = first; row < end; row += kPassRows) {
    const size_t done = static_cast<size_t>(row) * w.rows();
    GemmArgs args = ArgsOf(std::min(kPassRows, end - row), w);
    args.results = y + done;
    if (residual != nullptr) args.residual = residual + done;
    if (!device_->Check(write(device_->queue(), row, args.rows, rounded()),
                        "rounding activations") ||
        !device_->Check(Gemm(args, device_->queue()), "matrix product")) {
      return;
    }
  }
}

void CudaProducts::MultiplyF32(const float* x, int rows, const CudaMatrix& w,
                               const float* residual, float* y) {
  device_->Check(
      F32Gemm(device_->queue(), x, rows, static_cast<const float*>(w.data()),
              w.rows(), w.cols(), residual, y),
      "matrix product");
}

bool CudaProducts::TakesPairs(int rows, const CudaMatrix& w,
                              int pairs_apart) const {
  return fusion_ && !has_prompts() && w.format().has_value() &&
         w.pairs_apart() == pairs_apart && rows <= kPassRows &&
         cuda::TakesPairs(ArgsOf(rows, w));
}

bool CudaProducts::Normalize(const NormedRows& in, const CudaMatrix& w,
                             absl::optional<NormOfInputs>* norm) {
  if (NormsInputs(in.rows, w.padded_cols())) {
    *norm = NormOfInputs{in.x, in.weight, in.epsilon, w.cols()};
    return true;
  }
  return device_->Check(
      NormalizeAndRoundRows(device_->queue(), in.x, in.rows, w.cols(),
                            w.padded_cols(), in.weight, in.epsilon, rounded()),
      "norm");
}

void CudaProducts::MultiplyGated(const NormedRows& in,
                                 const CudaMatrix& gate_up, const CudaMatrix& w,
                                 const float* residual, float* y) {
  absl::optional<NormOfInputs> norm;
  if (!Normalize(in, gate_up, &norm)) return;
  // They have room behind what they are made of: rows are few.
  uint16_t* const gated =
      rounded() + static_cast<size_t>(in.rows) * gate_up.padded_cols();
  GemmArgs args = ArgsOf(in.rows, w);
  NACRE_CHECK(gate_up.rows() == 2 * args.inputs, "gates of other products");
  args.activations = gated;
  args.residual = residual;
  args.results = y;
  if (device_->Check(GemmAndGate(ArgsOf(in.rows, gate_up),
                                 norm.has_value() ? &*norm : nullptr, gated,
                                 device_->queue()),
                     "matrix product and gate")) {
    device_->Check(Gemm(args, device_->queue()), "matrix product");
  }
}

void CudaProducts::MultiplyAndRotate(const NormedRows& in, const CudaMatrix& w,
                                     const RotateOutputs& to, float* qkv) {
  absl::optional<NormOfInputs> norm;
  if (!Normalize(in, w, &norm)) return;
  GemmArgs args = ArgsOf(in.rows, w);
  args.results = qkv;
  device_->Check(GemmAndRotate(args, norm.has_value() ? &*norm : nullptr, to,
                               device_->queue()),
                 "matrix product, rotary embedding, keys and values");
}

uint16_t* CudaProducts::RoomForRounded(int rows, int cols) const {
  const size_t bytes =
      sizeof(uint16_t) * static_cast<size_t>(rows) * static_cast<size_t>(cols);
  const bool fits = fusion_ && rows <= kPassRows && activations_ != nullptr &&
                    bytes <= activations_->size_bytes();
  return fits ? rounded() : nullptr;
}

bool CudaProducts::HasRounded(const float* x, int rows,
                              const CudaMatrix& w) const {
  return !has_prompts() && w.padded_cols() == w.cols() &&
         rounded_ == RoundedRows{x, rows, w.cols(), device_->queued()};
}

void CudaProducts::Multiply(const float* x, int rows, const CudaMatrix& w,
                            const float* residual, float* y) {
  if (rows == 0 || !device_->ok()) return;
  if (!w.format().has_value()) return MultiplyF32(x, rows, w, residual, y);
  const bool is_rounded = HasRounded(x, rows, w);
  const auto round = [&](const Queue& queue, int first, int count,
                         uint16_t* out) {
    if (is_rounded) return cudaSuccess;
    return RoundRows(queue, RowsFrom(x, first, w.cols()), count, w.cols(),
                     w.padded_cols(), out);
  };
  MultiplyRounded(round, rows, w, residual, y);
}

}  // namespace nacre::kernels::cuda
