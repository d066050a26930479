// The bundled models say the same on every SIMD target of this machine, and
// what Hugging Face says (tests/data/model/make_greedy.py): each has sums in
// its own order, so logits differ in their last bits, and the most probable
// token does not. (With int8 weights activations are rounded, which makes more
// of such a difference: there it does, in 2 of 8 prompts or more.)

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/types/span.h"
#include "common/json.h"
#include "gtest/gtest.h"
#include "hwy/targets.h"
#include "kernels/backend.h"
#include "model/load_model.h"
#include "tests/kernels/kernel_testing.h"
#include "tests/testing/tiny_checkpoint.h"
#include "tokenizer/tokenizer.h"

namespace nacre::model {
namespace {

constexpr int kPrompts = 20;
constexpr int kPromptsEach = 5;  // of one test case
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
std::vector<int32_t> Continue(LanguageModel& model,
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

// A model and the first prompt.
class SimdTargetsTest
    : public ::testing::TestWithParam<std::tuple<const char*, int>> {};

TEST_P(SimdTargetsTest, TheBundledModelSaysWhatHuggingFaceSays) {
  const auto [name, first] = GetParam();
  const std::string folder = std::string(NACRE_MODELS "/") + name;
  const auto tokenizer = tokenizer::LoadTokenizer(folder);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::vector<std::vector<int32_t>> prompts;
  for (const std::string& prompt : Prompts()) {
    prompts.push_back(*(*tokenizer)->Encode(prompt));
  }
  ASSERT_EQ(static_cast<int>(prompts.size()), kPrompts);

  const std::vector<std::vector<int32_t>> expected = nlohmann::json::parse(
      nacre::testing::ReadFile(NACRE_TEST_DATA "/model/greedy.json"))[name];
  ASSERT_EQ(static_cast<int>(expected.size()), kPrompts);

  ASSERT_FALSE(kernels::SupportedSimdTargets().empty());
  for (const int64_t target : kernels::SupportedSimdTargets()) {
    const kernels::ForcedTarget forced(target);
    const auto backend = kernels::MakeBackend("cpu");
    const auto model = LoadModel(folder, backend.get(), {1 << 24, {}});
    ASSERT_TRUE(model.ok()) << model.status();
    for (int i = first; i < first + kPromptsEach; ++i) {
      EXPECT_EQ(Continue(**model, prompts[i]), expected[i])
          << "prompt " << i << " on " << hwy::TargetName(target);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    BundledModels, SimdTargetsTest,
    ::testing::Combine(::testing::Values("target", "draft"),
                       ::testing::Range(0, kPrompts, kPromptsEach)),
    [](const auto& info) {
      return std::string(std::get<0>(info.param)) + "_" +
             std::to_string(std::get<1>(info.param));
    });

}  // namespace
}  // namespace nacre::model
