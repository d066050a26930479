// The contract that makes speculation exact, on the cuda backend: every output
// row has the same bits alone and in any batch. On the emulated device, and on
// a GPU where there is one.

#include <cmath>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/kernels/cuda/host_view.h"
#include "tests/kernels/kernel_testing.h"
#include "tests/kernels/tail_checks.h"

namespace nacre::kernels {
namespace {

bool SameBits(const float* a, const float* b, size_t count) {
  return std::memcmp(a, b, count * sizeof(float)) == 0;
}

TEST(CudaInvarianceTest, MatMulRowsHaveTheSameBitsInEveryBatch) {
  const auto backend = MakeCudaBackend();
  NACRE_SKIP_WITHOUT_GPU(backend);
  const int rows_all = 18;
  for (const int cols : {100, 1096}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const int outputs = 33;
      const auto x = RandomFloats(static_cast<size_t>(rows_all) * cols, 1);
      const UnalignedMatrix w(
          RandomFloats(static_cast<size_t>(outputs) * cols, 2), outputs, cols,
          dtype);
      const auto packed = backend->Pack({w.host()});
      ASSERT_TRUE(packed.ok());
      std::vector<float> alone(static_cast<size_t>(rows_all) * outputs);
      for (int row = 0; row < rows_all; ++row) {
        backend->MatMul(x.data() + row * cols, 1, **packed,
                        alone.data() + row * outputs);
      }
      for (const int rows : {2, 8, 9, 16, 17, 18}) {
        // The last rows, so that a row also changes its place in the batch.
        const int first = rows_all - rows;
        std::vector<float> together(static_cast<size_t>(rows) * outputs);
        backend->MatMul(x.data() + first * cols, rows, **packed,
                        together.data());
        ASSERT_TRUE(SameBits(together.data(), alone.data() + first * outputs,
                             together.size()))
            << rows << " rows, cols " << cols;
      }
    }
  }
}

TEST(CudaInvarianceTest, ElementwiseRowsHaveTheSameBitsInEveryBatch) {
  const auto backend = MakeCudaBackend();
  NACRE_SKIP_WITHOUT_GPU(backend);
  const int rows_all = 9;
  for (const int cols : {3, 100, 344}) {
    const int stride = 2 * cols;
    const auto x = RandomFloats(static_cast<size_t>(rows_all) * stride, 3);
    const auto weight = RandomFloats(stride, 4);
    const auto cos = RandomFloats(rows_all * cols, 6);
    const auto sin = RandomFloats(rows_all * cols, 7);
    std::vector<float> norm(rows_all * stride);
    std::vector<float> silu(rows_all * cols);
    auto rope = x;
    for (int row = 0; row < rows_all; ++row) {
      const float* const from = x.data() + row * stride;
      backend->RmsNorm(from, 1, stride, weight.data(), 1e-5f,
                       norm.data() + row * stride);
      backend->SiluMul(from, 1, cols, silu.data() + row * cols);
      backend->Rope(rope.data() + row * stride, 1, stride, 1, stride,
                    cos.data() + row * cols, sin.data() + row * cols);
    }
    for (int rows = 2; rows <= rows_all; ++rows) {
      const int first = rows_all - rows;
      const float* const from = x.data() + first * stride;
      std::vector<float> out(rows * stride);
      backend->RmsNorm(from, rows, stride, weight.data(), 1e-5f, out.data());
      ASSERT_TRUE(
          SameBits(out.data(), norm.data() + first * stride, rows * stride));
      backend->SiluMul(from, rows, cols, out.data());
      ASSERT_TRUE(
          SameBits(out.data(), silu.data() + first * cols, rows * cols));
      std::vector<float> turned(from, from + rows * stride);
      backend->Rope(turned.data(), rows, stride, 1, stride,
                    cos.data() + first * cols, sin.data() + first * cols);
      ASSERT_TRUE(
          SameBits(turned.data(), rope.data() + first * stride, rows * stride));
    }
  }
}

// Rows of two sessions: those that follow each other share tiles, which depend
// on their number.
void ExpectAttentionInvariant(Backend& backend, Backend& in_chunks, DType type,
                              int heads_per_kv_head, int context) {
  constexpr int kRowsEach = 14;
  const int num_heads = 2 * heads_per_kv_head;
  const int head_dim = 72;
  const int width = num_heads * head_dim;
  const PagedCache cache({2, 300, 2, 16, head_dim, type}, 42);
  const auto q = RandomFloats(2 * kRowsEach * width, 43);
  std::vector<RowContext> contexts;
  for (int row = 0; row < 2 * kRowsEach; ++row) {
    contexts.push_back(cache.Row(row / kRowsEach, context + row % kRowsEach));
  }
  std::vector<float> alone(q.size());
  for (size_t row = 0; row < contexts.size(); ++row) {
    backend.Attention(q.data() + row * width, width, num_heads, 0.125f,
                      {&contexts[row], 1}, cache.layer(),
                      alone.data() + row * width);
  }
  for (const size_t rows : {2, 3, 9, 16, 28}) {
    // The last of the first session, then of the second.
    const size_t first = contexts.size() - rows;
    for (Backend* const each : {&backend, &in_chunks}) {
      std::vector<float> together(rows * width);
      each->Attention(q.data() + first * width, width, num_heads, 0.125f,
                      absl::MakeSpan(contexts).subspan(first), cache.layer(),
                      together.data());
      ASSERT_TRUE(SameBits(together.data(), alone.data() + first * width,
                           together.size()))
          << rows << " rows after " << context << ", " << heads_per_kv_head
          << " query heads a KV head";
    }
  }
}

TEST(CudaInvarianceTest, AttentionRowsHaveTheSameBitsInEveryBatch) {
  const auto backend = MakeCudaBackend();
  NACRE_SKIP_WITHOUT_GPU(backend);
  // Room for the partial results of a few rows: the batch is cut.
  auto device = cuda::Device::Open(0);
  ASSERT_TRUE(device.ok());
  auto staging = cuda::Staging::Create(device->get());
  ASSERT_TRUE(staging.ok());
  HostView in_chunks(std::make_unique<CudaBackend>(
      *std::move(device), *std::move(staging), WeightType::kAuto, DType::kF32,
      CudaBackendOptions{.max_partial_bytes = 20000}));
  for (const int heads_per_kv_head : {1, 3, 4, 9}) {
    ExpectAttentionInvariant(*backend, in_chunks, DType::kF32,
                             heads_per_kv_head, 120);
  }
  for (const int context : {0, 250}) {
    ExpectAttentionInvariant(*backend, in_chunks, DType::kBF16, 2, context);
  }
}

// Trees whose tails begin in the first split and in later ones, and on its
// edge; beside another session.
TEST(CudaInvarianceTest, NodesHaveTheBitsOfTheirChains) {
  const auto backend = MakeCudaBackend();
  NACRE_SKIP_WITHOUT_GPU(backend);
  uint32_t seed = 1;
  for (const DType type : {DType::kF32, DType::kBF16}) {
    for (const int length : {100, 128, 250}) {
      TreesInSlots trees(backend.get(), {48, 1, 3, type, 16, 288}, {length, 30},
                         {20, 1}, ++seed);
      trees.ExpectBitsOfChains();
      if (HasFatalFailure()) return;
      trees.ExpectBitsOfKeptPaths();
      if (HasFatalFailure()) return;
    }
    // Blocks that four positions in a row do not fit into.
    TreesInSlots trees(backend.get(), {34, 1, 1, type, 7, 288}, {130}, {4}, 99);
    trees.ExpectBitsOfChains();
    if (HasFatalFailure()) return;
  }
}

// Not even a later row's NaN reaches an earlier one.
TEST(CudaInvarianceTest, AttentionNeverSeesWhatLiesBehindTheRow) {
  const auto backend = MakeCudaBackend();
  NACRE_SKIP_WITHOUT_GPU(backend);
  constexpr int kPositions = 150;
  for (const DType type : {DType::kF32, DType::kBF16}) {
    const int head_dim = 80;
    const PagedCache cache({1, kPositions, 1, 16, head_dim, type}, 44);
    const size_t width = 2 * static_cast<size_t>(head_dim);
    const auto q = RandomFloats(kPositions * width, 45);
    std::vector<RowContext> contexts;
    for (int p = 0; p < kPositions; ++p) contexts.push_back(cache.Row(0, p));
    std::vector<float> before(kPositions * width);
    backend->Attention(q.data(), 2 * head_dim, 2, 0.2f, contexts, cache.layer(),
                       before.data());
    const std::vector<float> nan(head_dim, NAN);
    for (const int p : {149, 128, 127, 1}) {
      backend->StoreKv(nan.data(), nan.data(), head_dim, {&contexts[p], 1},
                       cache.layer());
      std::vector<float> after(kPositions * width);
      backend->Attention(q.data(), 2 * head_dim, 2, 0.2f, contexts,
                         cache.layer(), after.data());
      ASSERT_TRUE(SameBits(after.data(), before.data(), p * width))
          << "position " << p << " is NaN";
      EXPECT_TRUE(std::isnan(after[p * width]));
    }
  }
}

TEST(CudaInvarianceTest, AttentionDoesNotDependOnTheBlockSize) {
  const auto backend = MakeCudaBackend();
  NACRE_SKIP_WITHOUT_GPU(backend);
  const int positions = 150;
  const int head_dim = 64;
  const auto k = RandomFloats(positions * head_dim, 50);
  const auto v = RandomFloats(positions * head_dim, 51);
  const auto q = RandomFloats(head_dim, 52);
  std::vector<std::vector<float>> outputs;
  for (const int block_size : {16, 1, 7, 64, 256}) {
    const PagedCache cache({1, positions, 1, block_size, head_dim}, 53);
    std::vector<RowContext> contexts;
    for (int p = 0; p < positions; ++p) contexts.push_back(cache.Row(0, p));
    backend->StoreKv(k.data(), v.data(), head_dim, contexts, cache.layer());
    outputs.emplace_back(head_dim);
    backend->Attention(q.data(), head_dim, 1, 0.125f, {&contexts.back(), 1},
                       cache.layer(), outputs.back().data());
    EXPECT_TRUE(SameBits(outputs.back().data(), outputs[0].data(), head_dim))
        << "block_size " << block_size;
  }
}

}  // namespace
}  // namespace nacre::kernels
