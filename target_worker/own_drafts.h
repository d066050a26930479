// What sessions of the target draft from besides their draft's tails: suffixes,
// and heads over the target's hidden states, or a draft over its features.
//
// Owned by the engine, used by its thread.

#ifndef TARGET_WORKER_OWN_DRAFTS_H_
#define TARGET_WORKER_OWN_DRAFTS_H_

#include "target_worker/suffix_memory.h"

namespace nacre::target_worker {

struct EngineSession;  // engine_session.h

class OwnDrafts {
 public:
  // Outlives it.
  explicit OwnDrafts(const SuffixMemory* suffixes) : suffixes_(suffixes) {}

  // Where the draft of a session has no token for its next step: nodes of its
  // own, those that are worth a row. `row_price`: what one costs, in steps.
  void Propose(EngineSession& session, double row_price) const;

 private:
  const SuffixMemory* const suffixes_;
};

}  // namespace nacre::target_worker

#endif  // TARGET_WORKER_OWN_DRAFTS_H_
