// What GPUs that read each other's memory say to each other: flags that only
// grow, at the scope of the system. A block writes, passes a barrier, and then
// sets its flag by a release. A block that reads the flag by an acquire sees
// all these writes.

#ifndef KERNELS_CUDA_PEER_FLAGS_CUH_
#define KERNELS_CUDA_PEER_FLAGS_CUH_

#include <cuda_runtime.h>

#include <cstdint>

namespace nacre::kernels::cuda {

// By one thread, behind a barrier of those whose writes the peer is to see.
__device__ __forceinline__ void SetFlag(unsigned* flag, unsigned value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;\n" ::"l"(flag), "r"(value)
               : "memory");
}

// Whether `flag` has come to `least`: then what was written before that is
// seen, by threads behind a barrier, too. The two are at most 2^31 apart,
// whatever has wrapped around.
__device__ __forceinline__ bool HasCome(const unsigned* flag, unsigned least) {
  unsigned now;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];\n"
               : "=r"(now)
               : "l"(flag)
               : "memory");
  return static_cast<int>(now - least) >= 0;
}

// Values for peers, in memory that they read after a flag.
__device__ __forceinline__ void StoreForPeers(float* to, float value) {
  *to = value;
}
__device__ __forceinline__ void StoreForPeers(float* to, float4 value) {
  *reinterpret_cast<float4*>(to) = value;
}

// Of any rank's memory, past the caches that hold what it was before.
__device__ __forceinline__ void LoadFromPeer(const float* from, float& value) {
  asm volatile("ld.relaxed.sys.global.f32 %0, [%1];\n"
               : "=f"(value)
               : "l"(from)
               : "memory");
}
__device__ __forceinline__ void LoadFromPeer(const float* from, float4& value) {
  asm volatile("ld.relaxed.sys.global.v4.f32 {%0, %1, %2, %3}, [%4];\n"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "l"(from)
               : "memory");
}

// Words in memory of the host, which its threads see after a wait for us, or
// write at any time.
__device__ __forceinline__ void TellHost(unsigned* word) {
  asm volatile("st.relaxed.sys.global.u32 [%0], 1;\n" ::"l"(word) : "memory");
}
__device__ __forceinline__ bool HostSays(const unsigned* word) {
  unsigned now;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];\n"
               : "=r"(now)
               : "l"(word)
               : "memory");
  return now != 0;
}

// That have gone by, from any time on.
__device__ __forceinline__ uint64_t Nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;\n" : "=l"(now));
  return now;
}

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_PEER_FLAGS_CUH_
