// What looks of a worker's sessions (target_worker/look_turns.h) have earned
// and not used: kept for sessions whose own account (suffix_account.h) cannot
// pay a look. A request begins with so little that one look which was in vain
// may be its last. Where looks of others were worth it, it may look again.
//
// The law, of sessions that share a purse: at any time their own drafts have
// cost all of them together at most what it is without a purse, kShare of each
// of their steps and kCredit a session. For a session gets no more than others
// have put in, out of their own accounts. So
//
//   one session       loses at most SuffixAccount::kMostDrawn more,
//   all from now on,  whatever comes, at most kMost more.
//
// Only what looks gave goes in. Of a draft that is never right the purse stays
// empty, and each session is bounded as without it. It need not decay with
// time: kMost bounds how long it remembers that a draft was good.
//
// Pure.

#ifndef SPECULATION_OWN_PURSE_H_
#define SPECULATION_OWN_PURSE_H_

#include "speculation/suffix_account.h"

namespace nacre::speculation {

class OwnPurse {
 public:
  // In steps. As much as four sessions may draw.
  static constexpr double kMost = 4 * SuffixAccount::kMostDrawn;

  double held() const { return held_; }

  // What an account gave. Beyond kMost it is lost.
  void Put(double steps);
  // Gives the account what it lacks of a budget of so much: all of it, or
  // nothing where it has too little or the account may not draw as much.
  // Returns whether the account has so much now.
  bool FillUp(double steps, SuffixAccount* account);

 private:
  double held_ = 0;
};

}  // namespace nacre::speculation

#endif  // SPECULATION_OWN_PURSE_H_
