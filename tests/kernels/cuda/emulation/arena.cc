#include "tests/kernels/cuda/emulation/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "tests/kernels/cuda/emulation/machine.h"

namespace nacre::kernels::cuda::emulation {
namespace {

constexpr size_t kArenaBytes = size_t{16} << 30;  // of addresses
constexpr size_t kPage = 4096;
constexpr size_t kAlignment = 256;
constexpr unsigned char kGarbage = 0xa5;
constexpr unsigned char kGuard = 0x5a;

}  // namespace

Arena::Arena() {
  void* const begin = mmap(nullptr, kArenaBytes, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (begin == MAP_FAILED) Die("no addresses for device memory");
  begin_ = static_cast<char*>(begin);
  // Protect takes as long as there are pages. Where there are no large ones, it
  // takes longer.
  madvise(begin_, kArenaBytes, MADV_HUGEPAGE);
}

void* Arena::Allocate(size_t bytes, int device) {
  const size_t size = std::bit_ceil(bytes + kAlignment);
  std::deque<char*>& freed = freed_[size];
  char* data = begin_ + used_;
  if (freed.empty()) {
    if (size > kArenaBytes - used_) Die("no addresses left");
    used_ += size;
  } else {
    data = freed.front();
    freed.pop_front();
  }
  Open();
  std::memset(data, kGarbage, bytes);
  std::memset(data + bytes, kGuard, size - bytes);
  Close();
  pieces_[data] = {bytes, size, device};
  return data;
}

size_t Arena::Free(void* data) {
  const auto piece = pieces_.find(static_cast<char*>(data));
  if (piece == pieces_.end()) Die("freed what is not device memory");
  const auto [bytes, size, device] = piece->second;
  Open();
  char* const guard = piece->first + bytes;
  if (!std::all_of(guard, piece->first + size, [](char byte) {
        return static_cast<unsigned char>(byte) == kGuard;
      })) {
    Die("device memory was written past its end");
  }
  std::memset(piece->first, kGarbage, bytes);
  Close();
  freed_[size].push_back(piece->first);
  pieces_.erase(piece);
  return bytes;
}

bool Arena::Contains(const void* pointer) const {
  const auto* const at = static_cast<const char*>(pointer);
  return at >= begin_ && at < begin_ + used_;
}

int Arena::DeviceOf(const void* pointer) const {
  const auto* const at = static_cast<const char*>(pointer);
  auto piece = pieces_.upper_bound(const_cast<char*>(at));
  if (piece == pieces_.begin()) return kNoDevice;
  --piece;
  return at < piece->first + piece->second.size ? piece->second.device
                                                : kNoDevice;
}

void Arena::Open() { Protect(PROT_READ | PROT_WRITE); }

void Arena::Close() { Protect(PROT_NONE); }

void Arena::Protect(int rights) {
  const size_t bytes = (used_ + kPage - 1) / kPage * kPage;
  if (bytes > 0 && mprotect(begin_, bytes, rights) != 0) Die("mprotect");
}

Arena& DeviceMemory() {
  static Arena arena;
  return arena;
}

}  // namespace nacre::kernels::cuda::emulation
