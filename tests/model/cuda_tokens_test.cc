// The bundled pair on the cuda backend says what it says on the CPU: where they
// say different things, the two tokens were nearly as likely. On the emulated
// device a few prompts; on a GPU, where there is one, all of them.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "common/json.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "model/load_model.h"
#include "tokenizer/tokenizer.h"

namespace nacre::model {
namespace {

#ifdef NACRE_EMULATED_CUDA
constexpr int kPrompts = 3;
constexpr int kTokens = 16;
#else
constexpr int kPrompts = 100;
constexpr int kTokens = 64;
#endif

// Null where there is no GPU.
std::unique_ptr<kernels::Backend> MakeBackend(
    const std::string& kind, const std::string& kv_type,
    const std::string& weights = "auto") {
  kernels::BackendOptions options;
  options.weights = weights;
  options.kind = kind;
  options.kv_type = kv_type;
  auto backend = kernels::CreateBackend(options);
#ifndef NACRE_EMULATED_CUDA
  if (absl::IsFailedPrecondition(backend.status())) return nullptr;
#endif
  EXPECT_TRUE(backend.ok()) << backend.status();
  return *std::move(backend);
}

std::unique_ptr<LanguageModel> Load(const std::string& name,
                                    kernels::Backend* backend) {
  auto model =
      LoadModel(std::string(NACRE_MODELS "/") + name, backend, {8 << 20, {}});
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

std::unique_ptr<tokenizer::Tokenizer> Tokenizer() {
  auto tokenizer = tokenizer::LoadTokenizer(NACRE_MODELS "/target");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

std::vector<std::vector<int32_t>> Prompts(
    const tokenizer::Tokenizer& tokenizer) {
  std::ifstream file(NACRE_TEST_DATA "/gsm8k_100.jsonl");
  std::vector<std::vector<int32_t>> prompts;
  std::string line;
  while (static_cast<int>(prompts.size()) < kPrompts &&
         std::getline(file, line)) {
    prompts.push_back(*tokenizer.Encode(
        nlohmann::json::parse(line)["prompt"].get<std::string>()));
  }
  EXPECT_EQ(static_cast<int>(prompts.size()), kPrompts);
  return prompts;
}

// The first of the largest.
int32_t Largest(absl::Span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) -
                              logits.begin());
}

// A prompt, the tokens that a model gives after it, and their logits.
struct Answer {
  std::vector<int32_t> tokens;
  std::vector<std::vector<float>> logits;
};

Answer Generate(LanguageModel* model, const std::vector<int32_t>& prompt) {
  Answer answer = {prompt, {}};
  const auto sequence =
      *model->NewSequence(static_cast<int>(prompt.size()) + kTokens);
  absl::Span<const int32_t> fed = answer.tokens;
  for (int i = 0; i < kTokens; ++i) {
    const auto logits = model->Forward({{sequence.get(), fed, 1}});
    EXPECT_TRUE(logits.ok()) << logits.status();
    answer.logits.emplace_back(logits->begin(), logits->end());
    answer.tokens.push_back(Largest(*logits));
    fed = absl::MakeConstSpan(answer.tokens).last(1);
  }
  return answer;
}

class CudaTokensTest : public ::testing::Test {
 protected:
  // Both are fed what the CPU says, on the GPU several rows a step. Where the
  // largest logits are of different tokens, the CPU has them closer together
  // than the two devices' logits are apart, which is at most `bound` of the
  // largest, by default for products whose inputs are rounded to 8 bits. Of
  // `most_different` percent of the tokens they are different.
  void ExpectSaysTheSame(const std::string& name, const std::string& kv_type,
                         const std::string& weights = "auto",
                         float bound = 0.02f, int most_different = 10) {
    const auto cuda_backend = MakeBackend("cuda", kv_type, weights);
    if (cuda_backend == nullptr) GTEST_SKIP() << "no CUDA device";
    const auto cpu_backend = MakeBackend("cpu", kv_type);
    const auto cpu = Load(name, cpu_backend.get());
    const auto cuda = Load(name, cuda_backend.get());
    const auto tokenizer = Tokenizer();
    int prompt = 0;
    for (const std::vector<int32_t>& token_ids : Prompts(*tokenizer)) {
      SCOPED_TRACE(::testing::Message() << name << ", prompt " << prompt);
      Compare(prompt++, Generate(cpu.get(), token_ids), cuda.get(), *tokenizer,
              bound);
      if (HasFatalFailure()) return;
    }
    std::printf(
        "%s, %s weights, %s KV: %d tokens, %d near-ties told otherwise, "
        "logits at most %.2g of the largest apart\n",
        name.c_str(), weights.c_str(), kv_type.c_str(), compared_, different_,
        apart_);
    RecordProperty("tokens", compared_);
    RecordProperty("near_ties", different_);
    RecordProperty("apart", std::to_string(apart_));
    EXPECT_LE(different_, compared_ * most_different / 100);
  }

