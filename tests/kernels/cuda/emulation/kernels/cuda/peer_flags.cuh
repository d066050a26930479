// Stands in for kernels/cuda/peer_flags.cuh where kernels are compiled for the
// emulated devices. Ends the program where one has no access to a pointer.

#ifndef TESTS_KERNELS_CUDA_EMULATION_KERNELS_CUDA_PEER_FLAGS_CUH_
#define TESTS_KERNELS_CUDA_EMULATION_KERNELS_CUDA_PEER_FLAGS_CUH_

#include <cuda_runtime.h>

#include <chrono>
#include <cstdint>
#include <cstring>

#include "tests/kernels/cuda/emulation/machine.h"
#include "tests/kernels/cuda/emulation/peers.h"

namespace nacre::kernels::cuda {

inline void SetFlag(unsigned* flag, unsigned value) {
  emulation::CheckPeerPointer(flag);
  emulation::Fence();
  emulation::Announce();
  *flag = value;
}
inline bool HasCome(const unsigned* flag, unsigned least) {
  emulation::CheckPeerPointer(flag);
  return emulation::HasCome(flag, least);
}

inline void StoreForPeers(float* to, float value) {
  emulation::CheckPeerPointer(to);
  emulation::StoreForOthers(to, &value, sizeof(value));
}
inline void StoreForPeers(float* to, const float4& value) {
  const float values[] = {value.x, value.y, value.z, value.w};
  for (int i = 0; i < 4; ++i) StoreForPeers(to + i, values[i]);
}

template <typename Vector>
void LoadFromPeer(const float* from, Vector& value) {
  emulation::CheckPeerPointer(from);
  std::memcpy(&value, from, sizeof(value));
}

inline void TellHost(unsigned* word) { *word = 1; }
inline bool HostSays(const unsigned* word) {
  return *static_cast<const volatile unsigned*>(word) != 0;
}

inline uint64_t Nanoseconds() {
  return static_cast<uint64_t>(
      std::chrono::nanoseconds(
          std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

}  // namespace nacre::kernels::cuda

#endif  // TESTS_KERNELS_CUDA_EMULATION_KERNELS_CUDA_PEER_FLAGS_CUH_
