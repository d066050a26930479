// A target engine over a real model and real EAGLE drafts: with prefixes taken
// over from other sessions, and sessions that go on from where another worker
// stopped, every token is the one that the model alone says.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "model/eagle_model.h"
#include "tests/target_worker/real_engine.h"

namespace nacre::target_worker {
namespace {

TEST(TargetEngineEagle, ChangesNoToken) {
  for (const float temperature : {0.0f, 0.8f, 1.0f}) {
    SCOPED_TRACE(temperature);
    RealEngine alone(nullptr);
    const auto said = SayThree(temperature, &alone);
    EXPECT_EQ(alone.accepted, 0);
    int accepted = 0;
    for (const std::string kind :
         {"safeailab", "specforge", "modelopt", "speculators", "eagle1"}) {
      SCOPED_TRACE(kind);
      RealEngine engine([&kind](model::LanguageModel* model) {
        auto eagle =
            model::EagleModel::Load(RealFolder("eagle/" + kind), model);
        EXPECT_TRUE(eagle.ok()) << eagle.status();
        return *std::move(eagle);
      });
      EXPECT_EQ(SayThree(temperature, &engine), said);
      accepted += engine.accepted;
    }
    EXPECT_GT(accepted, 20);
  }
}

}  // namespace
}  // namespace nacre::target_worker
