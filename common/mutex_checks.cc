#include "common/mutex_checks.h"

#include "absl/synchronization/mutex.h"

namespace nacre {

void DisableMutexChecks() {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

}  // namespace nacre
