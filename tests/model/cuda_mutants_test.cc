// Bugs planted one at a time in CUDA source (tests/kernels/cuda/mutants.cmake):
// with each of them the emulated device gives other logits, or ends. Those that
// mistake experts, there and in expert_mutants.cmake, take logits so far from
// Hugging Face's that family_options_test.cc fails.

#include <sys/resource.h>

#include <bit>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/weight_type.h"
#include "model/load_model.h"
#include "tests/kernels/cuda/emulation/runtime.h"
#include "tests/model/expert_golden.h"
#include "tests/testing/child_run.h"
#include "tests/testing/mutant.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

// Of a small model.
struct ModelRun {
  std::string folder;
  std::vector<int> steps = {70, 1, 1, 9};  // rows of each
  std::vector<kernels::WeightType> weights = {kernels::WeightType::kBF16,
                                              kernels::WeightType::kInt8,
                                              kernels::WeightType::kInt4};
  bool persistent = false;      // steps of one or few rows are one kernel
  bool wide_attention = false;  // attention of prompts is by warpgroups
};

// Bits of its logits. A prompt takes wide tiles, or such as later devices have;
// several warps of attention have positions; the launches of single rows are
// recorded.
bool AppendLogits(const ModelRun& run, kernels::WeightType weights,
                  std::vector<uint32_t>* bits) {
  auto device = *kernels::cuda::Device::Open(0);
  auto staging = *kernels::cuda::Staging::Create(device.get());
  const kernels::CudaBackendOptions options = {
      .max_partial_bytes = 1 << 20,
      .persistent = run.persistent,
      .warpgroup_attention = run.wide_attention};
  const auto backend = std::make_unique<kernels::CudaBackend>(
      std::move(device), std::move(staging), weights, kernels::DType::kBF16,
      options);
  const auto model = *LoadModel(run.folder, backend.get(), {1 << 20, {}});
  const auto sequence = *model->NewSequence(400);
  int next = 0;
  for (const int rows : run.steps) {
    std::vector<int32_t> tokens(static_cast<size_t>(rows));
    for (int32_t& token : tokens) {
      token = next++ * 37 % model->info().vocab_size;
    }
    const auto logits = model->Forward({{sequence.get(), tokens, rows}});
    if (!logits.ok()) return false;
    for (const float logit : *logits) {
      bits->push_back(std::bit_cast<uint32_t>(logit));
    }
  }
  return true;
}

// On each kind of device.
std::vector<uint32_t> LogitsOf(const ModelRun& run) {
  std::vector<uint32_t> bits;
  if (run.persistent || run.wide_attention) {
    return AppendLogits(run, kernels::WeightType::kBF16, &bits)
               ? bits
               : std::vector<uint32_t>();
  }
  for (const int major : {9, 10}) {
    kernels::cuda::emulation::settings.major = major;
    for (const kernels::WeightType weights : run.weights) {
      if (!AppendLogits(run, weights, &bits)) return {};
    }
  }
  return bits;
}

// Of these, those that mistake experts, or the others.
std::vector<std::string> Mutants(const std::string& names, bool of_experts) {
  std::vector<std::string> found;
  for (const absl::string_view name : absl::StrSplit(names, ',')) {
    if (absl::StartsWith(name, "experts_") == of_experts)
      found.emplace_back(name);
  }
  return found;
}

// What may crash instead, and why. None of the others may: a bug that only
// happens to do so would hide that no logit shows it.
const std::set<std::string>& MayCrash() {
  static const auto& names = *new std::set<std::string>{
      // Threads take another phase's arguments, addresses among them.
      "persistent_phase_not_there_for_all",
      "persistent_slot_refilled_too_early",
  };
  return names;
}

class CudaMutants : public ::testing::TestWithParam<std::string> {
 protected:
  // Of the processor's time, where one may never end.
  static constexpr rlimit kMostSeconds = {10, 20};

  struct Case {
    std::string kind;  // how the mutant's name begins, of some
    ModelRun run;
  };

