// A target engine over a model on the emulated device and a draft of each kind
// of what it computes: every token is the one that the model alone says.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/eagle_model.h"
#include "model/first_forward.h"
#include "model/glide_model.h"
#include "model/medusa_heads.h"
#include "model/safetensors_writer.h"
#include "tests/target_worker/real_engine.h"
#include "tests/testing/tiny_checkpoint.h"

namespace nacre::target_worker {
namespace {

using Said = std::map<uint64_t, std::vector<int32_t>>;

constexpr float kTemperature = 0.8f;

Said SaidAlone() {
  RealEngine alone(nullptr);
  Said said = SayThree(kTemperature, &alone);
  EXPECT_EQ(alone.accepted, 0);
  return said;
}

// As a worker checks it before it serves.
template <typename Draft>
RealEngine::Drafter Checked(model::LanguageModel* model,
                            absl::StatusOr<std::unique_ptr<Draft>> draft) {
  EXPECT_TRUE(draft.ok()) << draft.status();
  const absl::Status sound = model::ProbeDrafter(model, draft->get());
  EXPECT_TRUE(sound.ok()) << sound;
  return *std::move(draft);
}

TEST(TargetEngineCudaDrafts, ChangeNoToken) {
  const Said said = SaidAlone();
  const std::vector<RealEngine::Make> makes = {
      [](model::LanguageModel* model) {
        return Checked(model, model::EagleModel::Load(
                                  RealFolder("eagle/specforge"), model));
      },
      [](model::LanguageModel* model) {
        return Checked(
            model, model::EagleModel::Load(RealFolder("eagle/eagle1"), model));
      },
      [](model::LanguageModel* model) {
        return Checked(model, model::GlideModel::Load(
                                  RealFolder("glide/one_layer"), *model));
      }};
  for (const RealEngine::Make& make : makes) {
    RealEngine engine(make);
    EXPECT_EQ(SayThree(kTemperature, &engine), said);
    EXPECT_GT(engine.accepted, 0);
  }
}

// One whose block adds its bias alone, over the target's vocabulary.
std::string WriteHead() {
  const std::string folder = nacre::testing::TestFolder("cuda_head");
  const auto size = static_cast<size_t>(20);
  const std::vector<float> weight(size * size, 0);
  const std::vector<float> bias(size, 0.5f);
  const std::string path = folder + "/medusa_lm_head.safetensors";
  auto file = *model::SafetensorsWriter::Create(
      path, {{"0.0.linear.weight", kernels::DType::kF32, {20, 20}},
             {"0.0.linear.bias", kernels::DType::kF32, {20}}});
  EXPECT_TRUE(file->Append(weight.data(), weight.size() * sizeof(float)).ok());
  EXPECT_TRUE(file->Append(bias.data(), bias.size() * sizeof(float)).ok());
  EXPECT_TRUE(file->Finish().ok());
  return path;
}

TEST(TargetEngineCudaDrafts, HeadsChangeNoToken) {
  RealEngine engine(nullptr, nullptr, {}, [](model::LanguageModel* model) {
    auto heads = model::MedusaHeads::Load(WriteHead(), *model);
    EXPECT_TRUE(heads.ok()) << heads.status();
    const absl::Status sound = model::ProbeHeads(model, heads->get());
    EXPECT_TRUE(sound.ok()) << sound;
    return *std::move(heads);
  });
  EXPECT_EQ(SayThree(kTemperature, &engine), SaidAlone());
  EXPECT_GT(engine.accepted, 0);
}

}  // namespace
}  // namespace nacre::target_worker
