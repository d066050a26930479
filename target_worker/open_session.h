// Makes a session of the target of what a coordinator asks for, or says why
// not.
//
// The engine's thread.

#ifndef TARGET_WORKER_OPEN_SESSION_H_
#define TARGET_WORKER_OPEN_SESSION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "model/language_model.h"
#include "model/sampling_scratch.h"
#include "speculation/plan.h"
#include "target_worker/target_messages.h"

namespace nacre::target_worker {

struct EngineSession;  // engine_session.h

// All outlive the session.
struct SessionParts {
  model::LanguageModel* model = nullptr;
  model::SamplingScratch* scratch = nullptr;
  // Whether its hidden states are recorded, which is done of chains.
  bool is_recorded = false;
};

// `plan`: the one that the session follows, not what `open` asks for. Moves
// from `open`. INVALID_ARGUMENT, RESOURCE_EXHAUSTED: see worker.proto.
absl::StatusOr<std::unique_ptr<EngineSession>> OpenSession(
    OpenTarget& open, const speculation::TargetPlan& plan,
    const SessionParts& parts);

}  // namespace nacre::target_worker

#endif  // TARGET_WORKER_OPEN_SESSION_H_
