#include "tests/simulation/protocol/queue_order.h"

#include <algorithm>
#include <utility>

#include "coordinator/dispatch/admission.h"

namespace nacre::protocol {

using coordinator::Admission;

void QueueOrder::Prune(absl::FunctionRef<bool(const Call&)> is_gone) {
  waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(), is_gone),
                 waiting_.end());
}

std::vector<QueueOrder::Call> QueueOrder::Start(int request, int number,
                                                const Target& target) {
  const auto at =
      std::find_if(waiting_.begin(), waiting_.end(), [&](const Call& call) {
        return call.request == request && call.number == number;
      });
  // It has run before, or its client has lost it.
  if (at == waiting_.end()) return {};
  const auto place = at - waiting_.begin();
  const bool resumes = at->resumes;
  waiting_.erase(at);
  std::vector<Call> passed;
  for (size_t i = 0; i < waiting_.size(); ++i) {
    Call& other = waiting_[i];
    const bool was_before = other.resumes == resumes
                                ? static_cast<int64_t>(i) < place
                                : other.resumes;
    if (!was_before) continue;
    const bool could_run =
        target.kv_capacity >= other.kv_need &&
        (other.numerics_id.empty() || other.numerics_id == target.numerics_id);
    if (could_run && (other.resumes || other.passes == Admission::kMaxPasses)) {
      passed.push_back(other);
    }
    if (!other.resumes && other.passes < Admission::kMaxPasses &&
        ++other.passes == Admission::kMaxPasses) {
      ++num_overtaken_;
    }
  }
  return passed;
}

}  // namespace nacre::protocol
