// The bundled pair on the cuda backend says what it says on the CPU, where both
// round activations to bf16 or one clearly prefers a token; a step neither
// waits nor uploads more than it must; a device that fails does so in a Status.
// On the emulated device.

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "model/llama_model.h"
#include "nlohmann/json.hpp"
#include "tests/kernels/cuda/emulation/runtime.h"
#include "tokenizer/tokenizer.h"

namespace nacre::model {
namespace {

namespace emulation = kernels::cuda::emulation;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::unique_ptr<kernels::Backend> MakeBackend(const std::string& kind,
                                              const std::string& kv_type) {
  kernels::BackendOptions options;
  options.kind = kind;
  options.kv_type = kv_type;
  return *kernels::CreateBackend(options);
}

std::unique_ptr<LlamaModel> Load(const std::string& name,
                                 kernels::Backend* backend) {
  auto model = LlamaModel::Load(std::string(NACRE_MODELS "/") + name, backend,
                                {4 << 20, {}});
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

std::vector<std::vector<int32_t>> Prompts(const std::string& model, int count) {
  const auto tokenizer =
      tokenizer::LoadTokenizer(std::string(NACRE_MODELS "/") + model);
  EXPECT_TRUE(tokenizer.ok());
  std::ifstream file(NACRE_TEST_DATA "/gsm8k_100.jsonl");
  std::vector<std::vector<int32_t>> prompts;
  std::string line;
  while (static_cast<int>(prompts.size()) < count && std::getline(file, line)) {
    prompts.push_back(
        *(*tokenizer)
             ->Encode(
                 nlohmann::json::parse(line)["prompt"].get<std::string>()));
  }
  return prompts;
}

// The first of the largest.
int32_t Largest(absl::Span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) -
                              logits.begin());
}

class CudaModelTest : public ::testing::Test {
 protected:
  CudaModelTest() { emulation::ResetDevice(); }
  ~CudaModelTest() override { emulation::ResetDevice(); }
};

// Both are fed what the CPU says, several rows a step. Where the largest logits
// are of different tokens, the CPU has them closer together than the two
// devices' logits are apart.
void ExpectSaysTheSame(const std::string& name, const std::string& kv_type,
                       int num_prompts, int num_tokens) {
  const auto cpu_backend = MakeBackend("cpu", kv_type);
  const auto cuda_backend = MakeBackend("cuda", kv_type);
  const auto cpu = Load(name, cpu_backend.get());
  const auto cuda = Load(name, cuda_backend.get());
  const size_t vocab = static_cast<size_t>(cpu->info().vocab_size);
  int compared = 0;
  int different = 0;
  for (const std::vector<int32_t>& prompt : Prompts(name, num_prompts)) {
    const int length = static_cast<int>(prompt.size()) + num_tokens;
    const auto cpu_sequence = *cpu->NewSequence(length);
    std::vector<int32_t> tokens = prompt;
    std::vector<std::vector<float>> expected;
    absl::Span<const int32_t> fed = tokens;
    for (int i = 0; i < num_tokens; ++i) {
      const auto logits = cpu->Forward({{cpu_sequence.get(), fed, 1}});
      ASSERT_TRUE(logits.ok());
      expected.emplace_back(logits->begin(), logits->end());
      tokens.push_back(Largest(*logits));
      fed = absl::MakeConstSpan(tokens).last(1);
    }
    const auto cuda_sequence = *cuda->NewSequence(length);
    const auto first = absl::MakeConstSpan(tokens).first(prompt.size() - 1);
    ASSERT_TRUE(cuda->Forward({{cuda_sequence.get(), first, 0}}).ok());
    const auto rest = absl::MakeConstSpan(tokens).subspan(
        first.size(), static_cast<size_t>(num_tokens));
    const auto actual =
        cuda->Forward({{cuda_sequence.get(), rest, num_tokens}});
    ASSERT_TRUE(actual.ok()) << actual.status();
    for (int i = 0; i < num_tokens; ++i) {
      const auto row = actual->subspan(static_cast<size_t>(i) * vocab, vocab);
      const std::vector<float>& truth = expected[static_cast<size_t>(i)];
      float apart = 0;
      float largest = 0;
      for (size_t id = 0; id < vocab; ++id) {
        apart = std::max(apart, std::abs(row[id] - truth[id]));
        largest = std::max(largest, std::abs(truth[id]));
      }
      // Each product's inputs are rounded to 8 bits.
      ASSERT_LE(apart, 0.02f * largest) << name << ", token " << i;
      const size_t best = static_cast<size_t>(Largest(truth));
      const size_t other = static_cast<size_t>(Largest(row));
      ASSERT_LE(truth[best] - truth[other], 2 * apart);
      different += best != other;
      ++compared;
    }
  }
  EXPECT_EQ(compared, num_prompts * num_tokens);
  EXPECT_LE(different, compared / 10);
}

TEST_F(CudaModelTest, TheDraftSaysWhatItSaysOnTheCpu) {
  ExpectSaysTheSame("draft", "f32", 3, 16);
}

TEST_F(CudaModelTest, TheTargetSaysWhatItSaysOnTheCpu) {
  ExpectSaysTheSame("target", "bf16", 2, 16);
}

TEST_F(CudaModelTest, AStepUploadsItsRowsOnceAndWaitsAtItsEnd) {
  const auto backend = MakeBackend("cuda", "f32");
  const auto model = Load("draft", backend.get());
  const auto first = *model->NewSequence(40);
  const auto second = *model->NewSequence(40);
  const std::vector<int32_t> tokens = {1, 5, 9, 33};
  ASSERT_TRUE(
      model->Forward({{first.get(), tokens, 1}, {second.get(), tokens, 4}})
          .ok());
  emulation::counts.uploads = 0;
  emulation::counts.waits = 0;
  const auto logits =
      model->Forward({{first.get(), tokens, 1}, {second.get(), tokens, 4}});
  ASSERT_TRUE(logits.ok());
  // Token ids, cosines, sines, where rows stand; their tiles are as before.
  EXPECT_EQ(emulation::counts.uploads, 4);
  EXPECT_EQ(emulation::counts.waits, 2);  // the logits, and Synchronize
}

TEST_F(CudaModelTest, AFailingDeviceFailsTheStepAndChangesNoLength) {
  const auto backend = MakeBackend("cuda", "f32");
  const auto model = Load("draft", backend.get());
  const auto sequence = *model->NewSequence(40);
  const std::vector<int32_t> tokens = {1, 5, 9};
  ASSERT_TRUE(model->Forward({{sequence.get(), tokens, 1}}).ok());
  emulation::settings.fault = cudaErrorIllegalAddress;
  const auto failed = model->Forward({{sequence.get(), tokens, 1}});
  EXPECT_EQ(failed.status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(sequence->length(), 3);
  emulation::settings.fault = cudaSuccess;
  EXPECT_FALSE(model->Forward({{sequence.get(), tokens, 1}}).ok());
}

TEST_F(CudaModelTest, WeightsThatDoNotFitSayWhichAndHowMuch) {
  const auto backend = MakeBackend("cuda", "f32");
  emulation::settings.memory_bytes = emulation::counts.used_bytes + (1 << 20);
  const auto model =
      LlamaModel::Load(NACRE_MODELS "/target", backend.get(), {4 << 20, {}});
  EXPECT_EQ(model.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(model.status().message()),
              AllOf(HasSubstr("model.embed_tokens.weight: no room for"),
                    HasSubstr("are free")));
}

}  // namespace
}  // namespace nacre::model
