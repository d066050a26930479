// Makes a session of the draft of what a coordinator asks for, or says why not.
//
// The engine's thread.

#ifndef DRAFT_WORKER_OPEN_SESSION_H_
#define DRAFT_WORKER_OPEN_SESSION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "draft_worker/draft_messages.h"
#include "draft_worker/policy_library.h"
#include "model/drafter.h"
#include "model/sampling_scratch.h"

namespace nacre::draft_worker {

struct EngineSession;  // engine_session.h

// All outlive the session.
struct SessionParts {
  model::Drafter* drafter = nullptr;
  PolicyLibrary* policies = nullptr;
  model::SamplingScratch* scratch = nullptr;
  // Whether what it does is recorded, which is done of chains.
  bool is_recorded = false;
  // Whether its policy could be given the target's hidden states.
  bool can_read_hidden = false;
};

// Moves from `open`. INVALID_ARGUMENT, RESOURCE_EXHAUSTED, FAILED_PRECONDITION:
// see worker.proto.
absl::StatusOr<std::unique_ptr<EngineSession>> OpenSession(
    OpenDraft& open, const SessionParts& parts);

}  // namespace nacre::draft_worker

#endif  // DRAFT_WORKER_OPEN_SESSION_H_
