// A model whose prompts are attended to by warpgroups
// (kernels/cuda/attention_wide.h) has the logits of one whose are not: on the
// emulated device, and on a GPU of compute capability 9.0.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/attention_wide.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/weight_type.h"
#include "model/load_model.h"
#include "tests/testing/tiny_checkpoint.h"
#ifdef NACRE_EMULATED_CUDA
#include "tests/kernels/cuda/emulation/runtime.h"
#endif

namespace nacre::model {
namespace {

using Logits = std::vector<float>;

struct Result {
  Logits logits;
  std::string numerics;
  uint64_t launches = 0;  // of the kernel
};

class CudaWideAttentionModelTest : public ::testing::TestWithParam<int> {
 protected:
  // Of two sessions' prompts, one of them in chunks, and of steps after it.
  // Nothing, and the test is skipped, where no device can.
  static Result Run(const std::string& folder, bool wide) {
    Result result;
#ifdef NACRE_EMULATED_CUDA
    kernels::cuda::emulation::ResetDevice();
    kernels::cuda::emulation::settings.multiprocessors = 4;
#endif
    auto device = kernels::cuda::Device::Open(0);
    if (!device.ok() ||
        !kernels::cuda::HasWideAttention((*device)->compute_capability())) {
      Skip("no device with warpgroups");
      return result;
    }
    auto staging = *kernels::cuda::Staging::Create(device->get());
    // Prompts this short have few tiles: a large GPU would not have whole ones.
    const kernels::CudaBackendOptions options = {.warpgroup_attention = wide,
                                                 .least_whole_blocks = 1};
    const auto backend = std::make_unique<kernels::CudaBackend>(
        *std::move(device), std::move(staging), kernels::WeightType::kAuto,
        kernels::DType::kBF16, options);
    result.numerics = backend->numerics_id();
    const auto model = *LoadModel(folder, backend.get(), {1 << 22, {}});
    const uint64_t before = kernels::cuda::WideAttentionLaunches();
    const std::unique_ptr<Sequence> sequences[] = {*model->NewSequence(400),
                                                   *model->NewSequence(400)};
    int next = 0;
    for (const auto& [session, rows] : std::vector<std::pair<int, int>>{
             {0, 70}, {0, 129}, {1, 64}, {0, 1}, {1, 9}}) {
      std::vector<int32_t> tokens(static_cast<size_t>(rows));
      for (int32_t& token : tokens) {
        token = next++ * 37 % model->info().vocab_size;
      }
      const auto logits =
          model->Forward({{sequences[session].get(), tokens, rows}});
      EXPECT_TRUE(logits.ok()) << logits.status();
      if (!logits.ok()) break;
      result.logits.insert(result.logits.end(), logits->begin(), logits->end());
    }
    result.launches = kernels::cuda::WideAttentionLaunches() - before;
    return result;
  }
  static void Skip(const std::string& why) { GTEST_SKIP() << why; }
};

TEST_P(CudaWideAttentionModelTest, HasTheLogitsOfTheOther) {
  const std::string folder = nacre::testing::TestFolder("wide_attention");
  nacre::testing::WriteTinyCheckpoint({.hidden_size = 64,
                                       .intermediate_size = 136,
                                       .num_hidden_layers = 2,
                                       .num_attention_heads = 8,
                                       .num_key_value_heads = 2,
                                       .head_dim = GetParam(),
                                       .dtype = kernels::DType::kBF16},
                                      folder);
  const Result expected = Run(folder, false);
  if (IsSkipped()) return;
  const Result actual = Run(folder, true);
  if (IsSkipped()) return;
  EXPECT_EQ(actual.logits, expected.logits);
  EXPECT_EQ(actual.numerics, expected.numerics);
  EXPECT_FALSE(expected.logits.empty());
  EXPECT_EQ(expected.launches, 0u);
  // Of each layer and of each prompt that fills a tile.
  EXPECT_EQ(actual.launches, 2u * 3);
}

INSTANTIATE_TEST_SUITE_P(All, CudaWideAttentionModelTest,
                         ::testing::Values(64, 128));

}  // namespace
}  // namespace nacre::model
