// What a draft must have for a text to be taken there. It may stop short of its
// end: the target then goes on alone.
//
// Thread-safe: pure functions.

#ifndef COORDINATOR_DISPATCH_DRAFT_NEEDS_H_
#define COORDINATOR_DISPATCH_DRAFT_NEEDS_H_

#include <cstdint>

#include "coordinator/dispatch/request.h"
#include "coordinator/fleet/worker_info.h"

namespace nacre::coordinator {

// Of a text, `length` tokens or the prompt are there.
//
// The least KV with which a draft takes it: for these tokens and 512 more, if
// the whole text is not less. A client that names no max_tokens asks for all
// that the context holds, and few answers are so long.
int64_t LeastDraftNeed(const RequestSpec& request, int64_t length);

// Whether the draft could take it, with all its KV: it has the request's
// policy, and the text is no longer than its context.
bool CouldDraft(const WorkerInfo& draft, const RequestSpec& request,
                int64_t length);

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_DRAFT_NEEDS_H_
