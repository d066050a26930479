// Attention of prompts by warpgroups (kernels/cuda/attention_wide.h) has the
// bits of the kernel that it stands for. On the emulated device, and on a GPU
// where there is one that has them.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_wide.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/kernels/cuda/host_view.h"
#include "tests/kernels/kernel_testing.h"
#ifdef NACRE_EMULATED_CUDA
#include "tests/kernels/cuda/emulation/runtime.h"
#endif

namespace nacre::kernels {
namespace {

constexpr int kSplit = cuda::kAttentionSplit;
constexpr int kKvHeads = 2;
constexpr float kScale = 0.2f;

// Null where no device has them.
std::unique_ptr<Backend> MakeBackendOf(bool wide) {
  auto device = cuda::Device::Open(0);
  if (!device.ok() ||
      !cuda::HasWideAttention((*device)->compute_capability())) {
    return nullptr;
  }
  auto staging = cuda::Staging::Create(device->get());
  EXPECT_TRUE(staging.ok()) << staging.status();
  CudaBackendOptions options;
  options.least_whole_blocks = 1;
  options.warpgroup_attention = wide;
  return std::make_unique<HostView>(
      std::make_unique<CudaBackend>(*std::move(device), *std::move(staging),
                                    WeightType::kAuto, DType::kBF16, options));
}

// Whether the kernel is to be seen at work.
enum class Uses { kWide, kOther };

class CudaWideAttentionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (MakeCudaBackend() == nullptr) GTEST_SKIP() << "no CUDA device";
    if (wide_ == nullptr) GTEST_SKIP() << "no device with warpgroups";
  }

  // Rows of `cache`, `heads` query heads each, by both kernels.
  void ExpectTheSame(const PagedCache& cache,
                     const std::vector<RowContext>& rows, int heads,
                     const AttentionRule& rule = kScale,
                     Uses uses = Uses::kWide) {
    const int width = heads * cache.layer().head_dim;
    const auto q = RandomFloats(rows.size() * static_cast<size_t>(width), 7);
    const auto attend = [&](Backend& backend) {
      std::vector<float> out(q.size(), NAN);
      backend.Attention(q.data(), width, heads, rule, rows, cache.layer(),
                        out.data());
      return out;
    };
    const uint64_t before = cuda::WideAttentionLaunches();
    const auto expected = attend(*plain_);
    EXPECT_EQ(cuda::WideAttentionLaunches(), before);
    const auto actual = attend(*wide_);
    EXPECT_EQ(cuda::WideAttentionLaunches() > before, uses == Uses::kWide);
    for (size_t i = 0; i < actual.size(); ++i) {
      ASSERT_TRUE(std::bit_cast<uint32_t>(actual[i]) ==
                      std::bit_cast<uint32_t>(expected[i]) ||
                  (std::isnan(actual[i]) && std::isnan(expected[i])))
          << "row " << i / width << ", element " << i % width << ": "
          << actual[i] << ", not " << expected[i];
    }
    EXPECT_FALSE(std::isnan(actual[0]));
  }

  const std::unique_ptr<Backend> plain_ = MakeBackendOf(false);
  const std::unique_ptr<Backend> wide_ = MakeBackendOf(true);
};

std::vector<RowContext> Prompt(const PagedCache& cache, int session, int first,
                               int count) {
  std::vector<RowContext> rows(static_cast<size_t>(count));
  for (int p = 0; p < count; ++p) {
    rows[static_cast<size_t>(p)] = cache.Row(session, first + p);
  }
  return rows;
}

// Tiles that are filled, and those that are not: of 5 and 7 heads for a KV
// head. Some warpgroups have no queries.
TEST_F(CudaWideAttentionTest, HasTheBitsOfTheOtherForEveryGroup) {
  for (const auto& [group, head_dim] : std::vector<std::pair<int, int>>{
           {1, 64}, {4, 64}, {5, 64}, {7, 64}, {48, 64}, {4, 128}, {7, 128}}) {
    const int positions = group == 48 ? 64 : group == 1 ? 2 * kSplit + 5 : 150;
    const PagedCache cache({1, positions, kKvHeads, 16, head_dim, DType::kBF16},
                           5);
    SCOPED_TRACE(group);
    ExpectTheSame(cache, Prompt(cache, 0, 0, positions), group * kKvHeads);
  }
}

TEST_F(CudaWideAttentionTest, HasThemBehindAContextAndInEveryOrderOfRows) {
  const PagedCache cache({3, 3 * kSplit, kKvHeads, 16, 64, DType::kBF16}, 5);
  std::vector<RowContext> rows = Prompt(cache, 1, 2 * kSplit - 9, 33);
  const auto others = Prompt(cache, 0, 61, 70);
  rows.insert(rows.end(), others.begin(), others.end());
  rows.push_back(cache.Row(2, 3));
  ExpectTheSame(cache, rows, 4 * kKvHeads);
  std::reverse(rows.begin(), rows.end());
  ExpectTheSame(cache, rows, 4 * kKvHeads);
}

