// The memory of the emulated devices. Only what runs on the device can read or
// write it; it holds garbage when allocated, and what was written past an
// end is noticed when that is freed.
//
// One thread at a time.

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

  // A piece of `bytes` of a device, with a guard after it.
  void* Allocate(size_t bytes, int device = 0);
  // Returns its bytes.
  size_t Free(void* data);

  bool Contains(const void* pointer) const;
  // Whose piece it points into; kNoDevice: into none.
  static constexpr int kNoDevice = -1;
  int DeviceOf(const void* pointer) const;

  // What runs between the two is the device.
  void Open();
  void Close();

 private:
  struct Piece {
    size_t bytes;
    size_t size;  // with its guard
    int device;
  };

  void Protect(int rights);

  char* begin_ = nullptr;
  size_t used_ = 0;
  std::map<char*, Piece> pieces_;
  std::map<size_t, std::deque<char*>> freed_;  // by their size
};

// The devices'.
Arena& DeviceMemory();

}  // namespace nacre::kernels::cuda::emulation

#endif  // TESTS_KERNELS_CUDA_EMULATION_ARENA_H_
