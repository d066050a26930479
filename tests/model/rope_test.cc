// The goldens are Hugging Face's (tests/data/model/make_goldens.py).

#include "model/rope.h"

#include <cmath>
#include <string>

#include "common/json.h"
#include "gtest/gtest.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

ModelConfig ConfigOf(const nlohmann::json& golden) {
  nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                           {"hidden_size", 96},
                           {"intermediate_size", 100},
                           {"num_hidden_layers", 1},
                           {"num_attention_heads", 6},
                           {"vocab_size", 301},
                           {"head_dim", golden["head_dim"]},
                           {"rope_theta", golden["rope_theta"]},
                           {"rope_scaling", golden["rope_scaling"]}};
  const auto parsed = ParseConfig(config.dump());
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return *parsed;
}

TEST(RopeTest, MatchesHuggingFace) {
  const auto goldens = nlohmann::json::parse(nacre::testing::ReadFile(
      std::string(NACRE_TEST_DATA) + "/model/goldens.json"))["rope"];
  ASSERT_EQ(goldens.size(), 4u);
  for (const auto& golden : goldens) {
    const ModelConfig config = ConfigOf(golden);
    const std::vector<float> frequencies = InverseFrequencies(config);
    ASSERT_EQ(frequencies.size(), golden["inverse_frequencies"].size());
    for (size_t j = 0; j < frequencies.size(); ++j) {
      const float expected = golden["inverse_frequencies"][j];
      EXPECT_NEAR(frequencies[j], expected, 3e-7f * expected)
          << golden["name"] << " " << j;
    }
    RopeTable table(config);
    for (size_t i = 0; i < golden["positions"].size(); ++i) {
      const int position = golden["positions"][i];
      table.Extend(position);
      // One unit in the last place of a frequency moves an angle by this much.
      const float tolerance = 1e-6f + 2.4e-7f * static_cast<float>(position);
      for (size_t j = 0; j < frequencies.size(); ++j) {
        const float cos = golden["cos"][i][j];
        const float sin = golden["sin"][i][j];
        EXPECT_NEAR(table.Cos(position)[j], cos, tolerance)
            << golden["name"] << " position " << position << " pair " << j;
        EXPECT_NEAR(table.Sin(position)[j], sin, tolerance)
            << golden["name"] << " position " << position << " pair " << j;
      }
    }
  }
}

TEST(RopeTest, GrowingTheTableKeepsItsBits) {
  ModelConfig config;
  config.head_dim = 10;
  RopeTable at_once(config);
  at_once.Extend(1000);
  RopeTable step_by_step(config);
  for (const int position : {0, 255, 256, 300, 1000}) {
    step_by_step.Extend(position);
    EXPECT_EQ(step_by_step.Cos(position), at_once.Cos(position));
    EXPECT_EQ(step_by_step.Sin(position), at_once.Sin(position));
  }
  EXPECT_EQ(at_once.Cos(0)[3], 1.0f);
  EXPECT_EQ(at_once.Sin(0)[3], 0.0f);
}

}  // namespace
}  // namespace nacre::model
