// Two tiny random models of each family: what a draft says changes no token of
// the target's.

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/json.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "model/families.h"
#include "model/load_model.h"
#include "tests/testing/in_process_pair.h"
#include "tests/testing/random_checkpoint.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::worker {
namespace {

using nacre::testing::GenerateAlone;
using nacre::testing::InProcessPair;
using nacre::testing::PairRequest;
using nacre::testing::TestFolder;
using speculation::Method;

// Of tests/data/model/options.
constexpr const char* kGoldens[] = {"big_code",
                                    "big_code_many_heads",
                                    "gemma",
                                    "gemma2",
                                    "gemma3",
                                    "llama_biases",
                                    "llama_dynamic",
                                    "llama_linear",
                                    "llama_llama3",
                                    "llama_yarn",
                                    "llama_yarn_mscale",
                                    "mistral_window",
                                    "mixtral",
                                    "neox",
                                    "neox_few_biases",
                                    "neox_sequential",
                                    "phi3_longrope",
                                    "phi3_partial",
                                    "phi3_partial_longrope",
                                    "phi3_window",
                                    "qwen2_window",
                                    "qwen3",
                                    "qwen3_moe",
                                    "qwen3_moe_normalized",
                                    "starcoder2",
                                    "starcoder2_no_bias"};

// The config of a golden, with a window that generations here outgrow.
nlohmann::json ConfigOf(const char* golden) {
  nlohmann::json config =
      nlohmann::json::parse(nacre::testing::ReadFile(absl::StrCat(
          NACRE_TEST_DATA, "/model/options/", golden, ".json")))["config"];
  if (config.contains("sliding_window") &&
      config["sliding_window"].is_number()) {
    config["sliding_window"] = 13;
  }
  return config;
}

nlohmann::json FirstLayerOf(nlohmann::json config) {
  const char* const layers =
      config.contains("n_layer") ? "n_layer" : "num_hidden_layers";
  EXPECT_GT(config[layers], 1);
  config[layers] = 1;
  if (config.contains("layer_types")) {
    config["layer_types"] = nlohmann::json::array({config["layer_types"][0]});
  }
  if (config.contains("mlp_only_layers")) {
    config["mlp_only_layers"] = nlohmann::json::array();
  }
  return config;
}

std::unique_ptr<model::LanguageModel> RandomModel(const nlohmann::json& config,
                                                  const std::string& name,
                                                  kernels::Backend* backend) {
  const std::string dir = TestFolder(name);
  nacre::testing::WriteRandomCheckpoint(config.dump(), dir);
  auto model = model::LoadModel(dir, backend, {1 << 22, {}});
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

// Named after the goldens whose config they take.
class FamilyPairTest : public ::testing::TestWithParam<const char*> {};

TEST_P(FamilyPairTest, SaysWhatTheTargetSays) {
  const nlohmann::json config = ConfigOf(GetParam());
  const auto backend = *kernels::CreateBackend({});
  const auto target = RandomModel(config, "target", backend.get());
  // Weights follow from names: the draft is the target's first layer.
  const auto draft = RandomModel(FirstLayerOf(config), "draft", backend.get());
  PairRequest request;
  request.max_tokens = 40;
  int64_t accepted = 0, rejected = 0;
  for (const Method method : {Method::kSd, Method::kPearl, Method::kAsync}) {
    for (const float temperature : {0.0f, 0.6f}) {
      for (int32_t seed = 0; seed < 3; ++seed) {
        request.method = method;
        request.prompt = {1, 40 + seed, 77, 30, 12 + seed};
        request.sampling.temperature = temperature;
        request.sampling.seed = static_cast<uint64_t>(seed);
        InProcessPair pair(target.get(), draft.get(), /*seed=*/seed + 3u);
        EXPECT_EQ(pair.Generate(request), GenerateAlone(*target, request))
            << "method " << static_cast<int>(method) << " temperature "
            << temperature << " seed " << seed;
        accepted += pair.stats().accepted;
        rejected += pair.stats().verified - pair.stats().accepted;
      }
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(rejected, 0);
}

INSTANTIATE_TEST_SUITE_P(Goldens, FamilyPairTest, ::testing::ValuesIn(kGoldens),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

TEST(FamilyPairGoldensTest, HaveEveryFamily) {
  std::set<std::string> seen;
  for (const char* const golden : kGoldens) {
    seen.insert(ConfigOf(golden)["architectures"][0].get<std::string>());
  }
  for (const model::Family& family : model::AllFamilies()) {
    EXPECT_EQ(seen.count(family.architecture), 1) << family.architecture;
  }
}

}  // namespace
}  // namespace nacre::worker
