// Which drafts can run a request's length policy: some need a calibration that
// was made with the target that is served.
//
// Pure functions.

#ifndef COORDINATOR_DISPATCH_POLICY_FILES_H_
#define COORDINATOR_DISPATCH_POLICY_FILES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "coordinator/dispatch/request.h"
#include "coordinator/fleet/worker_info.h"

namespace nacre::coordinator {

bool CanRunPolicy(const WorkerInfo& draft, const RequestSpec& request);

// FAILED_PRECONDITION where there are drafts and none of them can, unless the
// request goes on with an answer.
absl::Status CheckPolicy(const std::vector<const WorkerInfo*>& drafts,
                         const RequestSpec& request);

// Names of the policies that need no file, and of those that one of the drafts
// has a file for.
std::vector<std::string> RunnablePolicies(
    const std::vector<const WorkerInfo*>& drafts,
    absl::string_view target_fingerprint);

}  // namespace nacre::coordinator

#endif  // COORDINATOR_DISPATCH_POLICY_FILES_H_
