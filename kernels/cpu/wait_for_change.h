// How compute threads wait for each other: they spin for at most 20
// microseconds and then park. So an idle backend costs nothing, and a core that
// is shared with another process is not lost.
//
// Thread-safe.

#ifndef KERNELS_CPU_WAIT_FOR_CHANGE_H_
#define KERNELS_CPU_WAIT_FOR_CHANGE_H_

#include <atomic>
#include <cstdint>

namespace nacre::kernels {

// Returns when `value` is no longer `old`. The thread that changes it must
// notify. This thread then sees what that one wrote before the change.
void WaitForChange(const std::atomic<uint32_t>& value, uint32_t old);

}  // namespace nacre::kernels

#endif  // KERNELS_CPU_WAIT_FOR_CHANGE_H_
