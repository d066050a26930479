// The ratio test has the target's law through the whole protocol, whatever
// fails meanwhile: docs/testing.md.
//
//   protocol_ratio_law_test [--samples=N]      of each case

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "gtest/gtest.h"
#include "tests/simulation/protocol/ratio_law.h"
#include "tests/testing/sanitizers.h"

namespace nacre::protocol {
namespace {

using speculation::Method;

int num_samples = testing::kIsSanitized ? 500 : 5'000;

constexpr const char* kKinds[] = {"perfect", "good", "fair", "poor",
                                  "adversarial"};

std::string NameOf(const ::testing::TestParamInfo<LawCase>& info) {
  return absl::StrCat(std::string(speculation::MethodName(info.param.method)),
                      "_", kKinds[static_cast<size_t>(info.param.draft_kind)],
                      info.param.ends ? "_ends" : "");
}

class ProtocolRatioLaw : public ::testing::TestWithParam<LawCase> {};

TEST_P(ProtocolRatioLaw, IsTheTargetsOwnWhateverFails) {
  const LawResult result = MeasureLaw(GetParam(), num_samples);
  ASSERT_EQ(result.failure, "");
  std::printf("%.2f %.2f, %s\n", result.deviation_of.FirstPair(),
              result.deviation_of.LaterGivenPrefix(),
              Describe(result.totals).c_str());
  EXPECT_LT(result.deviation_of.FirstPair(), kLawCritical);
  EXPECT_LT(result.deviation_of.LaterGivenPrefix(), kLawCritical);
  // The schedules exercise what they are meant to.
  EXPECT_GT(result.totals.accepted, num_samples / 4);
  EXPECT_GT(result.totals.faults, num_samples);
  EXPECT_GT(result.totals.reattached, num_samples / 20);
}

// The worst of moments: whatever a target has not told is drawn once more.
class ProtocolRatioLoss : public ::testing::TestWithParam<LawCase> {};

TEST_P(ProtocolRatioLoss, IsTheTargetsOwnWhereAllAreLostAtOnce) {
  const LawResult result = MeasureLaw(GetParam(), 2 * num_samples);
  ASSERT_EQ(result.failure, "");
  std::printf("%.2f %.2f, %s\n", result.deviation_of.FirstPair(),
              result.deviation_of.LaterGivenPrefix(),
              Describe(result.totals).c_str());
  EXPECT_LT(result.deviation_of.FirstPair(), kLawCritical);
  EXPECT_LT(result.deviation_of.LaterGivenPrefix(), kLawCritical);
  EXPECT_EQ(result.totals.faults, 8 * num_samples);
  if (GetParam().method == Method::kPearl) {
    EXPECT_GT(result.totals.holds, num_samples);
  }
}

std::vector<LawCase> LossCases() {
  std::vector<LawCase> cases;
  for (const Method method : {Method::kSd, Method::kPearl, Method::kAsync}) {
    for (const DraftKind kind : {DraftKind::kGood, DraftKind::kFair}) {
      for (const bool ends : {false, true}) {
        cases.push_back({method, kind, /*loses_all=*/true, ends});
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Cases, ProtocolRatioLoss,
                         ::testing::ValuesIn(LossCases()), NameOf);

std::vector<LawCase> LawCases() {
  std::vector<LawCase> cases;
  for (const Method method : {Method::kSd, Method::kPearl, Method::kAsync}) {
    for (int kind = 0; kind < kNumDraftKinds; ++kind) {
      cases.push_back({method, static_cast<DraftKind>(kind)});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Cases, ProtocolRatioLaw,
                         ::testing::ValuesIn(LawCases()), NameOf);

// Every length policy with every kind of draft; without a policy the perfect
// one, of which each token is right (the others: ProtocolRatioLaw).
class ProtocolRatioQuiet : public ::testing::TestWithParam<LawCase> {};

TEST_P(ProtocolRatioQuiet, IsTheTargetsOwn) {
  // Bugs of the rule show with 3,000 (mutants_test.cc).
  const int samples = num_samples * 3 / 5;
  const bool has_policy = *GetParam().policy != '\0';
  for (int kind = 0; kind < (has_policy ? kNumDraftKinds : 1); ++kind) {
    LawCase law_case = GetParam();
    law_case.draft_kind = static_cast<DraftKind>(kind);
    law_case.ends = has_policy && kind % 2 == 1;
    const LawResult result = MeasureLaw(law_case, samples);
    ASSERT_EQ(result.failure, "");
    EXPECT_LT(result.deviation_of.FirstPair(), kLawCritical) << kKinds[kind];
    EXPECT_LT(result.deviation_of.LaterGivenPrefix(), kLawCritical)
        << kKinds[kind];
    if (law_case.method == Method::kAr) continue;
    EXPECT_GT(result.totals.verified, samples / 4) << kKinds[kind];
    // What is compared only after the target has drawn by itself may differ.
    if (law_case.draft_kind == DraftKind::kPerfect &&
        law_case.method != Method::kAsync) {
      EXPECT_GT(result.totals.accepted, result.totals.verified * 9 / 10);
    }
  }
}

std::string NameOfQuiet(const ::testing::TestParamInfo<LawCase>& info) {
  std::string name =
      absl::StrCat(std::string(speculation::MethodName(info.param.method)),
                   info.param.window, "_", info.param.policy);
  for (char& c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

std::vector<LawCase> QuietCases() {
  std::vector<LawCase> cases = {{.method = Method::kAr, .is_quiet = true}};
  for (const Method method : {Method::kSd, Method::kPearl, Method::kAsync}) {
    for (const int window : {1, 3}) {
      cases.push_back({.method = method, .is_quiet = true, .window = window});
    }
    for (const char* policy :
         {"heuristic:start=2", "svip:h=0.3", "beta-ts", "cali-ts", "load"}) {
      cases.push_back({.method = method, .is_quiet = true, .policy = policy});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Cases, ProtocolRatioQuiet,
                         ::testing::ValuesIn(QuietCases()), NameOfQuiet);

int Main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    absl::string_view arg = argv[i];
    if (!absl::ConsumePrefix(&arg, "--samples=") ||
        !absl::SimpleAtoi(arg, &num_samples)) {
      std::fprintf(stderr, "unknown argument %s\n", argv[i]);
      return 2;
    }
  }
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace nacre::protocol

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return nacre::protocol::Main(argc, argv);
}
