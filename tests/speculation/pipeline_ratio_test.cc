// The ratio test through the whole pipeline: the invariants in random schedules
// with faults, and the law of what is emitted, by method, policy and draft.

#include <cctype>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "speculation/policies/policy_spec.h"
#include "tests/speculation/pipeline_simulator.h"
#include "tests/testing/chi_square.h"
#include "tests/testing/sanitizers.h"

namespace nacre::speculation {
namespace {

using testing::ChiSquareDeviation;
using testing::kCriticalDeviation;

constexpr uint64_t kSchedules = testing::kIsSanitized ? 600 : 6000;
constexpr DraftKind kDraftKinds[] = {DraftKind::kEqual, DraftKind::kOther,
                                     DraftKind::kReversed, DraftKind::kNarrow,
                                     DraftKind::kSingle};

SimulatorOptions RandomRatioOptions(uint64_t seed) {
  SimulatorOptions options = RandomOptions(seed);
  options.verification = Verification::kRatio;
  options.draft_kind = kDraftKinds[seed % 5];
  options.vocabulary = 3 + static_cast<int>(seed % 40);
  if (InfoOf(ParsePolicySpec(options.policy)->kind()).looks_at_token) {
    options.policy = "svip";
  }
  return options;
}

std::string Report(SimulatorOptions options) {
  options.keep_trace = true;
  return absl::StrCat(Describe(options), "\n",
                      absl::StrJoin(Simulate(options).trace, "\n"));
}

TEST(PipelineRatio, KeepsTheInvariantsInRandomSchedules) {
  int64_t accepted = 0;
  int64_t holds = 0;
  int64_t stale = 0;
  for (uint64_t seed = 1; seed <= kSchedules; ++seed) {
    const SimulatorOptions options = RandomRatioOptions(seed);
    const SimulatorResult result = Simulate(options);
    ASSERT_EQ(result.failure, "") << Report(options);
    accepted += result.stats.accepted;
    holds += result.holds;
    stale += result.stats.stale_messages;
  }
  EXPECT_GT(accepted, static_cast<int64_t>(kSchedules));
  EXPECT_GT(holds, static_cast<int64_t>(kSchedules / 6));
  EXPECT_GT(stale, 0);
}

// A row that is held for a token that will not come shows as a session that
// does not end.
TEST(PipelineRatio, NeedsNoTimerUnlessTheDraftHangs) {
  int64_t holds = 0;
  for (uint64_t seed = 1; seed <= kSchedules / 3; ++seed) {
    SimulatorOptions options = RandomRatioOptions(seed);
    options.draft_hangs_at_ns.reset();
    options.gate_timeout_ns = int64_t{1} << 50;
    const SimulatorResult result = Simulate(options);
    ASSERT_EQ(result.failure, "") << Report(options);
    ASSERT_EQ(result.gate_timeouts, 0) << Report(options);
    holds += result.holds;
  }
  EXPECT_GT(holds, static_cast<int64_t>(kSchedules / 60));
}

// ---- The law ----

constexpr int kVocabulary = 4;
constexpr int kTokens = 4;
constexpr int kCells = 4 * 4 * 4 * 4;
constexpr int kSamples = testing::kIsSanitized ? 1000 : 8000;

// Streams that end early are padded with the end.
int CellOf(const std::vector<int32_t>& stream) {
  int cell = 0;
  for (int i = 0; i < kTokens; ++i) {
    cell = cell * kVocabulary +
           (i < static_cast<int>(stream.size()) ? stream[i] : 0);
  }
  return cell;
}

void AddProbabilities(const RatioModels& models, std::vector<int32_t> tokens,
                      int prompt_length, double probability,
                      std::vector<double>* cells) {
  const int generated = static_cast<int>(tokens.size()) - prompt_length;
  if (generated == kTokens || (generated > 0 && tokens.back() == 0)) {
    (*cells)[static_cast<size_t>(
        CellOf({tokens.begin() + prompt_length, tokens.end()}))] += probability;
    return;
  }
  const DraftDistribution law = models.Target(tokens);
  double sum = 0;
  for (const float weight : law.weights) sum += weight;
  for (const int32_t id : law.token_ids) {
    tokens.push_back(id);
    AddProbabilities(models, tokens, prompt_length,
                     probability * law.weights[static_cast<size_t>(id)] / sum,
                     cells);
    tokens.pop_back();
  }
}

struct LawCase {
  Method method;
  int window;
  std::string policy;
  bool faults;
};

std::string NameOf(const ::testing::TestParamInfo<LawCase>& info) {
  std::string name =
      absl::StrCat(MethodName(info.param.method), info.param.window, "_",
                   info.param.policy, info.param.faults ? "_faults" : "");
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

SimulatorOptions LawOptions(const LawCase& c, DraftKind kind, uint64_t seed) {
  SimulatorOptions options;
  options.seed = seed;
  options.verification = Verification::kRatio;
  options.draft_kind = kind;
  options.method = c.method;
  options.window = c.window;
  options.policy = c.policy;
  options.vocabulary = kVocabulary;
  options.max_tokens = kTokens;
  options.prompt_length = 2;
  // Who is first varies.
  options.target_step_ns = 1e6;
  options.draft_step_ns = 0.7e6;
  options.step_jitter = 1.5;
  options.draft_to_coordinator = {0, 500'000};
  options.coordinator_to_target = {0, 500'000};
  options.target_to_coordinator = {0, 500'000};
  options.coordinator_to_draft = {0, 500'000};
  if (!c.faults) return options;
  options.draft_death = 0.1;
  options.draft_exchange = 0.1;
  options.death_notice = {0, 2'000'000};
  options.reattach = {0, 2'000'000};
  options.repeated_message = 0.3;
  options.late_message = 0.3;
  options.malformed_message = 0.2;
  options.plan_change = 0.2;
  return options;
}

class RatioLaw : public ::testing::TestWithParam<LawCase> {};

TEST_P(RatioLaw, IsTheTargetsOwn) {
  for (const DraftKind kind : kDraftKinds) {
    const RatioModels models(kVocabulary, kind);
    std::vector<double> exact(kCells, 0.0);
    AddProbabilities(models, {2, 2}, 2, 1.0, &exact);
    std::vector<int> counts(kCells, 0);
    int64_t verified = 0;
    int64_t accepted = 0;
    for (int sample = 0; sample < kSamples; ++sample) {
      const SimulatorOptions options =
          LawOptions(GetParam(), kind, static_cast<uint64_t>(sample) + 1);
      const SimulatorResult result = Simulate(options);
      ASSERT_EQ(result.failure, "") << Describe(options);
      ++counts[static_cast<size_t>(CellOf(result.streams[0]))];
      verified += result.stats.verified;
      accepted += result.stats.accepted;
    }
    EXPECT_LT(ChiSquareDeviation(exact, counts), kCriticalDeviation)
        << "draft " << static_cast<int>(kind);
    if (GetParam().method == Method::kAr) continue;
    EXPECT_GT(verified, kSamples / 4);
    // What is compared only after the target has drawn by itself may differ.
    if (kind == DraftKind::kEqual && GetParam().method != Method::kAsync &&
        !GetParam().faults) {
      EXPECT_GT(accepted, verified * 9 / 10);
    }
  }
}

std::vector<LawCase> LawCases() {
  std::vector<LawCase> cases = {{Method::kAr, 1, "", false}};
  for (const Method method : {Method::kSd, Method::kPearl, Method::kAsync}) {
    for (const int window : {1, 3}) {
      cases.push_back({method, window, "", false});
      cases.push_back({method, window, "", true});
    }
    for (const char* policy :
         {"heuristic:start=2", "svip:h=0.3", "beta-ts", "cali-ts", "load"}) {
      cases.push_back({method, 3, policy, false});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Cases, RatioLaw, ::testing::ValuesIn(LawCases()),
                         NameOf);

// The test sees a draft that draws with the numbers of the acceptance test.
TEST(RatioLawTest, IsAnotherWhereNumbersAreReused) {
  const LawCase c = {Method::kSd, 3, "", false};
  const RatioModels models(kVocabulary, DraftKind::kReversed);
  std::vector<double> exact(kCells, 0.0);
  AddProbabilities(models, {2, 2}, 2, 1.0, &exact);
  std::vector<int> counts(kCells, 0);
  for (uint64_t seed = 1; seed <= 8000; ++seed) {
    SimulatorOptions options = LawOptions(c, DraftKind::kReversed, seed);
    options.mutation = SimulatorOptions::Mutation::kReuseNumbers;
    ++counts[static_cast<size_t>(CellOf(Simulate(options).streams[0]))];
  }
  EXPECT_GT(ChiSquareDeviation(exact, counts), 10.0);
}

}  // namespace
}  // namespace nacre::speculation
