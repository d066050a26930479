// Every kernel of a step waits for the one before: where one does so too late,
// tokens or logits are others. On the emulated device, which starts kernels as
// early as a GPU may.

#include <sys/wait.h>

#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "model/load_model.h"
#include "tests/kernels/cuda/emulation/runtime.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

namespace emulation = kernels::cuda::emulation;

struct Case {
  const char* name;
  const char* weights;
  const char* kv;  // type of keys and values
  int intermediate_size;
  int head_dim;
  int prompt;
  size_t least_kernels;  // that follow another kernel
};

class OverlapTest : public ::testing::TestWithParam<Case> {
 protected:
  OverlapTest() {
    emulation::ResetDevice();
    const std::string dir = nacre::testing::TestFolder("overlap");
    nacre::testing::WriteTinyCheckpoint(
        {.intermediate_size = GetParam().intermediate_size,
         .head_dim = GetParam().head_dim},
        dir);
    kernels::BackendOptions options;
    options.kind = "cuda";
    options.weights = GetParam().weights;
    options.kv_type = GetParam().kv;
    backend_ = *kernels::CreateBackend(options);
    model_ = *LoadModel(dir, backend_.get(), {1 << 20, {}});
  }
  ~OverlapTest() override { emulation::ResetDevice(); }

  // All that the steps of one session give: of a prompt, of single rows and of
  // several that are drawn.
  // `late`: the kernel whose waits do nothing.
  std::vector<float> Results(const void* late = nullptr) {
    emulation::ResetDevice();
    emulation::settings.late_wait = late;
    const auto sequence = *model_->NewSequence(200);
    std::vector<float> results;
    int next = 0;
    const auto step = [&](int rows, int num_logits, bool drawn) {
      std::vector<int32_t> tokens;
      std::vector<absl::optional<TokenDraw>> draws;
      for (int i = 0; i < rows; ++i, ++next) {
        tokens.push_back(next * 37 % model_->info().vocab_size);
        if (drawn) {
          draws.push_back(TokenDraw{1, next, 1.0f, model_->info().vocab_size});
        }
      }
      const auto logits =
          model_->Forward({{sequence.get(), tokens, num_logits, draws}});
      if (!logits.ok()) std::abort();
      results.insert(results.end(), logits->begin(), logits->end());
      const auto ids = model_->drawn_tokens();
      results.insert(results.end(), ids.begin(), ids.end());
    };
    step(GetParam().prompt, 1, false);
    for (int i = 0; i < 2; ++i) step(1, 1, false);
    for (int i = 0; i < 4; ++i) step(6, 6, true);
    return results;
  }

  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<LanguageModel> model_;
};

TEST_P(OverlapTest, AWaitThatComesTooLateIsNoticed) {
  const std::vector<float> right = Results();
  const std::set<const void*> kernels = emulation::counts.early_kernels;
  EXPECT_EQ(Results(), right);
  EXPECT_GE(kernels.size(), GetParam().least_kernels);
  const auto is_noticed = [](int status) {
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
  };
  for (const void* const kernel : kernels) {
    // In a process of its own: what is stale may be an address.
    EXPECT_EXIT(std::_Exit(Results(kernel) == right ? 0 : 1), is_noticed, "")
        << kernel;
  }
}

// Prompts are longer than a split of attention. The last product of a wide
// layer is in slices: of a prompt a kernel adds them, of few rows the last
// block does. Products of outputs in pairs gate and turn.
INSTANTIATE_TEST_SUITE_P(
    Cases, OverlapTest,
    ::testing::Values(Case{"F32", "f32", "f32", 100, 10, 130, 8},
                      Case{"BF16", "bf16", "bf16", 100, 10, 130, 13},
                      Case{"Slices", "bf16", "bf16", 2048, 10, 20, 11},
                      Case{"Pairs", "bf16", "bf16", 104, 16, 130, 14},
                      Case{"PairsOfInt8", "int8", "bf16", 104, 16, 130, 14},
                      Case{"PairsOfInt4", "int4", "bf16", 104, 16, 130, 14},
                      Case{"PairsOfFp8", "fp8", "bf16", 104, 16, 130, 14}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace nacre::model
