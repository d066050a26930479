#include "coordinator/dispatch/draft_needs.h"

#include <algorithm>

#include "coordinator/dispatch/placer.h"
#include "coordinator/dispatch/policy_files.h"
#include "coordinator/fleet/kv_ledger.h"

namespace nacre::coordinator {
namespace {

constexpr int64_t kLeastAhead = 512;

int64_t LengthOf(const RequestSpec& request, int64_t length) {
  return std::max(length, static_cast<int64_t>(request.prompt_ids.size()));
}

}  // namespace

int64_t LeastDraftNeed(const RequestSpec& request, int64_t length) {
  return std::min(Placer::TargetNeed(request),
                  KvLedger::Need(LengthOf(request, length) + kLeastAhead));
}

bool CouldDraft(const WorkerInfo& draft, const RequestSpec& request,
                int64_t length) {
  return LengthOf(request, length) <= draft.context_length &&
         CanRunPolicy(draft, request);
}

}  // namespace nacre::coordinator
