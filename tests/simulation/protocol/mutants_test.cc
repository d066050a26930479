// Bugs planted one at a time (mutants.cmake): the simulation finds each of them
// within a few seeds, and nothing in the same seeds without them.

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "tests/simulation/protocol/ratio_law.h"
#include "tests/simulation/protocol/world.h"
#include "tests/testing/child_run.h"
#include "tests/testing/mutant.h"

namespace nacre::protocol {
namespace {

constexpr uint64_t kSeeds = 10'000;

struct MeasuredLaw {
  LawCase law_case;
  int num_samples;
};
constexpr MeasuredLaw kLaws[] = {
    {{speculation::Method::kSd, DraftKind::kAdversarial}, 3'000},
    {{speculation::Method::kSd, DraftKind::kFair, /*loses_all=*/false,
      /*ends=*/false, /*swaps_draft=*/true},
     3'000},
    {{speculation::Method::kSd, DraftKind::kGood, /*loses_all=*/true,
      /*ends=*/true},
     20'000},
    {{speculation::Method::kPearl, DraftKind::kFair, /*loses_all=*/true},
     40'000},
};

// Whether what clients get by the ratio test has another law than the target's.
bool HasAnotherLaw(const std::string& mutant, const MeasuredLaw& law) {
  const LawResult result = MeasureLaw(law.law_case, law.num_samples);
  const double pair = result.deviation_of.FirstPair();
  const double later = result.deviation_of.LaterGivenPrefix();
  if (!result.failure.empty()) {
    std::printf("%s: %s\n", mutant.c_str(), result.failure.c_str());
    return true;
  }
  if (std::max(pair, later) < kLawCritical) return false;
  std::printf("%s: the law deviates by %.1f and %.1f\n", mutant.c_str(), pair,
              later);
  return true;
}

// What may crash, and no invariant breaks before.
const std::set<std::string>& MayCrash() {
  static const auto& names = *new std::set<std::string>{
      "kv_of_a_finished_session",  // whose keys are gone: it reads through null
  };
  return names;
}

// Runs seeds until an invariant breaks; whether one did, or the law. In a
// process of its own: a planted bug may also end it, in a check of the code
// itself.
bool FindsABug(const std::string& mutant) {
  const auto run = nacre::testing::RunInChild([&](std::FILE*) {
    active_mutant = mutant;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      const Outcome outcome = RunSchedule(RandomSchedule(seed));
      if (outcome.failure.empty()) continue;
      std::printf("%s: seed %llu: %s\n", mutant.c_str(),
                  static_cast<unsigned long long>(seed),
                  outcome.failure.c_str());
      std::fflush(stdout);
      _exit(1);
    }
    bool has_another_law = false;
    for (const MeasuredLaw& law : kLaws) {
      has_another_law = has_another_law || HasAnotherLaw(mutant, law);
    }
    std::fflush(stdout);
    _exit(has_another_law ? 1 : 0);
  });
  EXPECT_TRUE(!run.crashed() || MayCrash().count(mutant) == 1)
      << mutant << " crashed: " << run.How();
  return !run.finished();
}

class Mutants : public ::testing::TestWithParam<std::string> {};

TEST_P(Mutants, IsFound) { EXPECT_TRUE(FindsABug(GetParam())); }

INSTANTIATE_TEST_SUITE_P(All, Mutants,
                         ::testing::ValuesIn(std::vector<std::string>(
                             absl::StrSplit(NACRE_MUTANTS, ','))),
                         [](const ::testing::TestParamInfo<std::string>& info) {
                           return info.param;
                         });

TEST(NoMutant, IsClean) { EXPECT_FALSE(FindsABug("")); }

}  // namespace
}  // namespace nacre::protocol
