// Chooses the sessions of a step for which the target drafts ahead from its own
// features: by heads (head_drafts.h) or by a draft (feature_drafts.h). Such a
// look takes time, which the sessions that get one share and pay for: from
// their own accounts, and what these lack from the purse that all of them fill
// (speculation/own_purse.h).
//
// Owned by the engine, used by its thread.

#ifndef TARGET_WORKER_LOOK_TURNS_H_
#define TARGET_WORKER_LOOK_TURNS_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "speculation/estimators.h"
#include "speculation/head_draft.h"
#include "speculation/own_purse.h"
#include "speculation/suffix_account.h"
#include "target_worker/step.h"
#include "worker/engine/clock.h"

namespace nacre::target_worker {

struct EngineSession;  // engine_session.h

// What a session's target would draw at `position` after its history, of
// logits that something else says; of count 0 where they are not sound.
speculation::HeadCandidates RankCandidates(EngineSession& session,
                                           absl::Span<const float> logits,
                                           int position);

class LookTurns {
 public:
  // Most sessions of a call.
  static constexpr int kMaxSessions = 8;
  // `ns_price`: what each of the step's sessions waits in a nanosecond, all
  // together, in steps.
  using Call = absl::FunctionRef<void(absl::Span<EngineSession* const> sessions,
                                      double ns_price)>;

  explicit LookTurns(worker::Clock now_ns) : now_ns_(std::move(now_ns)) {}

  // After the verdicts of a step, which took so long: calls `look` with the
  // sessions that will want to know, kMaxSessions at a time. They pay.
  void Run(const Step& step, double row_price, int64_t step_ns, Call look);
  // The session is being closed: what its looks have earned serves others.
  void Close(EngineSession& session);

 private:
  // A look is in vain where no row can be paid after it. With the purse there
  // is something for so many.
  static constexpr int kRowsOfALook = 4;

  static bool Wants(const EngineSession& session, double row_price);
  // What each of so many sessions pays for a look, in steps; 0: not yet known.
  double LookPrice(size_t sessions, double ns_price) const;
  // Whether the account can pay so much and a row, with what it gets from the
  // purse.
  static bool FillUp(speculation::SuffixAccount* account, double price,
                     double row_price, speculation::OwnPurse* purse);
  // Leaves of sessions_ those that can pay so much.
  void KeepWhoCanPay(double price, double row_price);
  // Leaves of sessions_ those that look.
  void ChooseWhoLooks(double ns_price, double row_price);

  const worker::Clock now_ns_;
  // Of a call, by its sessions.
  speculation::StepTimeCurve call_times_;
  bool was_measured_ = false;
  // Grows by SuffixAccount::kShare with each step that no session could pay a
  // look in; 0 again at a look.
  double saved_ = 0;
  speculation::OwnPurse purse_;
  std::vector<EngineSession*> sessions_;  // of the look being made
};

}  // namespace nacre::target_worker

#endif  // TARGET_WORKER_LOOK_TURNS_H_
