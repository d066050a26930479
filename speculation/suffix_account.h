// What the target's own drafts, of suffixes and of heads, cost a session and
// give it. The law: whatever the text, they cost a session at most kShare of
// each of its steps, and kCredit once. Trust in a match (suffix_draft.h) or in
// a score (head_draft.h) is an estimate, and the price rule (step_rows.h)
// believes it. This bounds what it costs where it is wrong.
//
// The unit is a step of the session as it is without its own drafts.
//
// Pure.

#ifndef SPECULATION_SUFFIX_ACCOUNT_H_
#define SPECULATION_SUFFIX_ACCOUNT_H_

#include "speculation/estimators.h"

namespace nacre::speculation {

class SuffixAccount {
 public:
  static constexpr double kShare = 0.01;
  static constexpr double kCredit = 0.5;
  // Most that good proposals can earn for bad ones.
  static constexpr double kMost = 4;

  // What its own drafts may cost in the next step.
  double budget() const { return budget_; }
  // What a token that they give is worth: the fewer, the more tokens a step
  // gives without them.
  double worth() const { return steps_ / tokens_; }

  // A step of `sessions` begins with `rows`, the last `count` of them its
  // own nodes: pays for as many of these as it can. Returns how
  // many.
  int Pay(int sessions, int rows, int count, const StepTimeCurve& times);
  // Something else than rows has cost so much.
  void Spend(double steps) { budget_ -= steps; }
  // It committed so many tokens, `accepted` of them from its own drafts.
  void OnStep(int committed, int accepted);

 private:
  double budget_ = kCredit;
  // Of the last steps, with the tokens that its own drafts did not give.
  double steps_ = 1;
  double tokens_ = 1;
};

}  // namespace nacre::speculation

#endif  // SPECULATION_SUFFIX_ACCOUNT_H_
