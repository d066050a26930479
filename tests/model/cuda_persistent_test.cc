// Steps as one kernel (kernels/cuda/persistent_steps.h) have the bits of the
// kernels that it stands for: on a GPU, and on the emulated device, where
// blocks of that kernel go on in any order, some far ahead of others.

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "model/load_model.h"
#include "tests/testing/tiny_checkpoint.h"
#ifdef NACRE_EMULATED_CUDA
#include <sys/wait.h>

#include <cstdlib>
#include <set>

#include "tests/kernels/cuda/emulation/runtime.h"
#endif

namespace nacre::model {
namespace {

#ifdef NACRE_EMULATED_CUDA
namespace emulation = kernels::cuda::emulation;
#endif

using Logits = std::vector<float>;

struct Case {
  const char* name;
  nacre::testing::TinyCheckpoint checkpoint;
  int prompt = 70;          // rows of a step that is none
  std::vector<int> steps;   // rows of those after it
  int multiprocessors = 6;  // of an emulated device
};

struct Model {
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<LanguageModel> model;
};

class PersistentTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
#ifdef NACRE_EMULATED_CUDA
    emulation::ResetDevice();
    emulation::settings.multiprocessors = GetParam().multiprocessors;
#endif
    nacre::testing::TinyCheckpoint checkpoint = GetParam().checkpoint;
    checkpoint.dtype = kernels::DType::kBF16;
    nacre::testing::WriteTinyCheckpoint(checkpoint, dir_);
    kernel_by_kernel_ = Load(false);
    if (kernel_by_kernel_.backend == nullptr) return;
    persistent_ = Load(true);
  }
#ifdef NACRE_EMULATED_CUDA
  void TearDown() override { emulation::ResetDevice(); }
#endif

  // Empty, and the test is skipped, where there is no device.
  Model Load(bool persistent) {
    kernels::BackendOptions options;
    options.kind = "cuda";
    options.kv_type = "bf16";
    options.persistent = persistent;
    Model loaded;
    auto backend = kernels::CreateBackend(options);
    if (!backend.ok()) {
      Skip(std::string(backend.status().message()));
      return loaded;
    }
    loaded.backend = *std::move(backend);
    loaded.model = *LoadModel(dir_, loaded.backend.get(), {1 << 20, {}});
    return loaded;
  }
  static void Skip(const std::string& why) { GTEST_SKIP() << why; }

  // Of the rows of a session's steps: a prompt, and those after it.
  static Logits LogitsOf(const Model& of, int first_token = 0) {
    const auto sequence = *of.model->NewSequence(400);
    Logits all;
    int next = first_token;
    const auto step = [&](int rows) {
      std::vector<int32_t> tokens(static_cast<size_t>(rows));
      for (int32_t& token : tokens) {
        token = next++ * 37 % of.model->info().vocab_size;
      }
      const auto logits = of.model->Forward({{sequence.get(), tokens, rows}});
      if (logits.ok()) all.insert(all.end(), logits->begin(), logits->end());
      return logits.ok();
    };
    if (GetParam().prompt > 0 && !step(GetParam().prompt)) return {};
    for (const int rows : GetParam().steps) {
      if (!step(rows)) return {};
    }
    return all;
  }

  const std::string dir_ = nacre::testing::TestFolder("persistent");
  Model kernel_by_kernel_;
  Model persistent_;
};

TEST_P(PersistentTest, HasTheBitsOfItsKernels) {
  constexpr int kTimes = 3;
  const Logits truth = LogitsOf(kernel_by_kernel_);
  ASSERT_FALSE(truth.empty());
  for (int i = 0; i < kTimes; ++i) {
#ifdef NACRE_EMULATED_CUDA
    emulation::SeedOverlap(static_cast<uint32_t>(i));
#endif
    EXPECT_EQ(LogitsOf(persistent_), truth) << i;
  }
  const kernels::GraphCounts counts = persistent_.backend->graph_counts();
  EXPECT_EQ(counts.persistent, kTimes * GetParam().steps.size());
  EXPECT_EQ(counts.plain + counts.captured + counts.replayed, 0u);
  EXPECT_EQ(kernel_by_kernel_.backend->graph_counts().persistent, 0u);
  EXPECT_EQ(persistent_.backend->numerics_id(),
            kernel_by_kernel_.backend->numerics_id());
#ifdef NACRE_EMULATED_CUDA
  EXPECT_EQ(emulation::counts.cooperative_launches,
            static_cast<int>(counts.persistent));
#endif
}

// With biases, and outputs that are taken in pairs (kernels/cuda/gemm_pairs.h).
const nacre::testing::TinyCheckpoint kPairs = {
    .architecture = "Qwen2ForCausalLM",
    .intermediate_size = 136,
    .num_attention_heads = 4,
    .num_key_value_heads = 2,
    .head_dim = 16};

#ifdef NACRE_EMULATED_CUDA

using PersistentWaitsTest = PersistentTest;

