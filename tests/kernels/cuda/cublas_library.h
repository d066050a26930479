// What tests see and change of the cublasLt of cublas_library.cc.
//
// Global, one thread: as the emulated device.

#ifndef TESTS_KERNELS_CUDA_CUBLAS_LIBRARY_H_
#define TESTS_KERNELS_CUDA_CUBLAS_LIBRARY_H_

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

namespace nacre::kernels::cuda {

struct CublasLibraryState {
  // The emulated device's: the library is linked with none.
  decltype(&cudaLaunchHostFunc) launch = nullptr;
  size_t version = 130100;
  cublasStatus_t created = CUBLAS_STATUS_SUCCESS;
  cublasStatus_t multiplied = CUBLAS_STATUS_SUCCESS;
  // Algorithms that are proposed, the first ones with sums in parts, or with a
  // workspace.
  int proposals = 3;
  int split_proposals = 1;
  int workspace_proposals = 1;
  float error = 0;  // of every sum

  int handles = 0;
  int descriptors = 0;  // and layouts and preferences, that there are
  // Rows of the products that were queued.
  std::vector<size_t> rows;
};

}  // namespace nacre::kernels::cuda

// By its name in the loaded library.
extern "C" nacre::kernels::cuda::CublasLibraryState* CublasLibrary();

#endif  // TESTS_KERNELS_CUDA_CUBLAS_LIBRARY_H_
