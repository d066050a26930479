#include "gateway/gateway_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "absl/strings/str_cat.h"

namespace nacre::gateway {
namespace {

using ::testing::Pair;
using ::testing::UnorderedElementsAre;

// The values of a metric by its label of that name.
std::map<std::string, double> ValuesBy(const std::string& label,
                                       const GatewayMetrics& metrics) {
  std::map<std::string, double> values;
  for (const auto& family : metrics.collectable()->Collect()) {
    for (const auto& metric : family.metric) {
      for (const auto& pair : metric.label) {
        if (pair.name == label) values[pair.value] += metric.counter.value;
      }
    }
  }
  return values;
}

TEST(GatewayMetricsTest, OnlyPathsThatAreServedHaveLabels) {
  GatewayMetrics metrics;
  metrics.CountAnswer("/v1/models", 200);
  metrics.CountAnswer("/v1/models", 200);
  metrics.CountAnswer("/x", 404);
  metrics.CountAnswer("/y", 404);
  EXPECT_THAT(ValuesBy("path", metrics),
              UnorderedElementsAre(Pair("/v1/models", 2), Pair("other", 2)));
}

TEST(GatewayMetricsTest, AClientDoesNotChooseWhatALabelHolds) {
  GatewayMetrics metrics;
  const std::string longest(64, 'x');
  for (const std::string& name :
       {longest, longest + "x", std::string(1 << 20, 'y'), std::string(),
        std::string("a b"), std::string("a\"b"), std::string("a\nb"),
        std::string("\xC3\xA4"), std::string("Good_name-1.0")}) {
    metrics.CountIgnored(name);
  }
  EXPECT_THAT(ValuesBy("field", metrics),
              UnorderedElementsAre(Pair(longest, 1), Pair("Good_name-1.0", 1),
                                   Pair("other", 7)));
}

TEST(GatewayMetricsTest, FurtherCallsCountByKind) {
  GatewayMetrics metrics;
  for (const char* kind : {"retry", "resume", "resume"}) {
    metrics.CountFurtherCall(kind);
  }
  EXPECT_THAT(ValuesBy("kind", metrics),
              UnorderedElementsAre(Pair("retry", 1), Pair("resume", 2)));
}

TEST(GatewayMetricsTest, NamesAfterThe32ndCountAsOther) {
  GatewayMetrics metrics;
  for (int twice = 0; twice < 2; ++twice) {
    for (int i = 0; i < 40; ++i) metrics.CountIgnored(absl::StrCat("f", i));
  }
  const auto values = ValuesBy("field", metrics);
  EXPECT_EQ(values.size(), 33u);
  EXPECT_EQ(values.at("f31"), 2);
  EXPECT_EQ(values.at("other"), 16);
}

}  // namespace
}  // namespace nacre::gateway