  // Limits: the product after attention needs more shared memory than those of
  // the same kernel before and after it, on a device that has little. (With
  // norms of heads the one before is of that kernel.) Last blocks: products
  // have four slices, also the head, so that logits show their order. Fused
  // kernels: contexts of one split and two, biases, two heads of keys.
  static Case CaseOf(const std::string& mutant) {
    Case found;
    ModelRun& run = found.run;
    run.folder = nacre::testing::TestFolder("mutants");
    for (const char* const kind :
         {"limit_", "last_", "fused_", "persistent_", "wide_attention_"}) {
      if (absl::StartsWith(mutant, kind)) found.kind = kind;
    }
    nacre::testing::TinyCheckpoint model = {.hidden_size = 64,
                                            .intermediate_size = 136,
                                            .num_hidden_layers = 1,
                                            .num_attention_heads = 16,
                                            .num_key_value_heads = 1,
                                            .head_dim = 64,
                                            .dtype = kernels::DType::kBF16};
    if (found.kind == "fused_") {
      model.architecture = "Qwen2ForCausalLM";
      model.num_attention_heads = 4;
      model.num_key_value_heads = 2;
      model.head_dim = 16;
      run.steps = {124, 9, 3, 1};
      run.weights = {kernels::WeightType::kBF16, kernels::WeightType::kFp8};
    } else if (found.kind == "persistent_") {
      model.num_hidden_layers = 2;
      model.num_attention_heads = 2;
      // Of several rows other warps than the first write results.
      run.steps = {130, 1, 1, 8, 8, 1, 1};
      run.persistent = true;
    } else if (found.kind == "wide_attention_") {
      // More steps of positions than a block has room for, tiles that begin
      // behind some, and more columns than a row of an operand has.
      run.steps = {70, 270};
      model.head_dim = 128;
      model.num_attention_heads = 4;
      run.wide_attention = true;
    } else if (!found.kind.empty()) {
      run.steps = {2, 1, 1};
    }
    if (found.kind == "last_") {
      model.hidden_size = 4096;
      model.num_attention_heads = 2;
    } else if (found.kind == "limit_") {
      model.architecture = "Qwen3ForCausalLM";
    }
    nacre::testing::WriteTinyCheckpoint(model, run.folder);
    return found;
  }

  // Runs the model in a new process: a planted bug may write anywhere, and the
  // emulated device remembers what it was told. The bits of the logits, nothing
  // where the device fails or the process ends, which it does in time.
  static nacre::testing::ChildRun Run(const std::string& mutant,
                                      const Case& of) {
    return nacre::testing::RunInChild([&](std::FILE* file) {
      active_mutant = mutant;
      if (of.kind == "limit_") {
        kernels::cuda::emulation::settings.shared_limit = 120 << 10;
      }
      if (of.run.persistent || of.run.wide_attention) {
        setrlimit(RLIMIT_CPU, &kMostSeconds);
      }
      const std::vector<uint32_t> bits = LogitsOf(of.run);
      std::fwrite(bits.data(), sizeof(uint32_t), bits.size(), file);
    });
  }

  // Without a bug.
  static std::string RightLogits(const Case& of) {
    const nacre::testing::ChildRun run = Run("", of);
    EXPECT_TRUE(run.finished()) << run.How();
    return run.output;
  }
};

TEST_P(CudaMutants, IsFound) {
  // By the kind of a case.
  static auto& all = *new std::map<std::string, std::string>();
  const Case of = CaseOf(GetParam());
  const auto [right, is_new] = all.try_emplace(of.kind);
  if (is_new) right->second = RightLogits(of);
  EXPECT_FALSE(right->second.empty());
  const nacre::testing::ChildRun run = Run(GetParam(), of);
  RecordProperty("ended", run.How());
  EXPECT_TRUE(!run.crashed() || MayCrash().count(GetParam()) == 1)
      << "crashed: " << run.How();
  EXPECT_TRUE(run.output != right->second) << run.How();  // bits: not to print
}

INSTANTIATE_TEST_SUITE_P(All, CudaMutants,
                         ::testing::ValuesIn(Mutants(NACRE_MUTANTS, false)),
                         [](const auto& info) { return info.param; });

TEST_F(CudaMutants, AreNotFoundWhereThereIsNone) {
  for (const std::string mutant :
       {"", "limit_", "last_", "fused_", "persistent_", "wide_attention_"}) {
    const Case of = CaseOf(mutant);
    const std::string right = RightLogits(of);
    EXPECT_GT(right.size(), 1000 * sizeof(uint32_t));
    EXPECT_TRUE(RightLogits(of) == right);
  }
}

class ExpertMutants : public ::testing::TestWithParam<std::string> {
 protected:
  // From Hugging Face, of float32 weights; of the model that shows it most.
  static float Difference(const std::string& mutant) {
    active_mutant = mutant;
    float largest = 0;
    for (const OptionGolden& golden : ExpertGoldens(23)) {
      const float difference = ExpertDifference(
          RunOnCuda(golden, kernels::WeightType::kF32), golden);
      if (!(difference <= largest)) largest = difference;
    }
    active_mutant = {};
    return largest;
  }
};

TEST_P(ExpertMutants, IsFound) {
  // A difference that is no number is found, too.
  EXPECT_FALSE(Difference(GetParam()) <= 1e-3f);
}

INSTANTIATE_TEST_SUITE_P(OfKernels, ExpertMutants,
                         ::testing::ValuesIn(Mutants(NACRE_MUTANTS, true)),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(OfTheHost, ExpertMutants,
                         ::testing::ValuesIn(Mutants(NACRE_EXPERT_MUTANTS,
                                                     true)),
                         [](const auto& info) { return info.param; });

TEST_F(ExpertMutants, AreNotFoundWhereThereIsNone) {
  EXPECT_LE(Difference(""), 1e-3f);
}

}  // namespace
}  // namespace nacre::model
