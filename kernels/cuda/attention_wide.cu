#include <cuda_runtime.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention_wide.cuh"
#include "kernels/cuda/attention_wide.h"

namespace nacre::kernels::cuda {
namespace {

// Whether the build has machine code of sm_90a (cmake/Cuda.cmake).
#ifdef NACRE_SM90A
constexpr bool kCompiled = true;
#else
constexpr bool kCompiled = false;
#endif

std::atomic<uint64_t> launches = 0;

template <int kDims>
cudaError_t Launch(const Queue& queue, const AttentionArgs& args) {
  using Block = WideStreamBlock<kDims>;
  const int group = args.num_heads / args.kv.num_kv_heads;
  const int parts =
      (args.max_tile_rows * group + Block::kQueries - 1) / Block::kQueries;
  const dim3 blocks(static_cast<unsigned>(args.num_tiles),
                    static_cast<unsigned>(args.kv.num_kv_heads * parts));
  return LaunchKernel(queue, {blocks, Block::kThreads, Block::Bytes()},
                      WideStreamKernel<kDims>, WideAttention{args, parts});
}

}  // namespace

bool HasWideAttention(int compute_capability) {
  return kCompiled && compute_capability == 90;
}

bool TakesWideAttention(const AttentionArgs& args, size_t shared_bytes) {
  if (!args.whole || args.kv.type != DType::kBF16) return false;
  return (args.kv.head_dim == 64 &&
          WideStreamBlock<64>::Bytes() <= shared_bytes) ||
         (args.kv.head_dim == 128 &&
          WideStreamBlock<128>::Bytes() <= shared_bytes);
}

cudaError_t AttendWide(const Queue& queue, const AttentionArgs& args) {
  const cudaError_t status = args.kv.head_dim == 64 ? Launch<64>(queue, args)
                                                    : Launch<128>(queue, args);
  if (status == cudaSuccess) ++launches;
  return status;
}

uint64_t WideAttentionLaunches() { return launches; }

}  // namespace nacre::kernels::cuda
