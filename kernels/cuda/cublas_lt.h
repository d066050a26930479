// What prompts need of cublasLt, as the machine has it: loaded when it is asked
// for, so that programs start where there is none.
//
// Thread-compatible: the thread of the device, which is current.

#ifndef KERNELS_CUDA_CUBLAS_LT_H_
#define KERNELS_CUDA_CUBLAS_LT_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace nacre::kernels::cuda {

class CublasLt {
 public:
  // y [rows, outputs] = x [rows, inputs] w [outputs, inputs]^T
  // x and w are bf16, y and sums float32.
  struct Shape {
    int outputs = 0;
    int inputs = 0;  // a multiple of 8
    int rows = 0;

    bool operator==(const Shape&) const = default;
  };

  // Of one shape, by one algorithm. It takes no workspace and sums every output
  // in one place, in one order.
  class Product {
   public:
    virtual ~Product() = default;
    // Queues it; does not block. All pointers are the device's, of 16 bytes.
    virtual absl::Status Multiply(const void* x, const void* w, float* y,
                                  cudaStream_t stream) const = 0;
    // Which algorithm, of one version of the library.
    virtual const std::string& algorithm() const = 0;
  };

  virtual ~CublasLt() = default;

  // The library's number, as 130100.
  virtual int64_t version() const = 0;

  // Takes the first algorithm that the library proposes and that is as above.
  // UNIMPLEMENTED: it proposes none.
  virtual absl::StatusOr<std::unique_ptr<Product>> Plan(const Shape& shape) = 0;
};

// `library`: its file; empty: the machine's. FAILED_PRECONDITION: this build
// has none, the machine has none or too old a one, or it finds no GPU.
absl::StatusOr<std::unique_ptr<CublasLt>> OpenCublasLt(
    const std::string& library);

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_CUBLAS_LT_H_
