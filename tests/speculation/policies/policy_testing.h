// What the tests of the policies share: chunks drafted without any model.

#ifndef TESTS_SPECULATION_POLICIES_POLICY_TESTING_H_
#define TESTS_SPECULATION_POLICIES_POLICY_TESTING_H_

#include <functional>
#include <memory>
#include <utility>

#include "speculation/draft_length.h"
#include "speculation/policies/length_policy.h"

namespace nacre::speculation {

inline constexpr int kNoCap = 1'000'000;

// Takes turns, as sd does: drafts a chunk to its end, then hears the verdict.
class TurnTaker {
 public:
  explicit TurnTaker(std::unique_ptr<LengthPolicy> policy, int max = kNoCap)
      : length_(std::move(policy), max) {}

  // The length of the next chunk; `row(i)` is that of its i-th token.
  int Draft(const std::function<DraftRow(int)>& row = [](int) {
    return DraftRow();
  }) {
    drafted_ = 0;
    while (true) {
      const LengthDecision decision = length_.Decide(row(drafted_));
      if (decision == LengthDecision::kDiscard) return drafted_;
      ++drafted_;
      if (decision == LengthDecision::kStop) return drafted_;
    }
  }

  // Of the last chunk so many tokens were accepted.
  void Verify(int accepted) {
    const bool rejected = accepted < drafted_;
    length_.OnCommit({accepted, rejected, !rejected});
  }

  DraftLength& length() { return length_; }

 private:
  DraftLength length_;
  int drafted_ = 0;
};

}  // namespace nacre::speculation

#endif  // TESTS_SPECULATION_POLICIES_POLICY_TESTING_H_
