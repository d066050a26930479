#include "worker/process/coordinator_metrics.h"

#include <gtest/gtest.h>

namespace nacre::worker {
namespace {

TEST(CoordinatorMetricsTest, ShowsEachCoordinator) {
  CoordinatorMetrics metrics("draft", "worker:7");
  for (const auto& family : metrics.Collect()) {
    EXPECT_TRUE(family.metric.empty()) << family.name;
  }
  metrics.SetStates([]() -> std::vector<Coordinators::State> {
    return {{"a:1", true, 640}, {"b:1", false, 0}};
  });
  const auto families = metrics.Collect();
  ASSERT_EQ(families.size(), 2u);
  EXPECT_EQ(families[0].name, "nacre_worker_registered");
  EXPECT_EQ(families[1].name, "nacre_worker_kv_granted_tokens");
  ASSERT_EQ(families[0].metric.size(), 2u);
  ASSERT_EQ(families[1].metric.size(), 2u);
  EXPECT_EQ(families[0].metric[0].gauge.value, 1);
  EXPECT_EQ(families[0].metric[1].gauge.value, 0);
  EXPECT_EQ(families[1].metric[0].gauge.value, 640);
  EXPECT_EQ(families[1].metric[0].label.at(0).value, "draft");
  EXPECT_EQ(families[1].metric[0].label.at(1).value, "worker:7");
  EXPECT_EQ(families[1].metric[0].label.at(2).value, "a:1");
  metrics.SetStates(nullptr);
  EXPECT_TRUE(metrics.Collect()[0].metric.empty());
}

TEST(CoordinatorMetricsTest, BothAreGaugesOfTheSameCoordinators) {
  CoordinatorMetrics metrics("target", "worker:7");
  metrics.SetStates([]() -> std::vector<Coordinators::State> {
    return {{"a:1", false, 16}, {"b:1", true, 32}};
  });
  const auto families = metrics.Collect();
  for (const auto& family : families) {
    EXPECT_EQ(family.type, prometheus::MetricType::Gauge) << family.name;
    ASSERT_EQ(family.metric.size(), 2u) << family.name;
    EXPECT_EQ(family.metric[0].label.at(2).name, "coordinator");
    EXPECT_EQ(family.metric[0].label.at(2).value, "a:1");
    EXPECT_EQ(family.metric[1].label.at(2).value, "b:1");
    EXPECT_EQ(family.metric[0].label.at(0).name, "role");
    EXPECT_EQ(family.metric[0].label.at(1).name, "worker");
  }
  EXPECT_EQ(families[0].metric[0].gauge.value, 0);
  EXPECT_EQ(families[0].metric[1].gauge.value, 1);
  EXPECT_EQ(families[1].metric[0].gauge.value, 16);
  EXPECT_EQ(families[1].metric[1].gauge.value, 32);
}

}  // namespace
}  // namespace nacre::worker
