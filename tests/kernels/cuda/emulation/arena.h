// The memory of the emulated device. Only what runs on the device can read or
// write it; it holds garbage when allocated, and what was written past an
// end is noticed when that is freed.
//
// One operating-system thread.

#ifndef TESTS_KERNELS_CUDA_EMULATION_ARENA_H_
#define TESTS_KERNELS_CUDA_EMULATION_ARENA_H_

#include <cstddef>
#include <deque>
#include <map>

namespace nacre::kernels::cuda::emulation {

// In pieces of powers of two that are used again.
class Arena {
 public:
  Arena();

  // A piece of `bytes` with a guard after it.
  void* Allocate(size_t bytes);
  // Returns its bytes.
  size_t Free(void* data);

  bool Contains(const void* pointer) const;

  // What runs between the two is the device.
  void Open();
  void Close();

 private:
  struct Piece {
    size_t bytes;
    size_t size;  // with its guard
  };

  void Protect(int rights);

  char* begin_ = nullptr;
  size_t used_ = 0;
  std::map<char*, Piece> pieces_;
  std::map<size_t, std::deque<char*>> freed_;  // by their size
};

// The device's.
Arena& DeviceMemory();

}  // namespace nacre::kernels::cuda::emulation

#endif  // TESTS_KERNELS_CUDA_EMULATION_ARENA_H_
