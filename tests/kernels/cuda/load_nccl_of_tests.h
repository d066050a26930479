// Loads the libnccl of the tests, at NACRE_NCCL_LIBRARY, for the emulated
// devices. Then it is also what the name of NCCL's own library finds.

#ifndef TESTS_KERNELS_CUDA_LOAD_NCCL_OF_TESTS_H_
#define TESTS_KERNELS_CUDA_LOAD_NCCL_OF_TESTS_H_

#include <dlfcn.h>

#include "gtest/gtest.h"
#include "tests/kernels/cuda/emulation/runtime.h"
#include "tests/kernels/cuda/nccl_library.h"

namespace nacre::kernels::cuda {

// As new, but for communicators that there are. It stays loaded.
inline NcclLibraryState* LoadNcclOfTests() {
  void* const library = dlopen(NACRE_NCCL_LIBRARY, RTLD_NOW);
  EXPECT_NE(library, nullptr) << dlerror();
  if (library == nullptr) return nullptr;
  reinterpret_cast<void (*)()>(dlsym(library, "ResetNcclLibrary"))();
  using Find = NcclLibraryState* (*)();
  auto* const state = reinterpret_cast<Find>(dlsym(library, "NcclLibrary"))();
  state->enqueue = &emulation::EnqueueTogether;
  state->device = [] {
    int device = -1;
    cudaGetDevice(&device);
    return device;
  };
  return state;
}

}  // namespace nacre::kernels::cuda

#endif  // TESTS_KERNELS_CUDA_LOAD_NCCL_OF_TESTS_H_
