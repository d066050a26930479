// Attention of prompts by warpgroups: Attend (attention.h) with the bits of its
// own kernel. For devices of compute capability 9.0 alone.
//
// Free of Abseil: it also builds where only CUDA is installed.

#ifndef KERNELS_CUDA_ATTENTION_WIDE_H_
#define KERNELS_CUDA_ATTENTION_WIDE_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/launch.h"

namespace nacre::kernels::cuda {

// Whether this build has the kernel's machine code, and a device of this
// compute capability (90: 9.0) can run it.
bool HasWideAttention(int compute_capability);

// Whether the kernel takes these, where a block can have `shared_bytes`: it
// takes AttentionArgs::whole with a head_dim of 64 or 128.
bool TakesWideAttention(const AttentionArgs& args, size_t shared_bytes);

// Queues it; does not block.
cudaError_t AttendWide(const Queue& queue, const AttentionArgs& args);

// Of this process, queued or recorded so far: so tests know that it was this
// kernel that gave the bits. Thread-safe.
uint64_t WideAttentionLaunches();

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_ATTENTION_WIDE_H_
