// What the dispatcher tells operators of its workers and requests.

#ifndef COORDINATOR_DISPATCH_STATUS_VIEWS_H_
#define COORDINATOR_DISPATCH_STATUS_VIEWS_H_

#include <cstdint>
#include <string>

#include "absl/types/optional.h"
#include "coordinator/fleet/worker_info.h"
#include "speculation/pipeline.h"

namespace nacre::coordinator {

struct WorkerStatus {
  uint64_t id = 0;
  WorkerInfo info;
  bool ready = false;
  int sessions = 0;
  int64_t reserved_tokens = 0;  // KV promised there
  int max_sessions = 0;         // at once; 0: as many as its KV holds
};

// What requests lack.
struct Demand {
  // KV, in tokens, that those without a target need there, and that the
  // sessions without a draft need for their texts at one.
  int64_t target_tokens = 0;
  int64_t draft_tokens = 0;
  // Sessions on a target whose method asks for a draft and that have none.
  int without_draft = 0;
  bool expects_draft = false;  // a draft was ever in service
};

struct SessionStatus {
  uint64_t id = 0;
  std::string request_id;
  int choice = 0;
  speculation::Method method = speculation::Method::kAsync;
  int prompt_tokens = 0;
  int generated_tokens = 0;
  std::string target_address;
  std::string draft_address;  // empty without a draft
  // Set while it waits for room: the requests before it.
  absl::optional<int> queue_position;
};

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_STATUS_VIEWS_H_
