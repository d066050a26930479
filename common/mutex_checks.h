// Abseil's check for deadlocks. Debian's packages have it on. Each lock that is
// taken under another one then updates a graph of all locks, under one spinlock
// of the process. Programs turn it off; tests keep it.

#ifndef COMMON_MUTEX_CHECKS_H_
#define COMMON_MUTEX_CHECKS_H_

namespace nacre {

// Call it at the start of main.
void DisableMutexChecks();

}  // namespace nacre

#endif  // COMMON_MUTEX_CHECKS_H_
