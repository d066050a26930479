// What makes the models of two targets differ: then the same request would get
// other tokens from each of them.
//
// Thread-safe: a pure function.

#ifndef COORDINATOR_FLEET_MODEL_MISMATCH_H_
#define COORDINATOR_FLEET_MODEL_MISMATCH_H_

#include "absl/status/status.h"
#include "coordinator/fleet/worker_info.h"

namespace nacre::coordinator {

// OK, or FAILED_PRECONDITION "MODEL_MISMATCH: ...", which says what of `target`
// is unlike `other`. That is the checkpoint (config.json or weights) or the end
// tokens (eos_token_id of config.json or generation_config.json).
absl::Status CheckSameModel(const WorkerInfo& target, const WorkerInfo& other);

}  // namespace nacre::coordinator

#endif  // COORDINATOR_FLEET_MODEL_MISMATCH_H_
