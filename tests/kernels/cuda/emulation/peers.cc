#include "tests/kernels/cuda/emulation/peers.h"

#include <cuda_runtime_api.h>

#include <iterator>
#include <map>
#include <mutex>
#include <set>

#include "tests/kernels/cuda/emulation/arena.h"
#include "tests/kernels/cuda/emulation/machine.h"
#include "tests/kernels/cuda/emulation/runtime.h"

struct CUmemPoolHandle_st {
  int device = 0;
  std::set<int> readers;  // other devices
};

namespace nacre::kernels::cuda::emulation {
namespace {

std::mutex mutex;                                // of all below
std::map<const void*, cudaMemPool_t> allocated;  // from which pool

}  // namespace

void CheckPeerPointer(const void* pointer) {
  const int owner = DeviceMemory().DeviceOf(pointer);
  if (owner != Arena::kNoDevice && owner == RunningDevice()) return;
  const std::lock_guard lock(mutex);
  const auto next = allocated.upper_bound(pointer);
  if (owner == Arena::kNoDevice || next == allocated.begin() ||
      std::prev(next)->second->device != owner ||
      std::prev(next)->second->readers.count(RunningDevice()) == 0) {
    Die("a pointer to memory that the device has no access to");
  }
}

void ForgetPeersOf(const void* data) {
  const std::lock_guard lock(mutex);
  allocated.erase(data);
}

}  // namespace nacre::kernels::cuda::emulation

namespace emulation = nacre::kernels::cuda::emulation;

extern "C" {

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = device != peer &&
         emulation::settings.strangers.count({device, peer}) == 0;
  return cudaSuccess;
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool,
                              const cudaMemPoolProps* properties) {
  if (properties->allocType != cudaMemAllocationTypePinned ||
      properties->location.type != cudaMemLocationTypeDevice) {
    return cudaErrorInvalidValue;
  }
  *pool = new CUmemPoolHandle_st{properties->location.id, {}};
  return cudaSuccess;
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool,
                                 const cudaMemAccessDesc* readers,
                                 size_t count) {
  const std::lock_guard lock(emulation::mutex);
  for (size_t i = 0; i < count; ++i) {
    const int device = readers[i].location.id;
    int can = 0;
    cudaDeviceCanAccessPeer(&can, device, pool->device);
    if (can == 0 || readers[i].flags != cudaMemAccessFlagsProtReadWrite) {
      return cudaErrorInvalidDevice;
    }
    pool->readers.insert(device);
  }
  return cudaSuccess;
}

cudaError_t cudaMallocFromPoolAsync(void** data, size_t bytes,
                                    cudaMemPool_t pool, cudaStream_t) {
  int device = 0;
  cudaGetDevice(&device);
  if (device != pool->device) return cudaErrorInvalidValue;
  const cudaError_t error = cudaMalloc(data, bytes);
  const std::lock_guard lock(emulation::mutex);
  if (error == cudaSuccess) emulation::allocated[*data] = pool;
  return error;
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  const std::lock_guard lock(emulation::mutex);
  for (const auto& [data, of_pool] : emulation::allocated) {
    if (of_pool != pool) continue;
    emulation::Die("a pool was destroyed before its memory was freed");
  }
  delete pool;
  return cudaSuccess;
}

}  // extern "C"
