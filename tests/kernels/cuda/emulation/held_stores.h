// What threads of the emulated device have stored for other blocks, and is not
// in memory yet (StoreForOthers in machine.h).
//
// One thread at a time.

#ifndef TESTS_KERNELS_CUDA_EMULATION_HELD_STORES_H_
#define TESTS_KERNELS_CUDA_EMULATION_HELD_STORES_H_

#include <cstdint>

namespace nacre::kernels::cuda::emulation {

// Of a thread, and how far it is.
struct StorePlace {
  const void* launch;
  const void* block;
  int thread;
  int warp;
  int group;
  // Arrivals at which the last barriers open: of its warp, group and block.
  int64_t barriers[3];
};

void HoldStore(const StorePlace& from, void* to, const void* value, int bytes);
// Brings to memory what a thread there comes behind.
void LandStoresBehind(const StorePlace& place);
// What the block still holds comes too late: when the launch is over.
void HoldStoresBack(const StorePlace& place);
void LandStores(const void* launch);

}  // namespace nacre::kernels::cuda::emulation

#endif  // TESTS_KERNELS_CUDA_EMULATION_HELD_STORES_H_
