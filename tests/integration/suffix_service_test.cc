// Suffixes through the real processes, with a draft worker and without: text
// that repeats itself takes fewer steps, and every token is ar's.

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/integration/service_fixture.h"
#include "tests/testing/certificates.h"
#include "tools/cluster/temporary_folder.h"

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

// A client that asks again has its own answer from memory; another client that
// asks for the same, has nothing of it.
TEST(SuffixClientsTest, AnswersServeTheirClientAlone) {
  const tools::TemporaryFolder folder;
  const std::string tokens = folder.path() + "/tokens";
  nacre::testing::WriteFileAtomically(
      tokens, "alice:alice-secret-0123456789\nbob:bob-secret-0123456789\n");
  tools::Cluster::Options options = Service::Options(/*drafts=*/0);
  options.auth_tokens_file = tokens;
  // Rows cost nothing, on a busy machine hardly any: what is likely is
  // verified.
  options.more_args.target = {"--suffix-drafter", "on", "--step-time",
                              "1:60,64:60"};
  Service service(std::move(options));
  v1::GenerateRequest request =
      Request("Question: A baker makes", v1::METHOD_ASYNC, kMaxTokens);
  request.mutable_sampling()->set_temperature(1.0f);
  request.mutable_sampling()->set_seed(3);
  request.mutable_stop()->set_ignore_eos(true);
  std::vector<int32_t> said;
  const auto accepted = [&](const std::string& token) {
    tools::GenerationClient client(service.cluster().address(), {{}, token});
    const auto answer =
        client.Generate(request, kCallTimeout, [](const v1::Chunk&) {});
    EXPECT_TRUE(answer.ok()) << answer.status();
    if (said.empty()) said = TokensOf(*answer);
    EXPECT_EQ(TokensOf(*answer), said);
    return static_cast<int>(answer->speculation().suffix_accepted());
  };
  EXPECT_LT(accepted("alice-secret-0123456789"), kMaxTokens / 2);
  const int own = accepted("alice-secret-0123456789");
  const int of_another = accepted("bob-secret-0123456789");
  EXPECT_LT(of_another, kMaxTokens / 2);
  EXPECT_GT(own, of_another);
}

INSTANTIATE_TEST_SUITE_P(Drafts, SuffixServiceTest, ::testing::Values(0, 1));

}  // namespace
}  // namespace nacre::integration
