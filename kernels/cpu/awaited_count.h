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

// A count that some threads raise and others wait for. Who reads it sees what
// was written before it was raised to that. Its holder puts it into a cache
// line that few write: what is there comes to another core with it.
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