 private:
  void Compare(int prompt, const Answer& cpu, LanguageModel* cuda,
               const tokenizer::Tokenizer& tokenizer, float bound) {
    const int length = static_cast<int>(cpu.tokens.size());
    const auto sequence = *cuda->NewSequence(length);
    const auto tokens = absl::MakeConstSpan(cpu.tokens);
    const auto first = tokens.first(cpu.tokens.size() - kTokens - 1);
    ASSERT_TRUE(cuda->Forward({{sequence.get(), first, 0}}).ok());
    const auto actual = cuda->Forward(
        {{sequence.get(), tokens.subspan(first.size(), kTokens), kTokens}});
    ASSERT_TRUE(actual.ok()) << actual.status();
    for (size_t i = 0; i < kTokens; ++i) {
      const std::vector<float>& truth = cpu.logits[i];
      const auto row = actual->subspan(i * truth.size(), truth.size());
      float apart = 0;
      float largest = 0;
      for (size_t id = 0; id < truth.size(); ++id) {
        // So that a NaN is one of the checks below.
        apart = std::fmax(apart, std::abs(row[id] - truth[id]));
        ASSERT_TRUE(std::isfinite(row[id])) << "token " << i;
        largest = std::max(largest, std::abs(truth[id]));
      }
      ASSERT_LE(apart, bound * largest) << "token " << i;
      apart_ = std::max(apart_, static_cast<double>(apart / largest));
      ++compared_;
      const int32_t best = Largest(truth);
      const int32_t other = Largest(row);
      if (best == other) continue;
      ++different_;
      const float behind =
          truth[static_cast<size_t>(best)] - truth[static_cast<size_t>(other)];
      std::printf(
          "near-tie: prompt %d, token %zu: \"%s\" on the CPU, \"%s\" on "
          "the GPU, %.4f behind there; logits up to %.4f apart\n",
          prompt, i, std::string(tokenizer.IdToPiece(best)).c_str(),
          std::string(tokenizer.IdToPiece(other)).c_str(), behind, apart);
      ASSERT_LE(behind, 2 * apart) << "token " << i;
    }
  }

  int compared_ = 0;
  int different_ = 0;
  double apart_ = 0;  // of the largest logit
};

TEST_F(CudaTokensTest, TheDraftSaysWhatItSaysOnTheCpu) {
  ExpectSaysTheSame("draft", "f32");
}

TEST_F(CudaTokensTest, TheTargetSaysWhatItSaysOnTheCpu) {
  ExpectSaysTheSame("target", "bf16");
}

// Weights have up to 7 significant bits.
TEST_F(CudaTokensTest, TheTargetSaysNearlyTheSameWithInt8Weights) {
  ExpectSaysTheSame("target", "f32", "int8", 0.05f, 20);
}

// Weights are one of 16 multiples of a scale.
TEST_F(CudaTokensTest, TheTargetSaysNearlyTheSameWithInt4Weights) {
  ExpectSaysTheSame("target", "f32", "int4", 0.5f, 20);
}

// Weights have 4 significant bits: up to a sixteenth of each is rounded.
TEST_F(CudaTokensTest, TheTargetSaysNearlyTheSameWithFp8Weights) {
  ExpectSaysTheSame("target", "f32", "fp8", 0.2f, 20);
}

}  // namespace
}  // namespace nacre::model
