// What the target's own drafts, of suffixes and of heads, cost a session and
// give it. The law: whatever the text, they cost a session at most kShare of
// each of its steps, and kCredit once. Trust in a match (suffix_draft.h) or in
// a score (head_draft.h) is an estimate, and the price rule (step_rows.h)
// believes it. This bounds what it costs where it is wrong.
//
// A session may also draw from a purse (own_purse.h), at most kMostDrawn in its
// life. So much more its drafts can cost it, and no more than looks of other
// sessions have earned.
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
  static constexpr double kMostDrawn = 2;

  // What its own drafts may cost in the next step.
  double budget() const { return budget_; }
  // What a token that they give is worth: the fewer, the more tokens a step
  // gives without them.
  double worth() const { return steps_ / tokens_; }

  // A step of `sessions` begins with `rows`, the last `count` of them its
  // own nodes: pays for as many of these as it can. Returns how
  // many.
  int Pay(int sessions, int rows, int count, const StepTimeCurve& times);
  // A look, which is more than rows, has cost so much.
  void Spend(double steps);
  // It committed so many tokens, `accepted` of them from its own drafts, and of
  // these `looked` because of the last look alone.
  void OnStep(int committed, int accepted, int looked = 0);

  // What it may still draw from a purse.
  double may_draw() const { return kMostDrawn - drawn_; }
  void Draw(double steps);
  // Takes out what may go to a purse: what looks have earned beyond what they
  // and their rows cost, and it has no room for. What suffixes and steps have
  // earned is not among it.
  double TakeSurplus();
  // The session ends: with what it had room for.
  double TakeAll();

 private:
  double budget_ = kCredit;
  // Of the last steps, with the tokens that its own drafts did not give.
  double steps_ = 1;
  double tokens_ = 1;

  bool has_looked_ = false;  // since the last step
  double gain_ = 0;          // of looks, and what was drawn; not what was taken
  double surplus_ = 0;
  double drawn_ = 0;
};

}  // namespace nacre::speculation

#endif  // SPECULATION_SUFFIX_ACCOUNT_H_
