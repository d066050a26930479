#include "tools/checkpoint/perplexity.h"

#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/load_model.h"
#include "model/model_backend.h"
#include "tests/model/with_tensors.h"
#include "tests/testing/tiny_checkpoint.h"
#include "tokenizer/tokenizer.h"

namespace nacre::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kTarget[] = NACRE_MODELS "/target";

PerplexityResult Measure(const std::string& weights,
                         const std::vector<std::string>& texts) {
  PerplexityOptions options;
  options.model_dir = kTarget;
  options.texts = texts;
  options.backend.weights = weights;
  const auto result = MeasurePerplexity(options);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.value_or(PerplexityResult());
}

std::vector<std::string> Texts() {
  return {
      "Question: Natalia sold clips to 48 of her friends in April, and then "
      "she sold half as many clips in May. How many clips did Natalia sell "
      "altogether in April and May?\nAnswer: Natalia sold 48/2 = "
      "<<48/2=24>>24 clips in May.\nNatalia sold 48+24 = <<48+24=72>>72 clips "
      "altogether in April and May.\n#### 72\n",
      "Tom has 12 apples."};
}

// From the definition: softmax in double, token by token.
TEST(PerplexityTest, IsTheMeanOfTheNegativeLogarithms) {
  const auto tokenizer = tokenizer::LoadTokenizer(kTarget);
  ASSERT_TRUE(tokenizer.ok());
  const auto backend = *model::CreateBackendFor(kTarget, {});
  const auto model = model::LoadModel(kTarget, backend.get(), {1 << 26, {}});
  ASSERT_TRUE(model.ok()) << model.status();
  const size_t vocab = static_cast<size_t>((*model)->info().vocab_size);
  double nll = 0;
  int64_t count = 0;
  for (const std::string& text : Texts()) {
    const std::vector<int32_t> tokens = *(*tokenizer)->Encode(text);
    const auto sequence =
        *(*model)->NewSequence(static_cast<int>(tokens.size()));
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      const auto logits = (*model)->Forward(
          {{sequence.get(), absl::MakeConstSpan(tokens).subspan(i, 1), 1}});
      ASSERT_TRUE(logits.ok());
      double sum = 0;
      for (size_t id = 0; id < vocab; ++id) {
        sum += std::exp(double{(*logits)[id]});
      }
      nll -= (*logits)[static_cast<size_t>(tokens[i + 1])] - std::log(sum);
      ++count;
    }
  }
  const PerplexityResult result = Measure("auto", Texts());
  EXPECT_EQ(result.texts, 2);
  EXPECT_EQ(result.cut, 0);
  EXPECT_EQ(result.tokens, count);
  EXPECT_NEAR(result.nll, nll, 1e-4 * nll);
  EXPECT_NEAR(result.Perplexity(), std::exp(nll / count), 1e-3);
}

TEST(PerplexityTest, FewerBitsPredictALittleWorse) {
  const double exact = Measure("auto", Texts()).Perplexity();
  const double int8 = Measure("int8", Texts()).Perplexity();
  const double int4 = Measure("int4", Texts()).Perplexity();
  EXPECT_NEAR(int8, exact, 0.05 * exact);
  EXPECT_NE(int8, exact);
  EXPECT_GT(int4, exact);
  EXPECT_LT(int4, 3 * exact);
}

TEST(PerplexityTest, CutsWhatIsLongerThanTheContext) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += " apple";
  const PerplexityResult result = Measure("auto", {text, "Two words."});
  EXPECT_EQ(result.texts, 2);
  EXPECT_EQ(result.cut, 1);
  EXPECT_GT(result.tokens, 2047);
  EXPECT_LT(result.tokens, 2047 + 20);
}

TEST(PerplexityTest, RefusesTextsWithNothingToPredict) {
  PerplexityOptions options;
  options.model_dir = kTarget;
  options.texts = {""};
  const auto status = MeasurePerplexity(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("none of 1 texts"));
}

TEST(PerplexityTest, PassesOnTheErrorsOfTheCheckpoint) {
  PerplexityOptions options;
  options.model_dir = nacre::testing::TestFolder("empty");
  options.texts = {"a b"};
  EXPECT_FALSE(MeasurePerplexity(options).ok());
  options.model_dir = kTarget;
  options.backend.weights = "int3";
  EXPECT_EQ(MeasurePerplexity(options).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// As a worker does: before the weights are loaded.
TEST(PerplexityTest, AModelThatDoesNotFitIsNotLoaded) {
  PerplexityOptions options;
  options.model_dir = kTarget;
  options.texts = {"a b"};
  options.memory = {{"/no/file", "/no/folder"},
                    nacre::testing::TestFolder("little_memory") + "/meminfo"};
  int stages = 0;
  std::string warning;
  options.progress = [&](absl::string_view, double) { ++stages; };
  options.warn = [&](absl::string_view text) { warning = std::string(text); };
  nacre::testing::WriteFile(options.memory.machine, "MemTotal: 100 kB\n");
  const absl::Status status = MeasurePerplexity(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the limit is 102400 (the machine)"));
  EXPECT_EQ(stages, 0);
  EXPECT_EQ(warning, "");

  nacre::testing::WriteFile(options.memory.machine,
                            "MemTotal: 100000 kB\nMemAvailable: 100 kB\n");
  EXPECT_TRUE(MeasurePerplexity(options).ok());
  EXPECT_GT(stages, 0);
  EXPECT_THAT(warning, HasSubstr("102400 are available (the machine)"));
}

TEST(PerplexityTest, WarnsOfTensorsThatNothingReads) {
  PerplexityOptions options;
  options.model_dir = nacre::testing::TestFolder("draft");
  std::filesystem::copy(NACRE_MODELS "/draft", options.model_dir);
  model::AddTensors(options.model_dir, {{"model.layers.0.mlp.down_proj.bias",
                                         {kernels::DType::kF32, {8}, ""}}});
  options.texts = {"a b"};
  std::string warning;
  options.warn = [&](absl::string_view text) { warning = std::string(text); };
  EXPECT_TRUE(MeasurePerplexity(options).ok());
  EXPECT_EQ(warning,
            "1 tensor of the checkpoint that the config has no use for: "
            "model.layers.0.mlp.down_proj.bias");
}

TEST(ParseTextsTest, ReadsTextOrPrompt) {
  const auto texts = ParseTexts(
      "f", "{\"text\": \"a\", \"prompt\": \"b\"}\n\n{\"prompt\": \"c\"}\n");
  ASSERT_TRUE(texts.ok());
  EXPECT_THAT(*texts, ElementsAre("a", "c"));
}

TEST(ParseTextsTest, NamesTheLineThatIsBad) {
  for (const char* line : {"{\"text\": 1}", "[]", "nonsense", "{}"}) {
    const auto status =
        ParseTexts("f", std::string("{\"text\": \"a\"}\n") + line);
    EXPECT_EQ(status.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.status().message()), HasSubstr("f:2"));
  }
  EXPECT_FALSE(ParseTexts("f", "\n").ok());
  EXPECT_FALSE(
      ParseTexts("f", "{\"text\": \"a\", \"b\": " + std::string(100'000, '['))
          .ok());
}

}  // namespace
}  // namespace nacre::tools
