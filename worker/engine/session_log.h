// A worker's log of its sessions, at level debug: what happened to which
// request. No line holds a token, nor a message that may repeat one.
//
// Any thread; does not block.

#ifndef WORKER_ENGINE_SESSION_LOG_H_
#define WORKER_ENGINE_SESSION_LOG_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "wire/session_events.h"

namespace nacre::worker {

// With so many tokens, of which the prefix cache had `num_cached`.
void LogSessionOpened(const std::string& request_id, uint64_t session_id,
                      size_t num_tokens, int num_cached);

// `event`: "session closed" and the like.
void LogSession(const char* event, const std::string& request_id,
                uint64_t session_id,
                absl::optional<absl::StatusCode> status = absl::nullopt);

// What of a message was left out, and why.
void LogMalformed(const std::vector<wire::Malformed>& parts);

}  // namespace nacre::worker

#endif  // WORKER_ENGINE_SESSION_LOG_H_
