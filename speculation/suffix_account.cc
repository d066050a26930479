#include "speculation/suffix_account.h"

#include <algorithm>
#include <utility>

#include "speculation/step_rows.h"

namespace nacre::speculation {

int SuffixAccount::Pay(int sessions, int rows, int count,
                       const StepTimeCurve& times) {
  const auto cost = [&] { return CostOfRows(sessions, rows, count, times); };
  while (count > 0 && cost() > budget_) {
    --count;
    --rows;
  }
  const double paid = cost();
  budget_ -= paid;
  // Those of suffixes, too: it gains no more than it says.
  if (has_looked_) gain_ -= paid;
  return count;
}

void SuffixAccount::Spend(double steps) {
  budget_ -= steps;
  gain_ -= steps;
  has_looked_ = true;
}

void SuffixAccount::OnStep(int committed, int accepted, int looked) {
  constexpr double kMemory = 32;  // steps
  budget_ += kShare + accepted * worth();
  if (std::exchange(has_looked_, false)) gain_ += looked * worth();
  if (budget_ > kMost) {
    const double given = std::clamp(gain_, 0.0, budget_ - kMost);
    gain_ -= given;
    surplus_ += given;
    budget_ = kMost;
  }
  if (steps_ >= kMemory) {
    steps_ *= 1 - 1 / kMemory;
    tokens_ *= 1 - 1 / kMemory;
  }
  steps_ += 1;
  tokens_ += committed - accepted;
}

void SuffixAccount::Draw(double steps) {
  drawn_ += steps;
  budget_ += steps;
  // What it does not need goes back.
  gain_ += steps;
}

double SuffixAccount::TakeSurplus() { return std::exchange(surplus_, 0.0); }

double SuffixAccount::TakeAll() {
  const double given = std::max(0.0, std::min(gain_, budget_));
  gain_ -= given;
  budget_ -= given;
  return given + TakeSurplus();
}

}  // namespace nacre::speculation
