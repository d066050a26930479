// What tests see and change of the libnccl of nccl_library.cc.
//
// Global, one thread: as the emulated device.

#ifndef TESTS_KERNELS_CUDA_NCCL_LIBRARY_H_
#define TESTS_KERNELS_CUDA_NCCL_LIBRARY_H_

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <string>

namespace nacre::kernels::cuda {

struct NcclLibraryState {
  // The emulated device's: the library is linked with none.
  decltype(&cudaMemcpyAsync) copy = nullptr;
  int version = NCCL_VERSION_CODE;
  ncclResult_t result = ncclSuccess;  // of the calls that can fail
  ncclResult_t async_error = ncclSuccess;
  const char* last_error = "";

  int comms = 0;  // that there are
  // Of the last communicator.
  int nranks = 0;
  int rank = -1;
  std::string id;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
};

}  // namespace nacre::kernels::cuda

// By its name in the loaded library.
extern "C" nacre::kernels::cuda::NcclLibraryState* NcclLibrary();

#endif  // TESTS_KERNELS_CUDA_NCCL_LIBRARY_H_
