#include "tests/kernels/cuda/host_view.h"

#include <algorithm>

#include "gtest/gtest.h"
#include "kernels/backend_factory.h"

namespace nacre::kernels {
namespace {

constexpr const float* kNothing = nullptr;

// Host memory with a copy on the device, which ops may read or write.
class Mirror {
 public:
  Mirror(Backend* backend, const void* host, size_t bytes)
      : backend_(backend), bytes_(bytes) {
    auto buffer = backend->Allocate(bytes);
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    buffer_ = *std::move(buffer);
    if (host != nullptr) backend->CopyFromHost(host, bytes, buffer_->data());
  }
  Mirror(Backend* backend, const float* host, size_t count)
      : Mirror(backend, static_cast<const void*>(host), count * sizeof(float)) {
  }

  float* f32() { return buffer_->f32(); }
  void* data() { return buffer_->data(); }
  void Return(void* host) {
    backend_->CopyToHost(buffer_->data(), bytes_, host);
    const absl::Status status = backend_->Synchronize();
    EXPECT_TRUE(status.ok()) << status;
  }

 private:
  Backend* const backend_;
  const size_t bytes_;
  std::unique_ptr<Buffer> buffer_;
};

size_t Count(int rows, int cols) {
  return static_cast<size_t>(rows) * static_cast<size_t>(cols);
}

// Floats of `rows` rows that are `stride` apart and `width` long.
size_t Extent(size_t rows, int stride, int width) {
  return rows == 0 ? 0
                   : (rows - 1) * static_cast<size_t>(stride) +
                         static_cast<size_t>(width);
}

size_t LayerBytes(const KvLayer& layer) {
  return Count(layer.num_blocks, layer.num_kv_heads) * 2 *
         Count(layer.block_size, layer.head_dim) * SizeOf(layer.type);
}

}  // namespace

void HostView::MatMul(const float* x, int rows, const PackedMatrix& w,
                      float* y) {
  Mirror in(backend_.get(), x, Count(rows, w.cols()));
  Mirror out(backend_.get(), kNothing, Count(rows, w.rows()));
  backend_->MatMul(in.f32(), rows, w, out.f32());
  out.Return(y);
}

void HostView::Embed(const PackedTable& table, absl::Span<const int32_t> ids,
                     float* out) {
  Mirror to(backend_.get(), kNothing,
            ids.size() * static_cast<size_t>(table.cols()));
  backend_->Embed(table, ids, to.f32());
  to.Return(out);
}

void HostView::RmsNorm(const float* x, int rows, int cols, const float* weight,
                       float epsilon, float* out) {
  Mirror in(backend_.get(), x, Count(rows, cols));
  Mirror weights(backend_.get(), weight, static_cast<size_t>(cols));
  if (out == x) {
    backend_->RmsNorm(in.f32(), rows, cols, weights.f32(), epsilon, in.f32());
    in.Return(out);
    return;
  }
  Mirror to(backend_.get(), kNothing, Count(rows, cols));
  backend_->RmsNorm(in.f32(), rows, cols, weights.f32(), epsilon, to.f32());
  to.Return(out);
}

void HostView::Rope(float* x, int rows, int row_stride, int num_heads,
                    int head_dim, const float* cos, const float* sin) {
  Mirror in_place(
      backend_.get(), x,
      Extent(static_cast<size_t>(rows), row_stride, num_heads * head_dim));
  Mirror cosines(backend_.get(), cos, Count(rows, head_dim / 2));
  Mirror sines(backend_.get(), sin, Count(rows, head_dim / 2));
  backend_->Rope(in_place.f32(), rows, row_stride, num_heads, head_dim,
                 cosines.f32(), sines.f32());
  in_place.Return(x);
}

void HostView::StoreKv(const float* k, const float* v, int row_stride,
                       absl::Span<const RowContext> contexts,
                       const KvLayer& layer) {
  const size_t count =
      Extent(contexts.size(), row_stride, layer.num_kv_heads * layer.head_dim);
  Mirror keys(backend_.get(), k, count);
  Mirror values(backend_.get(), v, count);
  Mirror blocks(backend_.get(), layer.blocks, LayerBytes(layer));
  KvLayer on_device = layer;
  on_device.blocks = blocks.data();
  backend_->StoreKv(keys.f32(), values.f32(), row_stride, contexts, on_device);
  blocks.Return(layer.blocks);
}

void HostView::MoveKv(absl::Span<const KvMove> moves,
                      absl::Span<const KvLayer> layers) {
  for (const KvLayer& layer : layers) {
    Mirror blocks(backend_.get(), layer.blocks, LayerBytes(layer));
    KvLayer on_device = layer;
    on_device.blocks = blocks.data();
    backend_->MoveKv(moves, {on_device});
    blocks.Return(layer.blocks);
  }
}

void HostView::Attention(const float* q, int q_stride, int num_heads,
                         const AttentionRule& rule,
                         absl::Span<const RowContext> contexts,
                         const KvLayer& layer, float* out) {
  const int width = num_heads * layer.head_dim;
  Mirror queries(backend_.get(), q, Extent(contexts.size(), q_stride, width));
  Mirror blocks(backend_.get(), layer.blocks, LayerBytes(layer));
  Mirror to(backend_.get(), kNothing,
            contexts.size() * static_cast<size_t>(width));
  KvLayer on_device = layer;
  on_device.blocks = blocks.data();
  backend_->Attention(queries.f32(), q_stride, num_heads, rule, contexts,
                      on_device, to.f32());
  to.Return(out);
}

void HostView::SiluMul(const float* gate_up, int rows, int cols, float* out) {
  Mirror in(backend_.get(), gate_up, Count(rows, 2 * cols));
  Mirror to(backend_.get(), kNothing, Count(rows, cols));
  backend_->SiluMul(in.f32(), rows, cols, to.f32());
  to.Return(out);
}

void HostView::GeluMul(const float* gate_up, int rows, int cols, float* out) {
  Mirror in(backend_.get(), gate_up, Count(rows, 2 * cols));
  Mirror to(backend_.get(), kNothing, Count(rows, cols));
  backend_->GeluMul(in.f32(), rows, cols, to.f32());
  to.Return(out);
}

void HostView::Gelu(float* x, int rows, int cols, GeluForm form) {
  Mirror in_place(backend_.get(), x, Count(rows, cols));
  backend_->Gelu(in_place.f32(), rows, cols, form);
  in_place.Return(x);
}

void HostView::LayerNorm(const float* x, int rows, int cols,
                         const float* weight, const float* bias, float epsilon,
                         float* out) {
  Mirror in(backend_.get(), x, Count(rows, cols));
  Mirror weights(backend_.get(), weight, static_cast<size_t>(cols));
  Mirror biases(backend_.get(), bias, static_cast<size_t>(cols));
  Mirror to(backend_.get(), kNothing, Count(rows, cols));
  // In place where the caller asks for it.
  float* const result = x == out ? in.f32() : to.f32();
  backend_->LayerNorm(in.f32(), rows, cols, weights.f32(), biases.f32(),
                      epsilon, result);
  (x == out ? in : to).Return(out);
}

void HostView::Scale(float* x, size_t count, float factor) {
  Mirror in_place(backend_.get(), x, count);
  backend_->Scale(in_place.f32(), count, factor);
  in_place.Return(x);
}

void HostView::SoftCap(float* x, size_t count, float cap) {
  Mirror in_place(backend_.get(), x, count);
  backend_->SoftCap(in_place.f32(), count, cap);
  in_place.Return(x);
}

void HostView::AddInPlace(float* x, const float* y, size_t count) {
  Mirror in_place(backend_.get(), x, count);
  Mirror added(backend_.get(), y, count);
  backend_->AddInPlace(in_place.f32(), added.f32(), count);
  in_place.Return(x);
}

void HostView::AddParts(float* parts, int num_parts, size_t count, float* sum) {
  Mirror in_place(backend_.get(), parts,
                  static_cast<size_t>(num_parts) * count);
  Mirror out(backend_.get(), sum, count);
  backend_->AddParts(in_place.f32(), num_parts, count, out.f32());
  out.Return(sum);
}

void HostView::AddBias(float* x, int rows, int cols, const float* bias) {
  Mirror in_place(backend_.get(), x, Count(rows, cols));
  Mirror added(backend_.get(), bias, static_cast<size_t>(cols));
  backend_->AddBias(in_place.f32(), rows, cols, added.f32());
  in_place.Return(x);
}

void HostView::TakeColumns(const float* x, int rows, int stride, int first,
                           int cols, float* out) {
  Mirror in(backend_.get(), x, Count(rows, stride));
  Mirror to(backend_.get(), kNothing, Count(rows, cols));
  backend_->TakeColumns(in.f32(), rows, stride, first, cols, to.f32());
  to.Return(out);
}

// As many rows as are asked for, the last of them included.
void HostView::GatherRows(const float* x, absl::Span<const int32_t> rows,
                          int cols, float* out) {
  const int32_t last = *std::max_element(rows.begin(), rows.end());
  Mirror in(backend_.get(), x, Count(last + 1, cols));
  Mirror to(backend_.get(), kNothing,
            Count(static_cast<int>(rows.size()), cols));
  backend_->GatherRows(in.f32(), rows, cols, to.f32());
  to.Return(out);
}

void HostView::CombineRows(float* y, absl::Span<const int32_t> rows,
                           absl::Span<const float> weights, int parts, int cols,
                           float* out) {
  const int count = static_cast<int>(rows.size());
  Mirror in(backend_.get(), y, Count(count, cols));
  Mirror to(backend_.get(), kNothing, Count(count / parts, cols));
  backend_->CombineRows(in.f32(), rows, weights, parts, cols, to.f32());
  to.Return(out);
}

// Scratch stays on the device: no caller may count on what it holds.
void HostView::NormMatMul(const float* x, int rows, const float* weight,
                          float epsilon, const PackedMatrix& w, float*,
                          float* y) {
  Mirror in(backend_.get(), x, Count(rows, w.cols()));
  Mirror weights(backend_.get(), weight, static_cast<size_t>(w.cols()));
  Mirror normed(backend_.get(), kNothing, Count(rows, w.cols()));
  Mirror out(backend_.get(), kNothing, Count(rows, w.rows()));
  backend_->NormMatMul(in.f32(), rows, weights.f32(), epsilon, w, normed.f32(),
                       out.f32());
  out.Return(y);
}

void HostView::MatMulAdd(const float* x, int rows, const PackedMatrix& w,
                         const float* residual, float* y) {
  Mirror in(backend_.get(), x, Count(rows, w.cols()));
  Mirror added(backend_.get(), residual, Count(rows, w.rows()));
  Mirror out(backend_.get(), kNothing, Count(rows, w.rows()));
  backend_->MatMulAdd(in.f32(), rows, w, added.f32(), out.f32());
  out.Return(y);
}

void HostView::SiluMatMulAdd(const float* gate_up, int rows,
                             const PackedMatrix& w, const float* residual,
                             float*, float* y) {
  Mirror in(backend_.get(), gate_up, Count(rows, 2 * w.cols()));
  Mirror added(backend_.get(), residual, Count(rows, w.rows()));
  Mirror gated(backend_.get(), kNothing, Count(rows, w.cols()));
  Mirror out(backend_.get(), kNothing, Count(rows, w.rows()));
  backend_->SiluMatMulAdd(in.f32(), rows, w, added.f32(), gated.f32(),
                          out.f32());
  out.Return(y);
}

void HostView::RopeStoreKv(float* qkv, int num_heads, const float* cos,
                           const float* sin,
                           absl::Span<const RowContext> contexts,
                           const KvLayer& layer) {
  const int rows = static_cast<int>(contexts.size());
  Mirror in_place(
      backend_.get(), qkv,
      Count(rows, (num_heads + 2 * layer.num_kv_heads) * layer.head_dim));
  Mirror cosines(backend_.get(), cos, Count(rows, layer.head_dim / 2));
  Mirror sines(backend_.get(), sin, Count(rows, layer.head_dim / 2));
  Mirror blocks(backend_.get(), layer.blocks, LayerBytes(layer));
  KvLayer on_device = layer;
  on_device.blocks = blocks.data();
  backend_->RopeStoreKv(in_place.f32(), num_heads, cosines.f32(), sines.f32(),
                        contexts, on_device);
  in_place.Return(qkv);
  blocks.Return(layer.blocks);
}

void HostView::NormSiluMatMulAdd(const NormedRows& in,
                                 const PackedMatrix& gate_up,
                                 const PackedMatrix& down,
                                 const float* residual,
                                 const GateScratch& scratch, float* y) {
  Mirror x(backend_.get(), in.x, Count(in.rows, gate_up.cols()));
  Mirror weights(backend_.get(), in.weight,
                 static_cast<size_t>(gate_up.cols()));
  Mirror normed(backend_.get(), kNothing, Count(in.rows, gate_up.cols()));
  Mirror between(backend_.get(), scratch.gate_up,
                 Count(in.rows, gate_up.rows()));
  Mirror gated(backend_.get(), kNothing, Count(in.rows, down.cols()));
  Mirror added(backend_.get(), residual, Count(in.rows, down.rows()));
  Mirror out(backend_.get(), kNothing, Count(in.rows, down.rows()));
  backend_->NormSiluMatMulAdd(
      {x.f32(), in.rows, weights.f32(), in.epsilon, normed.f32()}, gate_up,
      down, added.f32(), {between.f32(), gated.f32()}, out.f32());
  out.Return(y);
  if (scratch.gate_up != nullptr) between.Return(scratch.gate_up);
}

void HostView::NormMatMulRopeStoreKv(const NormedRows& in,
                                     const PackedMatrix& w, const float* bias,
                                     const HeadAngles& angles,
                                     absl::Span<const RowContext> contexts,
                                     const KvLayer& layer, float* qkv) {
  Mirror x(backend_.get(), in.x, Count(in.rows, w.cols()));
  Mirror weights(backend_.get(), in.weight, static_cast<size_t>(w.cols()));
  Mirror normed(backend_.get(), kNothing, Count(in.rows, w.cols()));
  Mirror added(backend_.get(), bias, static_cast<size_t>(w.rows()));
  Mirror cosines(backend_.get(), angles.cos,
                 Count(in.rows, layer.head_dim / 2));
  Mirror sines(backend_.get(), angles.sin, Count(in.rows, layer.head_dim / 2));
  Mirror blocks(backend_.get(), layer.blocks, LayerBytes(layer));
  Mirror out(backend_.get(), qkv, Count(in.rows, w.rows()));
  KvLayer on_device = layer;
  on_device.blocks = blocks.data();
  backend_->NormMatMulRopeStoreKv(
      {x.f32(), in.rows, weights.f32(), in.epsilon, normed.f32()}, w,
      bias == nullptr ? nullptr : added.f32(),
      {angles.num_heads, cosines.f32(), sines.f32()}, contexts, on_device,
      out.f32());
  out.Return(qkv);
  blocks.Return(layer.blocks);
}

std::unique_ptr<Backend> MakeCudaBackend(const std::string& weights,
                                         const std::string& kv_type) {
  BackendOptions options;
  options.kind = "cuda";
  options.weights = weights;
  options.kv_type = kv_type;
  auto backend = CreateBackend(options);
#ifndef NACRE_EMULATED_CUDA
  if (backend.status().code() == absl::StatusCode::kFailedPrecondition) {
    return nullptr;
  }
#endif
  EXPECT_TRUE(backend.ok()) << backend.status();
  return std::make_unique<HostView>(*std::move(backend));
}

}  // namespace nacre::kernels
