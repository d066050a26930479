// Shows heads that guess several tokens ahead (model/future_heads.h) the hidden
// state that a session's last committed token was drawn from. Ranks what they
// say by the score that the target will draw with.
//
// Owned by the engine, used by its thread.

#ifndef TARGET_WORKER_HEAD_DRAFTS_H_
#define TARGET_WORKER_HEAD_DRAFTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "model/future_heads.h"
#include "model/language_model.h"
#include "speculation/head_draft.h"
#include "speculation/ranks.h"
#include "speculation/tree_spec.h"
#include "target_worker/look_turns.h"
#include "target_worker/step.h"
#include "target_worker/target_messages.h"
#include "worker/engine/clock.h"

namespace nacre::target_worker {

struct EngineSession;  // engine_session.h

class HeadDrafts {
 public:
  // All outlive it.
  struct Parts {
    model::LanguageModel* model = nullptr;
    model::FutureHeads* heads = nullptr;  // null: no session has any
    worker::Clock now_ns;
  };
  // `tree`: best, or a static list.
  HeadDrafts(Parts parts, speculation::TreeSpec tree);

  // Of a session that was opened so: whether it drafts from heads.
  void Open(EngineSession& session, const OpenTarget& open);

  // After the verdicts of a step, which took so long, and before the model's
  // next forward. Asks the heads what they say after the text of the sessions
  // that will want to know. These sessions pay for the time.
  void Look(const Step& step, double row_price, int64_t step_ns);
  // The session is being closed: what its looks have earned serves others.
  void Close(EngineSession& session);

 private:
  // Of at most LookTurns::kMaxSessions.
  void LookAt(absl::Span<EngineSession* const> sessions,
              const kernels::FloatView& hidden);
  void Rank(EngineSession& session, int row, int num_rows,
            absl::Span<const float> logits);

  const Parts parts_;
  const speculation::TreeSpec tree_;
  std::array<speculation::HeadCalibrations, speculation::kTemperatureKinds>
      calibrations_;
  LookTurns turns_;
  // Of the look being made.
  std::vector<float> hidden_;
  std::vector<speculation::HeadCandidates> said_;
};

}  // namespace nacre::target_worker

#endif  // TARGET_WORKER_HEAD_DRAFTS_H_
