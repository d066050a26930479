// How compute threads wait for each other: they spin for at most 20
// microseconds and then park. So an idle backend costs nothing, and a core that
// is shared with another process is not lost.
//
// Thread-safe.

#ifndef KERNELS_CPU_AWAITED_COUNT_H_
#define KERNELS_CPU_AWAITED_COUNT_H_

#include <atomic>
#include <cstdint>

namespace nacre::kernels {

// A count. Some threads raise it, others wait until it changes. A thread that
// reads a value also sees all that was written before the count got that value.
// Put it into a cache line together with what its readers need: one transfer
// between cores then brings both.
class AwaitedCount {
 public:
  uint32_t value() const { return value_.load(std::memory_order_acquire); }

  // By one. Calls the kernel only if a thread is parked here: the library's
  // notify_all also does where one waits for any other atomic of the process
  // that lies alike.
  void Raise();

  // Returns when it is no longer `old`.
  void AwaitChange(uint32_t old);

 private:
  std::atomic<uint32_t> value_{0};
  std::atomic<uint32_t> parked_{0};  // threads
};

}  // namespace nacre::kernels

#endif  // KERNELS_CPU_AWAITED_COUNT_H_
