// Kernels that do what others would after them move no bit of a model's logits,
// whatever a layer is made of. On the emulated device, and on a GPU where there
// is one.

#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "model/load_model.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

struct Case {
  const char* name;
  nacre::testing::TinyCheckpoint model;
  const char* kv_type = "bf16";
};

// Steps of prompts and of few rows, behind one split of a context and two.
constexpr int kSteps[] = {120, 1, 5, 16, 9, 20};

class FusionTest : public ::testing::TestWithParam<Case> {
 protected:
  // Null: no GPU.
  static std::unique_ptr<kernels::Backend> Backend(const char* weights,
                                                   bool fusion) {
    kernels::BackendOptions options;
    options.kind = "cuda";
    options.weights = weights;
    options.kv_type = GetParam().kv_type;
    options.fusion = fusion;
    auto backend = kernels::CreateBackend(options);
#ifndef NACRE_EMULATED_CUDA
    if (absl::IsFailedPrecondition(backend.status())) return nullptr;
#endif
    EXPECT_TRUE(backend.ok()) << backend.status();
    return *std::move(backend);
  }

  // The bits of all logits.
  static std::vector<uint32_t> Logits(const std::string& folder,
                                      kernels::Backend* backend) {
    const auto model = *LoadModel(folder, backend, {1 << 20, {}});
    const auto sequence = *model->NewSequence(200);
    std::vector<uint32_t> bits;
    int next = 0;
    for (const int rows : kSteps) {
      std::vector<int32_t> tokens(static_cast<size_t>(rows));
      for (int32_t& token : tokens) {
        token = next++ * 37 % model->info().vocab_size;
      }
      const auto logits = model->Forward({{sequence.get(), tokens, rows}});
      EXPECT_TRUE(logits.ok()) << logits.status();
      if (!logits.ok()) break;
      for (const float logit : *logits) {
        bits.push_back(std::bit_cast<uint32_t>(logit));
      }
    }
    return bits;
  }
};

TEST_P(FusionTest, MovesNoBit) {
  const std::string folder = nacre::testing::TestFolder("fusion");
  nacre::testing::WriteTinyCheckpoint(GetParam().model, folder);
  for (const char* const weights : {"bf16", "int8", "fp8", "int4"}) {
    const auto apart = Backend(weights, false);
    if (apart == nullptr) GTEST_SKIP() << "no CUDA device";
    const std::vector<uint32_t> expected = Logits(folder, apart.get());
    EXPECT_GT(expected.size(), 1000u);
    EXPECT_EQ(Logits(folder, Backend(weights, true).get()), expected)
        << weights;
  }
}

// With slices: of the first products, or of down.
INSTANTIATE_TEST_SUITE_P(
    Models, FusionTest,
    ::testing::Values(Case{"Llama",
                           {.hidden_size = 64,
                            .intermediate_size = 136,
                            .num_attention_heads = 4,
                            .num_key_value_heads = 2,
                            .head_dim = 32}},
                      Case{"Float32KeysAndValues",
                           {.hidden_size = 64,
                            .intermediate_size = 136,
                            .num_attention_heads = 3,
                            .num_key_value_heads = 1,
                            .head_dim = 48},
                           "f32"},
                      Case{"SlicesOfTheFirstProducts",
                           {.hidden_size = 2048,
                            .intermediate_size = 24,
                            .num_hidden_layers = 1,
                            .num_attention_heads = 2,
                            .num_key_value_heads = 1,
                            .head_dim = 16}},
                      Case{"SlicesOfDown",
                           {.hidden_size = 40,
                            .intermediate_size = 2048,
                            .num_hidden_layers = 1,
                            .num_attention_heads = 2,
                            .num_key_value_heads = 1,
                            .head_dim = 64}},
                      Case{"NothingInPairs", {}},
                      Case{"BiasesOfQueries",
                           {.architecture = "Qwen2ForCausalLM",
                            .hidden_size = 64,
                            .intermediate_size = 136,
                            .num_attention_heads = 4,
                            .num_key_value_heads = 2,
                            .head_dim = 16}},
                      Case{"NormsOfHeads",
                           {.architecture = "Qwen3ForCausalLM",
                            .hidden_size = 64,
                            .intermediate_size = 136,
                            .num_attention_heads = 4,
                            .num_key_value_heads = 2,
                            .head_dim = 32}}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace nacre::model
