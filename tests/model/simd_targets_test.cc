// The bundled models say the same on every SIMD target of this machine: each
// has sums in its own order, so logits differ in their last bits, and the most
// probable token does not. (With int8 weights activations are rounded, which
// makes more of such a difference: there it does, in 2 of 8 prompts or more.)

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "hwy/targets.h"
#include "kernels/backend.h"
#include "model/llama_model.h"
#include "nlohmann/json.hpp"
#include "tests/kernels/kernel_testing.h"
#include "tokenizer/tokenizer.h"

namespace nacre::model {
namespace {

constexpr int kPrompts = 20;
constexpr int kTokens = 40;

std::vector<std::string> Prompts() {
  std::ifstream file(NACRE_TEST_DATA "/gsm8k_100.jsonl");
  std::vector<std::string> prompts;
  std::string line;
  while (static_cast<int>(prompts.size()) < kPrompts &&
         std::getline(file, line)) {
    prompts.push_back(nlohmann::json::parse(line)["prompt"]);
  }
  return prompts;
}

// The most probable token each time; the first of equals.
std::vector<int32_t> Continue(LlamaModel& model,
                              std::vector<int32_t> token_ids) {
  auto sequence =
      *model.NewSequence(static_cast<int>(token_ids.size()) + kTokens);
  absl::Span<const int32_t> fed = token_ids;
  std::vector<int32_t> output;
  for (int i = 0; i < kTokens; ++i) {
    const auto logits = model.Forward({{sequence.get(), fed, 1}});
    EXPECT_TRUE(logits.ok()) << logits.status();
    output.push_back(static_cast<int32_t>(
        std::max_element(logits->begin(), logits->end()) - logits->begin()));
    fed = absl::MakeConstSpan(output).last(1);
  }
  return output;
}

class SimdTargetsTest : public ::testing::TestWithParam<const char*> {};

TEST_P(SimdTargetsTest, TheBundledModelSaysTheSame) {
  const std::string folder = std::string(NACRE_MODELS "/") + GetParam();
  const auto tokenizer = tokenizer::LoadTokenizer(folder);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::vector<std::vector<int32_t>> prompts;
  for (const std::string& prompt : Prompts()) {
    prompts.push_back(*(*tokenizer)->Encode(prompt));
  }
  ASSERT_EQ(static_cast<int>(prompts.size()), kPrompts);

  std::vector<std::vector<int32_t>> expected;  // of the first target
  std::string first_target;
  for (const int64_t target : kernels::SupportedSimdTargets()) {
    const kernels::ForcedTarget forced(target);
    const std::string name = hwy::TargetName(target);
    const auto backend = kernels::MakeBackend("cpu");
    const auto model = LlamaModel::Load(folder, backend.get(), {1 << 24, {}});
    ASSERT_TRUE(model.ok()) << model.status();
    for (int i = 0; i < kPrompts; ++i) {
      std::vector<int32_t> output = Continue(**model, prompts[i]);
      if (static_cast<int>(expected.size()) < kPrompts) {
        expected.push_back(std::move(output));
        first_target = name;
      } else {
        EXPECT_EQ(output, expected[i])
            << "prompt " << i << " on " << name << " and on " << first_target;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(BundledModels, SimdTargetsTest,
                         ::testing::Values("target", "draft"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace nacre::model
