// What the target makes of the tokens of a step: the verdict on the draft's,
// what of the KV and the history stays, and spans. Under the ratio test a
// verdict may wait for what the draft says next.
//
// Owned by the engine, used by its thread.

#ifndef TARGET_WORKER_STEP_VERDICTS_H_
#define TARGET_WORKER_STEP_VERDICTS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "speculation/pipeline.h"
#include "target_worker/hidden_taps.h"
#include "target_worker/row_sampler.h"
#include "target_worker/step.h"
#include "target_worker/target_messages.h"
#include "wire/session_events.h"
#include "worker/engine/event_outbox.h"
#include "worker/engine/session_accounts.h"
#include "worker/engine/session_table.h"

namespace nacre::target_worker {

class StepVerdicts {
 public:
  using Session = EngineSession;
  // All outlive it.
  struct Parts {
    worker::SessionTable* table = nullptr;
    worker::SessionAccounts* accounts = nullptr;
    worker::EventOutbox<TargetEvents>* events = nullptr;
    RowSampler* sampler = nullptr;
    HiddenTaps* hidden = nullptr;
  };
  explicit StepVerdicts(const Parts& parts) : parts_(parts) {}

  // Of all sessions of the step that has run.
  void FinishStep(const Step& step, int64_t start_ns, int64_t end_ns);
  // Ends the held steps whose last row has something to judge, or will not.
  void EndHolds(int64_t now_ns);

 private:
  // `span` has the times and the batch.
  void FinishSession(Session& session, wire::Span span);
  // Tells what was accepted before the last row and holds that; `span` as of
  // FinishVerify.
  void HoldLastRow(Session& session, absl::Span<const float> logits,
                   wire::Span span);
  // Ends the session's step; `span` lacks what the verdict says. Returns how
  // many tokens it committed.
  int FinishVerify(Session& session, wire::Span span);
  // What of the KV of the step's rows stands for committed tokens.
  void KeepRows(Session& session, int base_length, int matched);
  // Of the rows of the prompt that the step has computed.
  void SendPromptLogprobs(Session& session);
  void SendVerdict(Session& session, speculation::Verdict verdict);

  const Parts parts_;
};

}  // namespace nacre::target_worker

#endif  // TARGET_WORKER_STEP_VERDICTS_H_
