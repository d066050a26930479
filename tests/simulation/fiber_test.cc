#include "simulation/fiber.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nacre::simulation {
namespace {

using ::testing::ElementsAre;

TEST(Fiber, RunsUntilItWaitsAndGoesOnWhereItWaited) {
  Fiber fiber;
  std::vector<std::string> seen;
  fiber.Start([&] {
    const std::string local = "kept";
    seen.push_back("begins");
    EXPECT_TRUE(fiber.is_running());
    fiber.Wait();
    seen.push_back(local);
  });
  EXPECT_FALSE(fiber.is_running());
  EXPECT_FALSE(fiber.done());
  seen.push_back("outside");
  fiber.Resume();
  EXPECT_TRUE(fiber.done());
  EXPECT_THAT(seen, ElementsAre("begins", "outside", "kept"));
}

TEST(Fiber, TakesOneBodyAfterAnother) {
  Fiber fiber;
  int runs = 0;
  for (int i = 0; i < 1000; ++i) {
    fiber.Start([&runs] { ++runs; });
    EXPECT_TRUE(fiber.done());
  }
  EXPECT_EQ(runs, 1000);
}

TEST(Fiber, ManyWaitAtTheSameTime) {
  std::vector<std::unique_ptr<Fiber>> fibers;
  int64_t sum = 0;
  for (int i = 0; i < 500; ++i) {
    Fiber& fiber = *fibers.emplace_back(std::make_unique<Fiber>());
    fiber.Start([&fiber, &sum, i] {
      for (int part = 0; part < 3; ++part) {
        fiber.Wait();
        sum += i;
      }
    });
  }
  for (int part = 0; part < 3; ++part) {
    for (const auto& fiber : fibers) fiber->Resume();
  }
  for (const auto& fiber : fibers) EXPECT_TRUE(fiber->done());
  EXPECT_EQ(sum, 3 * 500 * 499 / 2);
}

}  // namespace
}  // namespace nacre::simulation
