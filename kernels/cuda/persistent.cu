#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/attention_merge.cuh"
#include "kernels/cuda/attention_stream.cuh"
#include "kernels/cuda/gemm_pairs.cuh"
#include "kernels/cuda/gemm_skinny.cuh"
#include "kernels/cuda/kernel_setup.h"
#include "kernels/cuda/norm.cuh"
#include "kernels/cuda/persistent.h"
#include "kernels/cuda/phase_block.cuh"
#include "kernels/cuda/primitives.cuh"
#include "kernels/cuda/rotate_and_store.cuh"
#include "kernels/cuda/row_kernels.cuh"

namespace nacre::kernels::cuda {
namespace {

constexpr int kPhaseVectors = sizeof(Phase) / sizeof(uint4);
static_assert(sizeof(Phase) % sizeof(uint4) == 0 && kPhaseVectors <= 32);
// Phases that a block has in shared memory: one, and those after it, which are
// on their way. So a block without work passes through phases quickly.
constexpr int kPhaseSlots = 4;
static_assert(kSkinnyThreads<Bf16Weights> == kPersistentThreads);

// Calls kBody(here, what the pack has).
template <auto kBody, typename Here, typename... Before>
__device__ __forceinline__ void CallWith(const Here& here,
                                         const ArgumentPack<>&,
                                         const Before&... before) {
  kBody(here, before...);
}
template <auto kBody, typename Here, typename First, typename... Others,
          typename... Before>
__device__ __forceinline__ void CallWith(
    const Here& here, const ArgumentPack<First, Others...>& pack,
    const Before&... before) {
  CallWith<kBody>(here, pack.others, before..., pack.first);
}

// Of a function of PhaseBlock and arguments: what it takes them as.
template <typename HereOf, typename... Types>
struct Body {
  using Here = HereOf;
  using Pack =
      ArgumentPack<std::remove_cv_t<std::remove_reference_t<Types>>...>;
};
template <typename Here, typename... Types>
Body<Here, Types...> BodyOf(void (*body)(const Here&, Types...));

// A phase, and when it may begin.
struct PhaseRun {
  const Phase& phase;
  PhaseBefore before;
  uint4* shared;
};

// One block of a phase.
template <auto kBody>
__device__ __forceinline__ void Call(const PhaseRun& run, unsigned number) {
  using Here = typename decltype(BodyOf(kBody))::Here;
  using Pack = typename decltype(BodyOf(kBody))::Pack;
  static_assert(sizeof(Pack) <= Phase::kMostArgumentBytes);
  if (threadIdx.x >= Here::kThreads) return;
  const Phase& phase = run.phase;
  const dim3 blocks(phase.blocks[0], phase.blocks[1], phase.blocks[2]);
  const unsigned plane = number / blocks.x;
  const dim3 at(number % blocks.x, plane % blocks.y, plane / blocks.y);
  CallWith<kBody>(Here{run.shared, at, blocks, run.before},
                  *reinterpret_cast<const Pack*>(phase.arguments));
}

template <int kWarps, int kDims>
__device__ __forceinline__ void Attend(const PhaseRun& run, unsigned number) {
  using Here = PhaseBlock<StreamBlock<kWarps, kDims>::kThreads>;
  Call<AttendStreamed<Here, false, kWarps, kDims>>(run, number);
}

// Not inlined: what products compute of a thread's number would be kept in
// registers in all other phases, which have none left.
__device__ __attribute__((noinline)) void RunProduct(const Phase* phase,
                                                     PhaseBefore before,
                                                     unsigned number) {
  extern __shared__ uint4 shared[];
  const PhaseRun run = {*phase, before, shared + kPhaseSlots * kPhaseVectors};
  using Here = PhaseBlock<kPersistentThreads>;
  using Weights = Bf16Weights;
  using Rotated = RotateTo<uint16_t>;
  switch (run.phase.kind) {
    case PhaseKind::kProduct8:
      return Call<MultiplySkinny<Here, Weights, 8>>(run, number);
    case PhaseKind::kProduct16:
      return Call<MultiplySkinny<Here, Weights, 16>>(run, number);
    case PhaseKind::kGated8:
      return Call<MultiplyPairs<Here, Weights, 8, Gate>>(run, number);
    case PhaseKind::kGated16:
      return Call<MultiplyPairs<Here, Weights, 16, Gate>>(run, number);
    case PhaseKind::kGatedNormed:
      return Call<MultiplyNormedPairs<Here, Weights, Gate>>(run, number);
    case PhaseKind::kRotated8:
      return Call<MultiplyPairs<Here, Weights, 8, Rotated>>(run, number);
    case PhaseKind::kRotated16:
      return Call<MultiplyPairs<Here, Weights, 16, Rotated>>(run, number);
    case PhaseKind::kRotatedNormed:
      return Call<MultiplyNormedPairs<Here, Weights, Rotated>>(run, number);
    default:
      return;
  }
}

__device__ __forceinline__ void RunBlock(const PhaseRun& run, unsigned number) {
  using Row = PhaseBlock<kRowThreads>;
  using Norm = PhaseBlock<kNormThreads>;
  using Rotate = PhaseBlock<kRotateThreads>;
  using Merge = PhaseBlock<kMergeThreads>;
  switch (run.phase.kind) {
    case PhaseKind::kNorm1:
      return Call<NormalizeHead<Norm, uint16_t, 1>>(run, number);
    case PhaseKind::kNorm4:
      return Call<NormalizeHead<Norm, uint16_t, 4>>(run, number);
    case PhaseKind::kNorm8:
      return Call<NormalizeHead<Norm, uint16_t, 8>>(run, number);
    case PhaseKind::kNormF32:
      return Call<NormalizeHead<Norm, float, 1>>(run, number);
    case PhaseKind::kAddToRows:
      return Call<AddToRow<Row>>(run, number);
    case PhaseKind::kRotateAndStore:
      return Call<RotateAndStoreHead<Rotate, uint16_t>>(run, number);
    case PhaseKind::kAttend1x64:
      return Attend<1, 64>(run, number);
    case PhaseKind::kAttend2x64:
      return Attend<2, 64>(run, number);
    case PhaseKind::kAttend1x128:
      return Attend<1, 128>(run, number);
    case PhaseKind::kAttend2x128:
      return Attend<2, 128>(run, number);
    case PhaseKind::kMerge:
      return Call<MergeRow<Merge, true>>(run, number);
    case PhaseKind::kRound:
      return Call<RoundRow<Row>>(run, number);
    case PhaseKind::kGate:
      return Call<GateRow<Row, uint16_t>>(run, number);
    default:
      return RunProduct(&run.phase, run.before, number);
  }
}

// Starts to copy phase `i`, if there is one, to its slot, which nothing reads.
__device__ __forceinline__ void FetchPhase(const PersistentArgs& args, int i,
                                           uint4* slots) {
  if (i < args.count && threadIdx.x < kPhaseVectors) {
    CopyVector(slots + i % kPhaseSlots * kPhaseVectors + threadIdx.x,
               reinterpret_cast<const char*>(args.phases + i) +
                   threadIdx.x * sizeof(uint4),
               true);
  }
  CommitCopies();
}

// One block a multiprocessor. All of them run at the same time.
__global__ void __launch_bounds__(kPersistentThreads, 1)
    PersistentKernel(const PersistentArgs args) {
  extern __shared__ uint4 shared[];
  PhaseBefore before = {nullptr, 0};
  for (int i = 0; i < kPhaseSlots - 1; ++i) FetchPhase(args, i, shared);
  for (int i = 0; i < args.count; ++i) {
    WaitCopies<kPhaseSlots - 2>();
    __syncthreads();  // the phase is there, the one before is done with
    FetchPhase(args, i + kPhaseSlots - 1, shared);
    const auto& phase = *reinterpret_cast<const Phase*>(
        shared + i % kPhaseSlots * kPhaseVectors);
    const PhaseRun run = {phase, before, shared + kPhaseSlots * kPhaseVectors};
    unsigned* const count = args.counts + i * kPhaseCountStride;
    const unsigned blocks = phase.blocks[0] * phase.blocks[1] * phase.blocks[2];
    // Products have the most to do in their first blocks. So these do the least
    // of what is between products, and have the next one's weights early.
    const bool is_product = phase.kind >= PhaseKind::kProduct8;
    const unsigned first = is_product ? blockIdx.x : gridDim.x - 1 - blockIdx.x;
    for (unsigned block = first; block < blocks; block += gridDim.x) {
      RunBlock(run, block);
      __syncthreads();  // all have written, and need no shared memory
    }
    if (first < blocks && threadIdx.x == 0) CountBlock(count);
    const unsigned workers = min(blocks, gridDim.x);
    before = {count, args.launch * workers};
  }
  WaitCopies<0>();
}

}  // namespace

size_t PersistentSharedBytes(size_t phase_bytes) {
  return phase_bytes + kPhaseSlots * sizeof(Phase);
}

cudaError_t LaunchPersistent(cudaStream_t stream, int blocks,
                             size_t shared_bytes, const PersistentArgs& args) {
  const cudaError_t status = SetUpKernel(
      reinterpret_cast<const void*>(&PersistentKernel), shared_bytes);
  if (status != cudaSuccess) return status;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(kPersistentThreads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, PersistentKernel, args);
}

}  // namespace nacre::kernels::cuda
