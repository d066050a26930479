// What the draft makes of a step's proposals: tokens of chains, children of
// trees, and the tails that tell the target of them.
//
// Owned by the engine, used by its thread.

#ifndef DRAFT_WORKER_ROW_DRAFTER_H_
#define DRAFT_WORKER_ROW_DRAFTER_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "draft_worker/draft_messages.h"
#include "draft_worker/score_calibrations.h"
#include "draft_worker/step.h"
#include "model/drafter.h"
#include "speculation/draft_length.h"
#include "speculation/pipeline.h"
#include "worker/engine/event_outbox.h"
#include "worker/engine/session_accounts.h"
#include "worker/engine/session_table.h"
#include "worker/engine/soundness.h"
#include "worker/engine/step_tap.h"

namespace nacre::draft_worker {

class RowDrafter {
 public:
  using Session = EngineSession;
  // All outlive it.
  struct Parts {
    worker::SessionTable* table = nullptr;
    worker::SessionAccounts* accounts = nullptr;
    worker::Soundness* soundness = nullptr;
    worker::EventOutbox<DraftEvents>* events = nullptr;
    ScoreCalibrations* calibrations = nullptr;
    worker::StepTap* tap = nullptr;  // null: none
  };
  // `ranks_chains`: whether nodes of chains have all their candidates.
  RowDrafter(const Parts& parts, bool ranks_chains)
      : parts_(parts), ranks_chains_(ranks_chains) {}

  // For all of the step. Chunks of prompts have a proposal, too, which is only
  // looked at: it depends on all KV of the chunk.
  void DraftAll(const Step& step, absl::Span<const model::Proposal> proposals);

 private:
  // Takes the session's next token from the proposal, unless a commit has made
  // it pointless.
  void Draft(Session& session, const model::Proposal& proposal);
  // The token, and its law under the ratio test.
  struct Drawn {
    int32_t token_id = 0;
    speculation::DraftDistribution distribution;
  };
  // Draws it and asks the session's length policy, before or after.
  speculation::LengthDecision Draw(Session& session,
                                   const model::Proposal& proposal,
                                   Drawn* drawn);
  // ... its nodes' children, one proposal for each.
  void DraftTreeRows(Session& session,
                     absl::Span<const model::Proposal> proposals);
  // Asks its length policy of a node's likeliest child, which is on the main
  // path. A tree ranks by the draft's probability where it has a policy.
  static speculation::LengthDecision DecideDepth(
      Session& session, const model::Proposal& proposal, int32_t token_id);
  // With the ranks that are untold yet.
  void SendTail(Session& session, speculation::Tail tail);
  static void TellRanks(Session& session, DraftEvents* events);

  const Parts parts_;
  const bool ranks_chains_;
  std::vector<int32_t> candidates_;  // of one proposal
};

}  // namespace nacre::draft_worker

#endif  // DRAFT_WORKER_ROW_DRAFTER_H_
