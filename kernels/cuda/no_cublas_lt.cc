// Of builds without cublasLt.h (kernels/CMakeLists.txt).

#include "kernels/cuda/cublas_lt.h"

namespace nacre::kernels::cuda {

absl::StatusOr<std::unique_ptr<CublasLt>> OpenCublasLt(const std::string&) {
  return absl::FailedPreconditionError(
      "this build has no cuBLAS: cublasLt.h was not found");
}

}  // namespace nacre::kernels::cuda
