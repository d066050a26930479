// Row and element operations of the CPU backend, one table a SIMD target.
// Shapes as in kernels/backend.h; each call is single-threaded.

#ifndef KERNELS_CPU_ELEMENTWISE_H_
#define KERNELS_CPU_ELEMENTWISE_H_

#include <cstddef>

namespace nacre::kernels {

struct ElementwiseKernels {
  const char* target_name;  // Highway's, e.g. "AVX3"
  void (*rms_norm)(const float* x, int rows, int cols, const float* weight,
                   float epsilon, float* out);
  void (*layer_norm)(const float* x, int rows, int cols, const float* weight,
                     const float* bias, float epsilon, float* out);
  // One row: x [num_heads * head_dim]; cos, sin [head_dim / 2].
  void (*rope)(float* x, int num_heads, int head_dim, const float* cos,
               const float* sin);
  void (*silu_mul)(const float* gate_up, int rows, int cols, float* out);
  void (*gelu_mul)(const float* gate_up, int rows, int cols, float* out);
  void (*gelu_tanh)(float* x, size_t count);
  void (*gelu_erf)(float* x, size_t count);
  void (*scale)(float* x, size_t count, float factor);
  void (*soft_cap)(float* x, size_t count, float cap);
  void (*add)(float* x, const float* y, size_t count);
};

// The table of the best target that this CPU supports.
ElementwiseKernels ChooseElementwiseKernels();

}  // namespace nacre::kernels

#endif  // KERNELS_CPU_ELEMENTWISE_H_