TEST_F(CudaWideAttentionTest, HasThemWithWindowsAndSoftCaps) {
  const int positions = 2 * kSplit + 21;
  const PagedCache cache({1, positions, kKvHeads, 16, 64, DType::kBF16}, 5);
  for (const int window : {3, 40, 129, 200}) {
    AttentionRule rule = kScale;
    rule.window = window;
    rule.soft_cap = window == 40 ? 1.5f : 0.0f;
    SCOPED_TRACE(window);
    ExpectTheSame(cache, Prompt(cache, 0, 0, positions), 2 * kKvHeads, rule);
  }
}

// Past the positions from which on splits are longer.
TEST_F(CudaWideAttentionTest, HasThemAfterLongContexts) {
  const int positions = cuda::SplitRule::kMiddle + 300;
  const PagedCache cache({1, positions, 1, 16, 64, DType::kBF16}, 5);
  ExpectTheSame(cache, Prompt(cache, 0, positions - 64, 64), 2);
  AttentionRule rule = kScale;
  rule.window = 400;  // begins and ends in splits of different lengths
  ExpectTheSame(cache, Prompt(cache, 0, positions - 64, 64), 2, rule);
}

TEST_F(CudaWideAttentionTest, HasThemForEveryBlockSize) {
  for (const int block_size : {1, 6, 12, 64}) {
    const PagedCache cache({1, 90, 1, block_size, 64, DType::kBF16}, 53);
    SCOPED_TRACE(block_size);
    ExpectTheSame(cache, Prompt(cache, 0, 0, 90), 4);
  }
}

// Values that only some rows see.
TEST_F(CudaWideAttentionTest, HasThemWhereAValueIsNotFinite) {
  constexpr int kPositions = 192;
  for (const int head_dim : {64, 128}) {
    const size_t kv_width = static_cast<size_t>(kKvHeads) * head_dim;
    for (const float bad : {NAN, -INFINITY, 0x1p60f}) {
      if (head_dim == 128 && !std::isnan(bad)) continue;
      PagedCache cache({1, kPositions, kKvHeads, 16, head_dim, DType::kBF16},
                       5);
      const auto rows = Prompt(cache, 0, 0, kPositions);
      const auto k = RandomFloats(kv_width, 9);
      std::vector<float> v(kv_width, 0.5f);
      v[3] = bad;
      for (const int p : {190, 129, 5}) {
        wide_->StoreKv(k.data(), v.data(), static_cast<int>(kv_width),
                       {&rows[p], 1}, cache.layer());
        AttentionRule rule = kScale;
        rule.window = p == 129 ? 50 : rule.window;
        SCOPED_TRACE(p);
        ExpectTheSame(cache, rows, 4 * kKvHeads, rule);
      }
    }
  }
}

TEST_F(CudaWideAttentionTest, OtherShapesAndFewRowsHaveTheOtherKernel) {
  for (const int head_dim : {48, 80, 96}) {
    const PagedCache cache({1, 70, kKvHeads, 16, head_dim, DType::kBF16}, 5);
    ExpectTheSame(cache, Prompt(cache, 0, 0, 70), 4 * kKvHeads, kScale,
                  Uses::kOther);
  }
  const PagedCache cache({1, 70, kKvHeads, 16, 64, DType::kBF16}, 5);
  ExpectTheSame(cache, Prompt(cache, 0, 50, 9), 4 * kKvHeads, kScale,
                Uses::kOther);
}

#ifdef NACRE_EMULATED_CUDA
TEST_F(CudaWideAttentionTest, LessSharedMemoryHasTheOtherKernel) {
  const int limit = cuda::emulation::settings.shared_limit;
  cuda::emulation::settings.shared_limit = 99 << 10;
  const PagedCache cache({1, 70, kKvHeads, 16, 128, DType::kBF16}, 5);
  ExpectTheSame(cache, Prompt(cache, 0, 0, 70), 4 * kKvHeads, kScale,
                Uses::kOther);
  cuda::emulation::settings.shared_limit = limit;
}

// Copies land when they are asked for, not when they are waited for.
TEST_F(CudaWideAttentionTest, HasThemWhenCopiesLandEarly) {
  const auto before = cuda::emulation::copies;
  cuda::emulation::copies = cuda::emulation::Copies::kEarly;
  const PagedCache cache({1, 150, kKvHeads, 16, 64, DType::kBF16}, 5);
  ExpectTheSame(cache, Prompt(cache, 0, 0, 150), 4 * kKvHeads);
  cuda::emulation::copies = before;
}
#endif

}  // namespace
}  // namespace nacre::kernels