// Of every phase, whose blocks then begin before those of the phase before are
// done.
TEST_P(PersistentWaitsTest, OneThatIsMissingIsNoticed) {
  const Logits right = LogitsOf(persistent_);
  const std::set<const unsigned*> counts = emulation::counts.waited_for;
  EXPECT_GE(counts.size(), 8u);
  const auto finds = [&](const unsigned* count, uint32_t seed) {
    // What is stale would be right again.
    emulation::settings.late_count = nullptr;
    LogitsOf(persistent_, 1);
    emulation::settings.late_count = count;
    emulation::SeedOverlap(seed);
    return LogitsOf(persistent_) != right;
  };
  const auto is_noticed = [](int status) {
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
  };
  EXPECT_FALSE(finds(nullptr, 1));
  for (const unsigned* const count : counts) {
    // In a process of its own: what is stale may be an address.
    EXPECT_EXIT(
        {
          bool found = false;
          for (uint32_t seed = 1; !found && seed <= 20; ++seed) {
            found = finds(count, seed);
          }
          std::_Exit(found ? 1 : 0);
        },
        is_noticed, "");
  }
}

// Each kind of phase but norms of heads: the next phase that touches the same
// head is the same block's, so that one of the two waits could be missing.
const Case kWaitCases[] = {
    {.name = "Slices",
     .checkpoint = {.intermediate_size = 2048},
     .prompt = 130,
     .steps = {1}},
    {.name = "Biases",
     .checkpoint = {.architecture = "Qwen2ForCausalLM"},
     .prompt = 0,
     .steps = {1, 1}},
    // Products that norm, gate and turn; of 9 rows they do not norm.
    {.name = "Pairs", .checkpoint = kPairs, .prompt = 130, .steps = {1}},
    {.name = "PairsOfManyRows",
     .checkpoint = kPairs,
     .prompt = 130,
     .steps = {9},
     .multiprocessors = 12},
};

INSTANTIATE_TEST_SUITE_P(Models, PersistentWaitsTest,
                         ::testing::ValuesIn(kWaitCases),
                         [](const auto& info) { return info.param.name; });

#endif

// Heads of 64 and of 128, whose queries fill one warp or two; products of more
// than 8 rows; contexts of one split and of two.
const Case kCases[] = {
    {.name = "Small",
     .checkpoint = {.hidden_size = 64,
                    .intermediate_size = 136,
                    .num_attention_heads = 2,
                    .num_key_value_heads = 1,
                    .head_dim = 64},
     .steps = {1, 1, 2, 1}},
    // Sizes that fill nothing.
    {.name = "Odd", .prompt = 130, .steps = {1, 3, 1}, .multiprocessors = 8},
    {.name = "Wide",
     .checkpoint = {.hidden_size = 256,
                    .intermediate_size = 520,
                    .num_attention_heads = 8,
                    .num_key_value_heads = 2,
                    .head_dim = 128},
     .prompt = 120,
     .steps = {5, 2, 8, 1},
     .multiprocessors = 20},
    {.name = "ManyRows",
     .checkpoint = {.num_attention_heads = 2, .num_key_value_heads = 1},
     .steps = {9, 16, 1},
     .multiprocessors = 12},
    // The last block of some outputs adds the slices of down.
    {.name = "Slices",
     .checkpoint = {.hidden_size = 64, .intermediate_size = 2048},
     .steps = {1, 2}},
    {.name = "Pairs", .checkpoint = kPairs, .steps = {1, 3, 9, 16}},
    // Products of pairs that have slices; from 5 rows on they do not norm.
    {.name = "PairsInSlices",
     .checkpoint = {.hidden_size = 4096,
                    .intermediate_size = 136,
                    .num_attention_heads = 2,
                    .num_key_value_heads = 1,
                    .head_dim = 64},
     .steps = {1, 5, 9}},
    // Norms of more than one turn of a block.
    {.name = "LongRows", .checkpoint = {.hidden_size = 1160}, .steps = {1, 2}},
    {.name = "LongerRows",
     .checkpoint = {.hidden_size = 4168, .num_hidden_layers = 1},
     .steps = {1}},
    // Biases of queries, keys and values.
    {.name = "Qwen2",
     .checkpoint = {.architecture = "Qwen2ForCausalLM"},
     .steps = {1, 2, 1}},
    // Norms of heads.
    {.name = "Qwen3",
     .checkpoint = {.architecture = "Qwen3ForCausalLM"},
     .steps = {1, 2, 1}},
    // Several blocks of the grid for each that there is.
    {.name = "FewMultiprocessors", .steps = {1, 1}, .multiprocessors = 3},
};

INSTANTIATE_TEST_SUITE_P(Models, PersistentTest, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

// Of the bundled pair too, which runs with it on GPUs (scripts/gpu_run.sh).
TEST(PersistentPairTest, AllSingleRowsAreOneKernel) {
  for (const std::string name : {"draft", "target"}) {
    kernels::BackendOptions options;
    options.kind = "cuda";
    options.kv_type = "bf16";
    options.persistent = true;
    const auto backend = kernels::CreateBackend(options);
    if (!backend.ok()) GTEST_SKIP() << backend.status();
    const auto model =
        *LoadModel(NACRE_MODELS "/" + name, backend->get(), {1 << 20, {}});
    const auto sequence = *model->NewSequence(20);
    constexpr int kSteps = 4;
    for (int32_t token = 0; token < kSteps; ++token) {
      ASSERT_TRUE(model->Forward({{sequence.get(), {&token, 1}, 1}}).ok());
    }
    EXPECT_EQ((*backend)->graph_counts().persistent, kSteps) << name;
  }
}

}  // namespace
}  // namespace nacre::model
