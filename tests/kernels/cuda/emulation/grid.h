// A launch of a kernel on the emulated device: which of its blocks run when.
//
// Where launches may overlap (programmatic dependent launch), some blocks start
// long before their turn: while one of the kernels before is in the middle of
// its own blocks, they run up to WaitForPrevious, and see what memory holds
// then. The others start when the kernel before is done. So a wait that is
// missing or comes too late shows in results. Which blocks start early, when,
// and in which order all of them run, follows from a seed.
//
// Blocks of a cooperative launch all run at the same time: each for a while,
// then another one, in an order that follows from the seed, too. Where none can
// go on, they would wait for each other for ever: that ends the program.
//
// Blocks that wait for flags of other devices (peer_flags.cuh) stand still
// until those have had their turn, and the others of the launch go on.

#ifndef TESTS_KERNELS_CUDA_EMULATION_GRID_H_
#define TESTS_KERNELS_CUDA_EMULATION_GRID_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "tests/kernels/cuda/emulation/machine.h"

namespace nacre::kernels::cuda::emulation {

// Of the block that runs: CUDA's variables of these names.
inline dim3 block_index;
inline dim3 block_shape;
inline dim3 grid_shape;

struct KernelLaunch {
  const void* kernel = nullptr;
  dim3 blocks;
  int threads = 0;
  size_t shared_bytes = 0;       // that a block asked for
  bool overlaps = false;         // may start before the kernel before is done
  bool together = false;         // all blocks run at the same time
  std::function<void()> thread;  // what one thread runs
  // Memory that the blocks of a source file share, of whichever runs.
  unsigned char* shared = nullptr;
  size_t shared_size = 0;
};

// From now on other blocks start early.
void SeedOverlap(uint32_t seed);

// One launch on its way.
class GridRun {
 public:
  explicit GridRun(KernelLaunch launch) : launch_(std::move(launch)) {}

  bool overlaps() const { return launch_.overlaps; }
  const void* kernel() const { return launch_.kernel; }

  // A kernel before still runs: some blocks start. Once; then nothing.
  void StartEarly();

  // Runs all blocks to their ends. Somewhere between two of them, or before or
  // after all, it calls `start_others`. False: blocks wait for other devices,
  // and go on when it is called again.
  bool Run(const std::function<void()>& start_others);

 private:
  // A block that waits, for the kernel before or for other blocks.
  struct WaitingBlock {
    std::unique_ptr<Block> block;
    std::vector<unsigned char> shared;
  };

  uint32_t NumBlocks() const;
  void Enter(uint32_t index);  // makes it the block that runs
  void CheckShared() const;
  BlockRules Rules() const;
  std::vector<uint32_t> BlocksInSomeOrder() const;
  void RunBlock(uint32_t index);
  void RunTogether(const std::function<void()>& start_others);

  const KernelLaunch launch_;
  bool has_started_ = false;
  std::map<uint32_t, WaitingBlock> early_;  // by their number in the grid
  // Of one that runs: blocks that have not begun, the last first, after how
  // many of all others start, and those that wait for other devices.
  bool runs_ = false;
  std::vector<uint32_t> left_;
  uint32_t others_at_ = 0;
  std::map<uint32_t, WaitingBlock> waiting_;
};

}  // namespace nacre::kernels::cuda::emulation

#endif  // TESTS_KERNELS_CUDA_EMULATION_GRID_H_
