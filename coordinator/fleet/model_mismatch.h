// What makes the models of two targets differ: then the same request would get
// other tokens from each of them. And what may surprise of one worker.
//
// Thread-safe: pure functions.

#ifndef COORDINATOR_FLEET_MODEL_MISMATCH_H_
#define COORDINATOR_FLEET_MODEL_MISMATCH_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "coordinator/fleet/worker_info.h"

namespace nacre::coordinator {

// OK, or FAILED_PRECONDITION "MODEL_MISMATCH: ...", which says what of `target`
// is unlike `other`. That is the checkpoint (config.json or weights) or the end
// tokens (eos_token_id of config.json or generation_config.json).
absl::Status CheckSameModel(const WorkerInfo& target, const WorkerInfo& other);

// Empty, or a warning: the model of `draft` lacks token ids of the tokenizer,
// which has `vocab_size`. No token of an answer depends on it, but a draft that
// helps with no chat, and says nothing, is a riddle.
std::string LackedIdsWarning(const WorkerInfo& draft, int vocab_size);

// The same: the texts of `target` may be longer than those of `draft`.
std::string ShortContextWarning(const WorkerInfo& draft,
                                const WorkerInfo& target);

// Empty, or a warning: the tokenizer names a token that ends texts, `end_id`,
// and the target goes on behind it, as its checkpoint says.
std::string EndTokenWarning(const WorkerInfo& target,
                            std::optional<int32_t> end_id,
                            absl::string_view end_piece);

}  // namespace nacre::coordinator

#endif  // COORDINATOR_FLEET_MODEL_MISMATCH_H_
