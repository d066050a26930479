#include "common/mutex_checks.h"

#include <gtest/gtest.h>

#include "absl/synchronization/mutex.h"

namespace nacre {
namespace {

// Two locks taken both ways would end the process where the checks abort, and
// print a report where they warn.
TEST(MutexChecksTest, LocksAreNotCheckedBehindIt) {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kAbort);
  DisableMutexChecks();
  absl::Mutex a, b;
  a.Lock();
  b.Lock();
  b.Unlock();
  a.Unlock();
  b.Lock();
  a.Lock();
  a.Unlock();
  b.Unlock();
}

}  // namespace
}  // namespace nacre
