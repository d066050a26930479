// Suffixes through the real processes, with a draft worker and without: text
// that repeats itself takes fewer steps, and every token is ar's.

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/integration/service_fixture.h"

namespace nacre::integration {
namespace {

constexpr int kMaxTokens = 96;

std::vector<int32_t> TokensOf(const v1::Complete& complete) {
  return {complete.token_ids().begin(), complete.token_ids().end()};
}

class SuffixServiceTest : public ::testing::TestWithParam<int> {};

TEST_P(SuffixServiceTest, SaveStepsAndChangeNoToken) {
  tools::Cluster::Options options = Service::Options(GetParam());
  options.more_args.target = {"--suffix-drafter", "on"};
  Service service(std::move(options));
  std::string list;
  for (int i = 0; i < 12; ++i) list += "def add(a, b):\n    return a + b\n\n";
  uint64_t accepted = 0;
  for (const float temperature : {0.0f, 0.8f}) {
    SCOPED_TRACE(temperature);
    v1::GenerateRequest request = Request(list, v1::METHOD_AR, kMaxTokens);
    request.mutable_sampling()->set_temperature(temperature);
    request.mutable_sampling()->set_seed(7);
    request.mutable_stop()->set_ignore_eos(true);
    const auto ar = service.Generate(request);
    ASSERT_TRUE(ar.ok()) << ar.status();
    EXPECT_EQ(ar->speculation().suffix_proposed(), 0u);

    request.mutable_speculation()->set_method(v1::METHOD_ASYNC);
    const auto with = service.Generate(request);
    ASSERT_TRUE(with.ok()) << with.status();
    EXPECT_EQ(TokensOf(*with), TokensOf(*ar));
    const v1::SpeculationReport& report = with->speculation();
    EXPECT_LE(report.suffix_accepted(), report.suffix_proposed());
    EXPECT_LE(report.rounds() + report.suffix_accepted(), uint64_t{kMaxTokens});
    accepted += report.suffix_accepted();
    if (GetParam() == 0) {
      EXPECT_EQ(report.verified(), 0u);
    }

    request.mutable_speculation()->set_suffixes(false);
    const auto without = service.Generate(request);
    ASSERT_TRUE(without.ok()) << without.status();
    EXPECT_EQ(TokensOf(*without), TokensOf(*ar));
    EXPECT_EQ(without->speculation().suffix_proposed(), 0u);
  }
  if (GetParam() == 0) {
    EXPECT_GT(accepted, 0u);
  }
  EXPECT_TRUE(service.KvReturnsToEmpty());
}

INSTANTIATE_TEST_SUITE_P(Drafts, SuffixServiceTest, ::testing::Values(0, 1));

}  // namespace
}  // namespace nacre::integration
