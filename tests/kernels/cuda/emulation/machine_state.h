// What the emulated machine (machine.h) knows of the block that runs: its own
// sources alone include this.

#ifndef TESTS_KERNELS_CUDA_EMULATION_MACHINE_STATE_H_
#define TESTS_KERNELS_CUDA_EMULATION_MACHINE_STATE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "tests/kernels/cuda/emulation/machine.h"
#include "tests/kernels/cuda/emulation/stack_switch.h"
#include "tests/kernels/cuda/emulation/tensor_core.h"

namespace nacre::kernels::cuda::emulation {

inline constexpr int kWarp = 32;
inline constexpr int kWarpgroup = 4 * kWarp;
inline constexpr int kCopyBytes = 16;
inline constexpr int kMostGroups = 2;  // of GroupBarrier

struct PendingCopy {
  void* to;
  const void* from;
  int size;
  bool inside;
  // Of one that was issued while the kernel before still ran, and of some where
  // other blocks do: what it read.
  bool has_read;
  std::array<char, kCopyBytes> bytes;
};

struct PendingProduct {
  float* d;
  int tiles;
  bool in_shared;                    // the weights are
  SharedMatrix weights;              // if so
  std::array<const uint32_t*, 4> a;  // else
  SharedMatrix rows;
  bool keep;
  const Factors* read = nullptr;  // the 64 rows of weights, if all are
};

// A product that a warpgroup's threads all issue, or the end of a group of such
// (all zeros).
struct IssuedProduct {
  int tiles = 0;
  uint64_t weights = 0;  // none: in registers
  uint64_t rows = 0;
  int transposed = 0;
  bool keep = false;

  bool operator==(const IssuedProduct&) const = default;
};

// It, and what the tensor cores make of it.
struct Issued {
  IssuedProduct product;
  bool early;  // it runs at once, not when it is waited for
  std::unique_ptr<std::array<Factors, 64>> weights = nullptr;
};

// Lives on: the next block's thread runs on its stack. What each turn looks at
// comes first.
struct Fiber {
  Turn turn;
  bool done = false;
  // Runs again when so many threads have arrived at the barriers, and, if it
  // waits for the kernel before, when that is done.
  int64_t warp_target = 0;
  int64_t block_target = 0;
  int64_t group_target = 0;
  int group = 0;
  bool waits = false;
  bool has_waited = false;
  int shuffles = 0;
  const unsigned* count = nullptr;    // that it waits for, until it is `least`
  const uint64_t* barrier = nullptr;  // that it waits for
  int parity = 0;
  unsigned least = 0;
  // Has asked for a flag of another device, in vain since the block went on.
  bool asks = false;
  int shows = 0;  // ShowToProducts that it has called
  int shown = 0;  // before it last came to a barrier
  std::unique_ptr<char[]> stack;
  std::vector<PendingCopy> open;
  std::deque<std::vector<PendingCopy>> groups;
  std::vector<PendingProduct> open_products;
  std::deque<std::vector<PendingProduct>> product_groups;
  size_t issued = 0;  // of its warpgroup's products
};

struct Warp {
  int64_t arrived = 0;
  Factors rows[16];    // of a tensor core's left matrix
  Factors columns[8];  // of its right one
  uint64_t shuffled[2][kWarp];
  const void* sources[kWarp];  // of lanes
};

// A barrier of a number of threads that may be another each time.
struct Group {
  int64_t arrived = 0;
  int64_t target = 0;  // arrivals at which it opens
  int threads = 0;

  int64_t Arrive(int of_threads) {
    if (arrived == target) {
      threads = of_threads;
      target += threads;
    }
    if (threads != of_threads) Die("a barrier that others are to open");
    ++arrived;
    return target;
  }
};

// In shared memory. A phase with copies ends when a thread waits for it.
struct Barrier {
  int arrivals = 0;
  int arrived = 0;
  int64_t announced = 0;  // bytes
  int64_t copied = 0;
  int64_t phase = 0;
  std::vector<PendingCopy> copies = {};

  void TryEndPhase();
};

// Who copied or stored a word of shared memory there last, and how often it had
// called ShowToProducts by then.
struct CopiedWord {
  int64_t block = 0;
  int thread = 0;
  int shows = 0;
};
// No block has more shared memory, which lies together.
constexpr int kWordBytes = 4;
inline std::array<CopiedWord, (256 << 10) / kWordBytes> copied;
inline int64_t blocks_so_far = 0;

struct BlockState {
  // Of a barrier, which opens at so many arrivals.
  struct Vote {
    int64_t target = 0;
    bool any = false;
  };

  const std::function<void()>* body;
  BlockRules rules;
  int threads;
  bool previous_is_done = false;
  int64_t arrived = 0;
  std::array<Vote, 2> votes = {};  // of the last barrier and the one before
  std::array<Group, kMostGroups> groups = {};
  std::vector<Warp> warps;
  std::map<int, std::vector<Issued>> issued;  // by warpgroups
  std::map<const uint64_t*, Barrier> barriers;
  const int64_t number = ++blocks_so_far;
  std::vector<Fiber> fibers;  // as many as the largest block had on them
};

inline BlockState* block = nullptr;  // that runs
inline int current = 0;              // thread of it

inline Fiber& CurrentFiber() { return block->fibers[current]; }

// Words from `at` on; 16 bytes do not reach past the last.
inline CopiedWord* CopiedTo(const void* at) {
  return &copied[reinterpret_cast<uintptr_t>(at) / kWordBytes % copied.size()];
}

// One or the other, at random.
bool Toss();

}  // namespace nacre::kernels::cuda::emulation

#endif  // TESTS_KERNELS_CUDA_EMULATION_MACHINE_STATE_H_
