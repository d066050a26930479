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
  GemmArgs args;
  args.format = *w.format();
  args.weights = w.data();
  args.scales = w.scales();
  args.activations = activations_->data();
  args.workspace = workspace_->data();
  if (fusion_) args.counters = static_cast<unsigned*>(counters_->data());
  args.outputs = w.rows();
  args.order_outputs = w.order_outputs();
  args.inputs = w.padded_cols();
  for (int row = first; row < end; row += kPassRows) {
    const size_t done = static_cast<size_t>(row) * w.rows();
    args.rows = std::min(kPassRows, end - row);
    args.results = y + done;
    if (residual != nullptr) args.residual = residual + done;
    if (!device_->Check(write(device_->queue(), row, args.rows,
                              static_cast<uint16_t*>(activations_->data())),
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

uint16_t* CudaProducts::RoomForRounded(int rows, int cols) const {
  const size_t bytes =
      sizeof(uint16_t) * static_cast<size_t>(rows) * static_cast<size_t>(cols);
  const bool fits = fusion_ && rows <= kPassRows && activations_ != nullptr &&
                    bytes <= activations_->size_bytes();
  return fits ? static_cast<uint16_t*>(activations_->data()) : nullptr;
}

bool CudaProducts::HasRounded(const float* x, int rows,
                              const CudaMatrix& w) const {
  const bool has_prompts = prompts_ != nullptr && !prompts_->runs().empty();
  return !has_prompts && w.padded_cols() == w.cols() &&
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
