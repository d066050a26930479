#include "speculation/suffix_account.h"

#include <algorithm>

#include "speculation/step_rows.h"

namespace nacre::speculation {

int SuffixAccount::Pay(int sessions, int rows, int count,
                       const StepTimeCurve& times) {
  const auto cost = [&] { return CostOfRows(sessions, rows, count, times); };
  while (count > 0 && cost() > budget_) {
    --count;
    --rows;
  }
  budget_ -= cost();
  return count;
}

void SuffixAccount::OnStep(int committed, int accepted) {
  constexpr double kMemory = 32;  // steps
  budget_ = std::min(kMost, budget_ + kShare + accepted * worth());
  if (steps_ >= kMemory) {
    steps_ *= 1 - 1 / kMemory;
    tokens_ *= 1 - 1 / kMemory;
  }
  steps_ += 1;
  tokens_ += committed - accepted;
}

}  // namespace nacre::speculation
