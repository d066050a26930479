#include "coordinator/dispatch/policy_files.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/refusal.h"
#include "common/some_of.h"
#include "speculation/policies/policy_spec.h"

namespace nacre::coordinator {
bool CanRunPolicy(const WorkerInfo& draft, const RequestSpec& request) {
  if (!request.policy.needs_file()) return true;
  return std::any_of(draft.policy_files.begin(), draft.policy_files.end(),
                     [&](const std::pair<std::string, std::string>& file) {
                       return file.first == request.policy.name() &&
                              (request.fingerprint.empty() ||
                               file.second == request.fingerprint);
                     });
}

absl::Status CheckPolicy(const std::vector<const WorkerInfo*>& drafts,
                         const RequestSpec& request) {
  if (request.method == speculation::Method::kAr ||
      !request.policy.needs_file()) {
    return absl::OkStatus();
  }
  std::set<std::string> others;
  for (const WorkerInfo* draft : drafts) {
    if (CanRunPolicy(*draft, request)) return absl::OkStatus();
    for (const auto& [name, target_fingerprint] : draft->policy_files) {
      if (name == request.policy.name()) others.insert(target_fingerprint);
    }
  }
  // Without any draft the request runs degraded, as with every policy. So does
  // an answer that has lost its draft, here or with another coordinator.
  if (drafts.empty() || request.resume != nullptr) return absl::OkStatus();
  const std::string name = request.policy.name();
  absl::Status status = absl::FailedPreconditionError(absl::StrCat(
      "policy ", name, " needs a calibration file (--policy-file ", name,
      "=DIR), and none of ", drafts.size(),
      " draft workers has one for the target with fingerprint ",
      request.fingerprint,
      others.empty()
          ? ""
          : absl::StrCat("; there are some for ", SomeOf(others, " "))));
  return WithField(std::move(status), "speculation.policy");
}

std::vector<std::string> RunnablePolicies(
    const std::vector<const WorkerInfo*>& drafts,
    absl::string_view target_fingerprint) {
  std::vector<std::string> names;
  for (const speculation::PolicyInfo& info : speculation::AllPolicies()) {
    bool can_run = info.file != speculation::PolicyFile::kRequired;
    for (const WorkerInfo* draft : drafts) {
      for (const auto& [name, fingerprint] : draft->policy_files) {
        can_run =
            can_run || (name == info.name && fingerprint == target_fingerprint);
      }
    }
    if (can_run) names.push_back(info.name);
  }
  return names;
}

}  // namespace nacre::coordinator
