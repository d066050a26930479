// Two layers of Llama-3-8B's shape on the cuda backend against the reference
// backend, whose sums are in double. On the emulated device, which is slow, a
// narrow model instead: there the test itself is what is tested.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "model/language_model.h"
#include "tests/benchmarks/random_llama.h"

namespace nacre::model {
namespace {

#ifdef NACRE_EMULATED_CUDA
constexpr LlamaShape kShape = {256, 896, 2, 4, 1, 64, 300, 256};
#else
constexpr LlamaShape kShape = {4096, 14336, 2, 32, 8, 128, 1000, 512};
#endif
constexpr int kPrompt = 20;  // the reference takes half a second a row
constexpr int kSteps = 3;

std::vector<int32_t> Prompt() {
  std::vector<int32_t> ids(kPrompt);
  for (int i = 0; i < kPrompt; ++i) ids[i] = (i * i + 7) % kShape.vocab;
  return ids;
}

std::vector<float> Forward(LanguageModel& model, SequenceRows rows) {
  const auto logits = model.Forward({&rows, 1});
  EXPECT_TRUE(logits.ok()) << logits.status();
  return {logits->begin(), logits->end()};
}

// Logits behind the prompt, and of the last rows one by one, of each.
struct Logits {
  std::vector<float> prompt;
  std::vector<float> steps;
};

absl::StatusOr<std::unique_ptr<kernels::Backend>> MakeBackend(
    const std::string& kind, const std::string& weights) {
  kernels::BackendOptions options;
  options.kind = kind;
  options.weights = weights;
  options.kv_type = "bf16";
  return kernels::CreateBackend(options);
}

Logits LogitsOn(kernels::Backend& backend) {
  backend.BindComputeThread();
  const RandomLlama llama(kShape, kernels::DType::kBF16);
  const auto model = llama.Load(&backend, {int64_t{64} << 20, {}});
  EXPECT_TRUE(model.ok()) << model.status();
  const auto sequence = (*model)->NewSequence(kShape.context);
  EXPECT_TRUE(sequence.ok()) << sequence.status();
  const std::vector<int32_t> ids = Prompt();
  Logits logits;
  logits.prompt =
      Forward(**model,
              {.sequence = sequence->get(), .token_ids = ids, .num_logits = 2});
  for (int i = 0; i < kSteps; ++i) {
    const auto step = Forward(**model, {.sequence = sequence->get(),
                                        .token_ids = {&ids[i], 1},
                                        .num_logits = 1});
    logits.steps.insert(logits.steps.end(), step.begin(), step.end());
  }
  return logits;
}

void ExpectNear(const std::vector<float>& actual,
                const std::vector<float>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  float largest = 0;
  for (const float logit : expected) {
    largest = std::max(largest, std::fabs(logit));
  }
  ASSERT_GT(largest, 0);
  // Activations are rounded to bf16 before each product, here as there.
  double squares = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], 0.05f * largest) << i;
    squares += std::pow(double{actual[i]} - expected[i], 2);
  }
  EXPECT_LT(std::sqrt(squares / static_cast<double>(actual.size())),
            0.01 * largest);
}

class CudaShapeTest : public ::testing::TestWithParam<const char*> {};

TEST_P(CudaShapeTest, IsNearTheReference) {
  const auto cuda = MakeBackend("cuda", GetParam());
  if (!cuda.ok()) GTEST_SKIP() << cuda.status();
  const auto reference = MakeBackend("reference", GetParam());
  ASSERT_TRUE(reference.ok()) << reference.status();
  const Logits actual = LogitsOn(**cuda);
  const Logits expected = LogitsOn(**reference);
  ExpectNear(actual.prompt, expected.prompt);
  ExpectNear(actual.steps, expected.steps);
}

INSTANTIATE_TEST_SUITE_P(Weights, CudaShapeTest,
                         ::testing::Values("bf16", "int8"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace nacre::model
