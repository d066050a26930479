// A target engine over a table model whose sessions draft from a drafter over
// its features, or its keys and values, that knows what the target says.

#ifndef TESTS_TARGET_WORKER_FEATURES_FIXTURE_H_
#define TESTS_TARGET_WORKER_FEATURES_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tests/target_worker/knowing_drafter.h"
#include "tests/target_worker/own_drafts_fixture.h"
#include "tests/target_worker/target_fixture.h"

namespace nacre::target_worker {

struct DrafterHolder {
  std::unique_ptr<KnowingDrafter> drafter;
};

struct Features : DrafterHolder, TargetFixture {
  // `percent_a_row`: what a row more costs, of a step of one. `over_kv`: the
  // drafter reads keys and values.
  explicit Features(nacre::testing::TableModelOptions model_options,
                    int percent_a_row = 1, bool with_suffixes = false,
                    worker::StepBudget budget = {}, bool over_kv = false)
      : TargetFixture(std::move(model_options), budget, nullptr, nullptr, true,
                      0, [&](TargetEngine::Options* options) {
                        drafter =
                            std::make_unique<KnowingDrafter>(&model, over_kv);
                        options->feature_drafter = drafter.get();
                        options->suffixes = with_suffixes;
                      }) {
    // A call takes no time of this clock, which goes on when it is read.
    drafter->on_call = [this](int reads) { now_ns -= 10 * reads; };
    engine->LearnStepTimes(std::vector<worker::StepTime>{
        {1, 10}, {512, 10 + 511 * int64_t{percent_a_row} / 10}});
  }

  // Returns what ar says.
  std::vector<int32_t> Begin(const OpenTarget& open) {
    std::vector<int32_t> said = Autoregressive(model, open);
    Open(open);
    return said;
  }

  int Accepted() const {
    int accepted = 0;
    for (const speculation::Verdict& verdict : verdicts) {
      accepted += verdict.suffix_accepted;
    }
    return accepted;
  }

  int Proposed() const {
    int proposed = 0;
    for (const speculation::Verdict& verdict : verdicts) {
      proposed += verdict.suffix_proposed;
    }
    return proposed;
  }
};

}  // namespace nacre::target_worker

#endif  // TESTS_TARGET_WORKER_FEATURES_FIXTURE_H_
