// What launching a matrix product takes on the host, whatever becomes of its
// results.

#ifndef KERNELS_CUDA_GEMM_LAUNCH_CUH_
#define KERNELS_CUDA_GEMM_LAUNCH_CUH_

#include <cuda_runtime.h>

#include <cstdint>
#include <optional>

#include "kernels/cuda/gemm.h"
#include "kernels/cuda/gemm_order.h"
#include "kernels/cuda/gemm_plan.h"
#include "kernels/cuda/gemm_weights.cuh"
#include "kernels/cuda/tensor_map.h"

namespace nacre::kernels::cuda {
namespace {  // only gemm.cu and gemm_pairs.cu include this

// Whether the build has machine code of sm_90a (cmake/Cuda.cmake).
#ifdef NACRE_SM90A
constexpr bool kWideCompiled = true;
#else
constexpr bool kWideCompiled = false;
#endif

struct Planned {
  GemmDevice device;
  int major = 0;  // its compute capability
  GemmOrder order = {};
  GemmPlan plan = {};
  bool few_rows = false;   // SkinnyKernel's
  bool last_adds = false;  // its last blocks add slices

  // By a kernel after it.
  bool adds_apart() const {
    return plan.apart != Apart::kNothing && !last_adds;
  }
};

cudaError_t ReadDevice(Planned* planned) {
  GemmDevice* const device = &planned->device;
  int index = 0;
  cudaError_t status = cudaGetDevice(&index);
  const struct {
    cudaDeviceAttr attribute;
    int* value;
  } wanted[] = {
      {cudaDevAttrMultiProcessorCount, &device->multiprocessors},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, &device->shared_bytes},
      {cudaDevAttrComputeCapabilityMajor, &planned->major},
  };
  for (const auto& [attribute, value] : wanted) {
    if (status != cudaSuccess) return status;
    status = cudaDeviceGetAttribute(value, attribute, index);
  }
  device->wide = kWideCompiled && planned->major == 9 && HasTensorMaps();
  return status;
}

bool Aligned(const void* pointer) {
  return pointer != nullptr && reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

// All but what is written.
bool Valid(const GemmArgs& args) {
  return args.rows >= 1 && args.outputs >= 1 && args.inputs >= kVectorInputs &&
         args.inputs % kVectorInputs == 0 && Aligned(args.weights) &&
         Aligned(args.activations) &&
         (args.pairs_apart == kPlainPairs ||
          HavePairs(args.outputs, args.pairs_apart)) &&
         (args.format == GemmFormat::kFp8) == (args.scales != nullptr) &&
         (args.workspace != nullptr ||
          GemmWorkspaceBytes(args.format, args.outputs, args.inputs, args.rows,
                             args.order_outputs) == 0);
}

// cudaErrorInvalidValue: it is not valid, or no kernel fits.
cudaError_t PlanProduct(const GemmArgs& args, Planned* planned) {
  if (!Valid(args)) return cudaErrorInvalidValue;
  planned->order = GemmOrderOf(
      args.order_outputs > 0 ? args.order_outputs : args.outputs, args.inputs);
  const cudaError_t status = ReadDevice(planned);
  if (status != cudaSuccess) return status;
  const std::optional<GemmPlan> plan = PlanGemm(
      args.format, planned->order, args.outputs, args.rows, planned->device);
  if (!plan.has_value()) return cudaErrorInvalidValue;
  planned->plan = *plan;
  planned->few_rows = plan->kernel == GemmKernel::kSkinny8 ||
                      plan->kernel == GemmKernel::kSkinny16;
  planned->last_adds = args.counters != nullptr && planned->few_rows &&
                       plan->apart == Apart::kSlices &&
                       plan->blocks / planned->order.slices <= kGemmCounters;
  return cudaSuccess;
}

Product ProductOf(const GemmArgs& args, const Planned& planned) {
  const bool apart = planned.adds_apart();
  auto* const workspace = static_cast<float*>(args.workspace);
  Product product = {};
  product.weights = static_cast<const char*>(args.weights);
  product.row_scales = args.scales;
  product.activations = static_cast<const char*>(args.activations);
  product.results = apart ? workspace : args.results;
  product.residual = apart ? nullptr : args.residual;
  product.parts = planned.last_adds ? workspace : nullptr;
  product.counters = planned.last_adds ? args.counters : nullptr;
  product.order = planned.order;
  product.outputs = args.outputs;
  product.pairs_apart = args.pairs_apart;
  product.inputs = args.inputs;
  product.rows = args.rows;
  product.apart = planned.plan.apart;
  return product;
}

// Overlaps where the device can.
Queue QueueOf(const Queue& queue, const Planned& planned) {
  Queue on = queue;
  on.overlap = queue.overlap && planned.major >= 9;
  return on;
}

}  // namespace
}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_GEMM_LAUNCH_CUH_
