// Two tiny random models of a family: what a draft says changes no token of
// the target's.

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "model/load_model.h"
#include "nlohmann/json.hpp"
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

std::unique_ptr<model::LanguageModel> RandomModel(const nlohmann::json& config,
                                                  const std::string& name,
                                                  kernels::Backend* backend) {
  const std::string dir = TestFolder(name);
  nacre::testing::WriteRandomCheckpoint(config.dump(), dir);
  auto model = model::LoadModel(dir, backend, {1 << 22, {}});
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

// Named after the goldens of tests/data/model/options whose config they take.
class FamilyPairTest : public ::testing::TestWithParam<const char*> {};

TEST_P(FamilyPairTest, SaysWhatTheTargetSays) {
  auto config = nlohmann::json::parse(nacre::testing::ReadFile(
      std::string(NACRE_TEST_DATA) + "/model/options/" + GetParam() + ".json"));
  config = config["config"];
  const auto backend = *kernels::CreateBackend({});
  const auto target = RandomModel(config, "target", backend.get());
  // Weights follow from names: the draft is the target's first layer.
  const char* const layers =
      config.contains("n_layer") ? "n_layer" : "num_hidden_layers";
  ASSERT_GT(config[layers], 1);
  config[layers] = 1;
  const auto draft = RandomModel(config, "draft", backend.get());
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

INSTANTIATE_TEST_SUITE_P(Families, FamilyPairTest,
                         ::testing::Values("neox", "neox_sequential",
                                           "starcoder2", "starcoder2_no_bias",
                                           "big_code", "big_code_many_heads"),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

}  // namespace
}  // namespace nacre::worker
