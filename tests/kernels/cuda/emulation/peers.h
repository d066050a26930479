// Memory of the emulated devices that others have access to: that of pools.
//
// Thread-safe.

#ifndef TESTS_KERNELS_CUDA_EMULATION_PEERS_H_
#define TESTS_KERNELS_CUDA_EMULATION_PEERS_H_

namespace nacre::kernels::cuda::emulation {

// Ends the program unless `pointer` is in memory that the device which runs may
// use: its own, or that of a pool that it has access to.
void CheckPeerPointer(const void* pointer);

// Before memory is freed.
void ForgetPeersOf(const void* data);

}  // namespace nacre::kernels::cuda::emulation

#endif  // TESTS_KERNELS_CUDA_EMULATION_PEERS_H_
