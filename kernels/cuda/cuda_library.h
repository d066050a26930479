// A library of CUDA's that programs are not linked with, as the machine has it.
//
// Free of Abseil: it also builds where only CUDA is installed. Thread-safe.

#ifndef KERNELS_CUDA_CUDA_LIBRARY_H_
#define KERNELS_CUDA_CUDA_LIBRARY_H_

#include <string>

namespace nacre::kernels::cuda {

// For dlsym; null, and why, where there is none. `name` as in "cublasLt". It
// stays loaded: it may have threads.
void* OpenCudaLibrary(const std::string& name, std::string* error);

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_CUDA_LIBRARY_H_
