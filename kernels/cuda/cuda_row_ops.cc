#include "kernels/cuda/cuda_row_ops.h"

#include "kernels/cuda/elementwise.h"

namespace nacre::kernels::cuda {

void CudaRowOps::RmsNorm(const float* x, int rows, int cols,
                         const float* weight, float epsilon, float* out) {
  if (rows == 0 || !device_->ok()) return;
  device_->Check(
      NormalizeRows(device_->queue(), x, rows, cols, weight, epsilon, out),
      "norm");
}

void CudaRowOps::LayerNorm(const float* x, int rows, int cols,
                           const float* weight, const float* bias,
                           float epsilon, float* out) {
  if (rows == 0 || !device_->ok()) return;
  device_->Check(CenterAndNormalizeRows(device_->queue(), x, rows, cols, weight,
                                        bias, epsilon, out),
                 "norm");
}

void CudaRowOps::NormHeads(float* x, int rows, int row_stride, int num_heads,
                           int head_dim, const float* weight, float epsilon) {
  if (rows == 0 || !device_->ok()) return;
  device_->Check(NormalizeHeads(device_->queue(), x, rows, row_stride,
                                num_heads, head_dim, weight, epsilon),
                 "norms of heads");
}

void CudaRowOps::Rope(float* x, int rows, int row_stride, int num_heads,
                      int head_dim, const float* cos, const float* sin) {
  if (rows == 0 || !device_->ok()) return;
  device_->Check(RotateHeads(device_->queue(), x, rows, row_stride, num_heads,
                             head_dim, cos, sin),
                 "rotary embedding");
}

void CudaRowOps::SiluMul(const float* gate_up, int rows, int cols, float* out) {
  if (rows == 0 || !device_->ok()) return;
  device_->Check(GateRows(device_->queue(), gate_up, rows, cols, out), "gate");
}

void CudaRowOps::GeluMul(const float* gate_up, int rows, int cols, float* out) {
  if (rows == 0 || !device_->ok()) return;
  device_->Check(GeluRows(device_->queue(), gate_up, rows, cols, out), "gate");
}

void CudaRowOps::Gelu(float* x, int rows, int cols, GeluForm form) {
  if (rows == 0 || !device_->ok()) return;
  const size_t count = static_cast<size_t>(rows) * static_cast<size_t>(cols);
  device_->Check(form == GeluForm::kErf ? GeluErf(device_->queue(), x, count)
                                        : GeluTanh(device_->queue(), x, count),
                 "activation");
}

void CudaRowOps::Scale(float* x, size_t count, float factor) {
  if (count == 0 || !device_->ok()) return;
  device_->Check(ScaleBy(device_->queue(), x, count, factor), "scale");
}

void CudaRowOps::SoftCap(float* x, size_t count, float cap) {
  if (count == 0 || !device_->ok()) return;
  device_->Check(CapTo(device_->queue(), x, count, cap), "soft cap");
}

void CudaRowOps::AddInPlace(float* x, const float* y, size_t count) {
  if (count == 0 || !device_->ok()) return;
  device_->Check(AddTo(device_->queue(), x, y, count), "residual");
}

void CudaRowOps::AddParts(float* parts, int num_parts, size_t count,
                          float* sum) {
  if (count == 0 || !device_->ok()) return;
  device_->Check(AddPairs(device_->queue(), parts, num_parts, count, sum),
                 "sums of parts");
}

void CudaRowOps::AddBias(float* x, int rows, int cols, const float* bias) {
  if (rows == 0 || !device_->ok()) return;
  device_->Check(AddToRows(device_->queue(), x, rows, cols, bias), "bias");
}

void CudaRowOps::TakeColumns(const float* x, int rows, int stride, int first,
                             int cols, float* out) {
  if (rows == 0 || !device_->ok()) return;
  device_->Check(
      CopyColumns(device_->queue(), x, rows, stride, first, cols, out),
      "columns of rows");
}

const int32_t* CudaRowOps::SendRows(absl::Span<const int32_t> rows) {
  const size_t bytes = rows.size() * sizeof(int32_t);
  if (!device_->Grow(bytes, &row_numbers_)) return nullptr;
  staging_->Upload(rows.data(), bytes, row_numbers_->data());
  return static_cast<const int32_t*>(row_numbers_->data());
}

void CudaRowOps::GatherRows(const float* x, absl::Span<const int32_t> rows,
                            int cols, float* out) {
  if (rows.empty() || !device_->ok()) return;
  const int32_t* const numbers = SendRows(rows);
  if (numbers == nullptr) return;
  device_->Check(EmbedRows(device_->queue(), {x, DType::kF32, cols}, numbers,
                           static_cast<int>(rows.size()), out),
                 "rows of others");
}

void CudaRowOps::CombineRows(float* y, absl::Span<const int32_t> rows,
                             absl::Span<const float> weights, int parts,
                             int cols, float* out) {
  if (rows.empty() || !device_->ok()) return;
  const int32_t* const numbers = SendRows(rows);
  const size_t bytes = weights.size() * sizeof(float);
  if (numbers == nullptr || !device_->Grow(bytes, &row_weights_)) return;
  staging_->Upload(weights.data(), bytes, row_weights_->data());
  device_->Check(
      AddWeightedRows(device_->queue(), y, numbers, row_weights_->f32(),
                      static_cast<int>(rows.size()) / parts, parts, cols, out),
      "sums of rows");
}

}  // namespace nacre::kernels::cuda
