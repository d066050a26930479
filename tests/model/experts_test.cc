#include "model/experts.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/reference/reference_backend.h"
#include "model/load_model.h"
#include "tests/testing/device_backend.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::model {
namespace {

using ::testing::ElementsAre;

std::vector<ExpertChoice> Choose(const std::vector<float>& logits, int count,
                                 bool normalize) {
  std::vector<ExpertChoice> choices;
  ChooseExperts(logits, count, normalize, &choices);
  return choices;
}

std::vector<int> NumbersOf(const std::vector<ExpertChoice>& choices) {
  std::vector<int> numbers;
  for (const ExpertChoice& choice : choices) numbers.push_back(choice.expert);
  return numbers;
}

TEST(ExpertsTest, TheLargestAreChosenInTheOrderOfTheirNumbers) {
  const std::vector<float> logits = {1, 4, -2, 5, 0};
  EXPECT_THAT(NumbersOf(Choose(logits, 1, false)), ElementsAre(3));
  EXPECT_THAT(NumbersOf(Choose(logits, 2, false)), ElementsAre(1, 3));
  EXPECT_THAT(NumbersOf(Choose(logits, 3, true)), ElementsAre(0, 1, 3));
  EXPECT_THAT(NumbersOf(Choose(logits, 5, true)), ElementsAre(0, 1, 2, 3, 4));
}

TEST(ExpertsTest, OfEqualOnesTheFirstAreChosen) {
  EXPECT_THAT(NumbersOf(Choose({2, 7, 7, 7, 2}, 2, false)), ElementsAre(1, 2));
  EXPECT_THAT(NumbersOf(Choose({2, 7, 7, 2, 2}, 3, false)),
              ElementsAre(0, 1, 2));
}

TEST(ExpertsTest, WeightsAreProbabilitiesAmongAllOrAmongTheChosen) {
  const std::vector<float> logits = {0, std::log(2.0f), std::log(5.0f)};
  const auto among_all = Choose(logits, 2, false);
  EXPECT_FLOAT_EQ(among_all[0].weight, 0.25f);
  EXPECT_FLOAT_EQ(among_all[1].weight, 0.625f);
  const auto among_chosen = Choose(logits, 2, true);
  EXPECT_FLOAT_EQ(among_chosen[0].weight, 2.0f / 7);
  EXPECT_FLOAT_EQ(among_chosen[1].weight, 5.0f / 7);
}

TEST(ExpertsTest, ALogitThatIsNotANumberIsTheSmallest) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(NumbersOf(Choose({1, nan, 3}, 2, true)), ElementsAre(0, 2));
  EXPECT_THAT(NumbersOf(Choose({nan, nan, nan}, 2, true)), ElementsAre(0, 1));
}

// Of what is computed on a device, the router's logits of each layer come to
// the host, and those of the step.
TEST(ExpertsTest, ADeviceKeepsAllButTheLogits) {
  const std::string dir = nacre::testing::TestFolder("mixtral");
  nacre::testing::TinyCheckpoint shape;
  shape.architecture = "MixtralForCausalLM";
  nacre::testing::WriteTinyCheckpoint(shape, dir);
  const auto logits_on = [&](kernels::Backend* backend) {
    auto model = LoadModel(dir, backend, {1 << 22, {}});
    EXPECT_TRUE(model.ok()) << model.status();
    auto sequence = (*model)->NewSequence(8);
    EXPECT_TRUE(sequence.ok()) << sequence.status();
    const std::vector<int32_t> tokens = {3, 1, 4, 1, 5};
    const SequenceRows rows = {sequence->get(), tokens, 2};
    const auto logits = (*model)->Forward({&rows, 1});
    EXPECT_TRUE(logits.ok()) << logits.status();
    return std::vector<float>(logits->begin(), logits->end());
  };
  nacre::testing::DeviceBackend device;
  const std::vector<float> logits = logits_on(&device);
  EXPECT_EQ(device.num_copies, shape.num_hidden_layers + 1);
  constexpr size_t kRouterLogits = 5 * 8;
  EXPECT_EQ(device.num_bytes,
            sizeof(float) * (shape.num_hidden_layers * kRouterLogits +
                             2 * static_cast<size_t>(shape.vocab_size)));
  kernels::ReferenceBackend host(kernels::WeightType::kAuto);
  EXPECT_EQ(logits, logits_on(&host));
}

}  // namespace
}  // namespace nacre::model
