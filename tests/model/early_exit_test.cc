// An early exit draft (EESD), as `make-eesd` writes it: what PyTorch says of
// the target's first layers and the draft's own
// (tests/data/model/make_eesd_goldens.py).

#include <memory>
#include <string>
#include <vector>

#include "common/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/load_model.h"
#include "tests/model/eagle_golden.h"
#include "tests/model/named_backend.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

using ::testing::HasSubstr;

const char kFolder[] = NACRE_TEST_DATA "/model/eesd";

struct Golden {
  std::vector<int32_t> prompt;
  std::vector<int32_t> fed;
  std::vector<LogitRow> all;  // of the prompt's tokens, then of those
};

Golden ReadGolden() {
  const auto json = nlohmann::json::parse(
      nacre::testing::ReadFile(std::string(kFolder) + "/golden.json"));
  Golden golden;
  golden.prompt = json["prompt"].get<std::vector<int32_t>>();
  golden.fed = json["fed"].get<std::vector<int32_t>>();
  golden.all = json["rows"].get<std::vector<LogitRow>>();
  const auto steps = json["steps"].get<std::vector<LogitRow>>();
  golden.all.insert(golden.all.end(), steps.begin(), steps.end());
  return golden;
}

// The prompt at once, then each token that it says.
std::vector<LogitRow> SaidOf(LanguageModel* model, const Golden& golden) {
  const auto sequence = *model->NewSequence(32);
  std::vector<LogitRow> all;
  const auto feed = [&](absl::Span<const int32_t> ids) {
    const SequenceRows rows = {sequence.get(), ids,
                               static_cast<int>(ids.size())};
    const auto logits = model->Forward({&rows, 1});
    EXPECT_TRUE(logits.ok()) << logits.status();
    const size_t vocab = static_cast<size_t>(model->info().vocab_size);
    for (size_t at = 0; at < logits->size(); at += vocab) {
      all.emplace_back(logits->begin() + at, logits->begin() + at + vocab);
    }
  };
  feed(golden.prompt);
  for (const int32_t& id : golden.fed) feed({&id, 1});
  return all;
}

class EarlyExitTest : public ::testing::TestWithParam<const char*> {};

TEST_P(EarlyExitTest, SaysWhatPyTorchSays) {
  const auto backend = NamedBackend(GetParam());
  const auto model = LoadModel(kFolder, backend.get(), {});
  ASSERT_TRUE(model.ok()) << model.status();
  const Golden golden = ReadGolden();
  ASSERT_EQ(golden.fed.size(), 3u);
  EXPECT_LE(LargestDifference(SaidOf(model->get(), golden), golden.all), 1e-3f);
}

INSTANTIATE_TEST_SUITE_P(Backends, EarlyExitTest,
                         ::testing::Values("reference", "cpu"),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

// Cut where another layer ends, it says something else; with layers beyond its
// config it is refused.
TEST(EarlyExitGoldenTest, TellsOtherExitsApart) {
  const auto backend = NamedBackend("cpu");
  const auto target = LoadModel(
      std::string(NACRE_TEST_DATA) + "/model/eagle/target", backend.get(), {});
  ASSERT_TRUE(target.ok()) << target.status();
  const Golden golden = ReadGolden();
  EXPECT_GT(LargestDifference(SaidOf(target->get(), golden), golden.all), 0.1f);
  const std::string folder = nacre::testing::TestFolder("early_exit");
  auto config = nlohmann::json::parse(
      nacre::testing::ReadFile(std::string(kFolder) + "/config.json"));
  config["num_hidden_layers"] = 3;
  nacre::testing::WriteFile(folder + "/config.json", config.dump());
  nacre::testing::WriteFile(
      folder + "/model.safetensors",
      nacre::testing::ReadFile(std::string(kFolder) + "/model.safetensors"));
  EXPECT_THAT(LoadModel(folder, backend.get(), {}).status().ToString(),
              HasSubstr("num_hidden_layers is 3"));
}

}  // namespace
}  // namespace nacre::model
