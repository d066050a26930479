#include "tests/benchmarks/random_llama.h"

#include <cmath>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/json.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "model/families.h"
#include "model/load_model.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

using nacre::testing::TestFolder;

constexpr LlamaShape kLlama = {.hidden = 64,
                               .intermediate = 96,
                               .layers = 2,
                               .heads = 4,
                               .kv_heads = 2,
                               .head_dim = 16,
                               .vocab = 101,
                               .context = 64};

std::unique_ptr<kernels::Backend> Reference() {
  kernels::BackendOptions options;
  options.kind = "reference";
  return *kernels::CreateBackend(options);
}

// Of a row at position 0.
std::vector<float> LogitsOf(LanguageModel* model) {
  const auto sequence = *model->NewSequence(8);
  const std::vector<int32_t> tokens = {5, 6, 7};
  const SequenceRows rows = {sequence.get(), tokens, 1};
  const auto logits = model->Forward({&rows, 1});
  EXPECT_TRUE(logits.ok()) << logits.status();
  return {logits->begin(), logits->end()};
}

// Configs of tests/data/model/options: odd sizes, every option.
TEST(RandomLlamaTest, MakesModelsOfEveryFamily) {
  const auto backend = Reference();
  const std::string folder = std::string(NACRE_TEST_DATA) + "/model/options";
  std::set<std::string> families;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().extension() != ".json") continue;
    SCOPED_TRACE(file.path().filename().string());
    const auto golden =
        nlohmann::json::parse(nacre::testing::ReadFile(file.path().string()));
    const std::string config = golden["config"].dump();
    const RandomLlama random(config, kernels::DType::kF32);
    const auto model = random.Load(backend.get(), {1 << 22, {}});
    ASSERT_TRUE(model.ok()) << model.status();
    const std::vector<float> logits = LogitsOf(model->get());
    ASSERT_EQ(logits.size(), static_cast<size_t>(random.config().vocab_size));
    for (const float logit : logits) ASSERT_TRUE(std::isfinite(logit));
    EXPECT_NE(logits[0], logits[1]);
    families.insert(random.config().architecture);

    // The same as a folder.
    const std::string dir = TestFolder(file.path().stem().string());
    ASSERT_TRUE(random.Write(dir).ok());
    const auto read = LoadModel(dir, backend.get(), {1 << 22, {}});
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(LogitsOf(read->get()), logits);
  }
  EXPECT_EQ(families.size(), AllFamilies().size());
}

TEST(RandomLlamaTest, CountsWhatARowGoesThrough) {
  const RandomLlama llama(kLlama, kernels::DType::kBF16);
  const double attention = 64 * (64 + 2 * 32) + 64 * 64;
  EXPECT_EQ(MatrixWeights(llama.config()),
            2 * (attention + 3 * 64 * 96) + 101 * 64);
}

TEST(RandomLlamaTest, CountsTheExpertsOfOneRow) {
  const auto parsed = ParseConfig(R"({"architectures": ["MixtralForCausalLM"],
      "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1,
      "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 101,
      "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": null,
      "max_position_embeddings": 64, "tie_word_embeddings": true})");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const double attention = 64 * (64 + 2 * 32) + 64 * 64;
  EXPECT_EQ(MatrixWeights(*parsed),
            attention + 8 * 64 + 2 * 3 * 64 * 96 + 101 * 64);
}

}  // namespace
}  // namespace nacre::model
