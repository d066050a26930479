// What tests see and change of the libnccl of nccl_library.cc.
//
// Thread-safe, but for what is changed while ranks are at work and is no
// atomic.

#ifndef TESTS_KERNELS_CUDA_NCCL_LIBRARY_H_
#define TESTS_KERNELS_CUDA_NCCL_LIBRARY_H_

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <functional>
#include <string>
#include <vector>

namespace nacre::kernels::cuda {

struct NcclLibraryState {
  // The emulated devices' (emulation/runtime.h): the library is linked with
  // none.
  void (*enqueue)(cudaStream_t stream, const std::vector<const void*>& pointers,
                  std::function<bool()> run) = nullptr;
  int (*device)() = nullptr;  // the thread's
  int version = NCCL_VERSION_CODE;
  std::function<int()> version_here;  // the thread's, in place of it

  // Calls that can fail return it, all or the one with that index, counted from
  // 0. (What asks for a state is no such call.)
  std::atomic<ncclResult_t> result = ncclSuccess;
  std::atomic<int> failing_call = -1;
  // The state of all communicators, or of those of that rank.
  std::atomic<ncclResult_t> async_error = ncclSuccess;
  std::atomic<int> async_rank = -1;
  const char* last_error = "";
  // While they hold, no rank has joined, and nothing comes from another rank.
  std::atomic<bool> holds_joins = false;
  std::atomic<bool> holds_values = false;
  // What a rank sends is lost from its call with that index on: of collective
  // calls and groups, counted from 0.
  std::atomic<int> lost_rank = -1;
  std::atomic<int> lost_call = 0;

  std::atomic<int> calls = 0;  // that can fail
  std::atomic<int> comms = 0;  // that there are
  std::atomic<int> aborts = 0;
  std::atomic<int> queued = 0;  // collective calls and groups
  // Of the last communicator.
  int nranks = 0;
  int rank = -1;
  std::string id;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
};

}  // namespace nacre::kernels::cuda

// By their names in the loaded library. The second forgets all settings.
extern "C" nacre::kernels::cuda::NcclLibraryState* NcclLibrary();
extern "C" void ResetNcclLibrary();

#endif  // TESTS_KERNELS_CUDA_NCCL_LIBRARY_H_
