#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/peer_flags.cuh"
#include "kernels/cuda/peer_sums.h"
#include "kernels/cuda/primitives.cuh"
#include "kernels/cuda/sum_of_pairs.cuh"

namespace nacre::kernels::cuda {
namespace {

constexpr int kVectorValues = 4;
constexpr int kLeastBlockValues = kVectorValues * kPeerThreads;
constexpr int64_t kLookEvery = 50'000;  // ns, at the time and the host's word

// Which values of a call a block has, and where they lie for its peers.
struct PeerBlock {
  unsigned call;  // from 1 on
  size_t first;
  int size;

  __device__ __forceinline__ float* ValuesOf(const Peers& peers,
                                             int rank) const {
    return peers.of_ranks[rank]->values[call % 2][blockIdx.x];
  }
};

// Begins a kernel. False: a wait has ended for good.
__device__ __forceinline__ bool BeginBlock(const Peers& peers, size_t count,
                                           int each, PeerBlock* block) {
  LaunchDependents();
  WaitForPrevious();
  const PeerBuffer& own = *peers.of_ranks[peers.rank];
  block->call = own.calls[blockIdx.x] + 1;
  block->first = static_cast<size_t>(blockIdx.x) * each;
  const size_t left = count - block->first;
  block->size =
      left < static_cast<size_t>(each) ? static_cast<int>(left) : each;
  // Another block may set it meanwhile: the threads of one must agree.
  return __syncthreads_or(own.ended != 0) == 0;
}

// Signed: a GPU's time may go back a little, which is then not long ago.
__device__ __forceinline__ int64_t Since(uint64_t then, uint64_t now) {
  return static_cast<int64_t>(now - then);
}

// False: not in time.
__device__ __forceinline__ bool WaitForPeer(const Peers& peers, int peer,
                                            unsigned call) {
  const unsigned* const flag =
      &peers.of_ranks[peers.rank]->arrivals[blockIdx.x][peer];
  const uint64_t begin = Nanoseconds();
  uint64_t looked = begin;
  while (!HasCome(flag, call)) {
    const uint64_t now = Nanoseconds();
    if (Since(looked, now) < kLookEvery) continue;
    looked = now;
    if (HostSays(peers.stop)) return false;
    if (Since(begin, now) < peers.limit) continue;
    TellHost(peers.late + peer);
    return false;
  }
  return true;
}

// All threads, when they have stored what the block gives: returns when its
// peers have, too.
__device__ __forceinline__ void MeetPeers(const Peers& peers, unsigned call) {
  __syncthreads();  // all have stored, and know the call
  PeerBuffer* const own = peers.of_ranks[peers.rank];
  const int peer = threadIdx.x;
  if (peer < peers.ranks && peer != peers.rank) {
    SetFlag(&peers.of_ranks[peer]->arrivals[blockIdx.x][peers.rank], call);
    if (!WaitForPeer(peers, peer, call)) own->ended = 1;
  }
  if (peer == peers.rank) own->calls[blockIdx.x] = call;
  __syncthreads();  // what all peers give is there
}

template <typename Vector>
constexpr int kValuesOf = sizeof(Vector) / sizeof(float);

// Calls each(i) for the values of the block, a vector at a time.
template <typename Vector, typename Each>
__device__ __forceinline__ void ForEach(int size, const Each& each) {
  for (int i = kValuesOf<Vector> * threadIdx.x; i < size;
       i += kValuesOf<Vector> * kPeerThreads) {
    each(i);
  }
}

template <typename Vector>
__device__ __forceinline__ const Vector& VectorAt(const float* values) {
  return *reinterpret_cast<const Vector*>(values);
}
template <typename Vector>
__device__ __forceinline__ Vector& VectorAt(float* values) {
  return *reinterpret_cast<Vector*>(values);
}

template <typename Vector>
__device__ __forceinline__ void Give(const Peers& peers, const PeerBlock& block,
                                     const float* values) {
  float* const to = block.ValuesOf(peers, peers.rank);
  ForEach<Vector>(block.size, [&](int i) {
    StoreForPeers(to + i, VectorAt<Vector>(values + block.first + i));
  });
}

template <int kRanks>
__device__ __forceinline__ float SumOfRanks(const float (&of_ranks)[kRanks]) {
  return SumOfPairs<kRanks>(of_ranks, 1);
}

template <int kRanks>
__device__ __forceinline__ float4 SumOfRanks(const float4 (&of_ranks)[kRanks]) {
  float lanes[kVectorValues][kRanks];
#pragma unroll
  for (int rank = 0; rank < kRanks; ++rank) {
    lanes[0][rank] = of_ranks[rank].x;
    lanes[1][rank] = of_ranks[rank].y;
    lanes[2][rank] = of_ranks[rank].z;
    lanes[3][rank] = of_ranks[rank].w;
  }
  return {SumOfRanks<kRanks>(lanes[0]), SumOfRanks<kRanks>(lanes[1]),
          SumOfRanks<kRanks>(lanes[2]), SumOfRanks<kRanks>(lanes[3])};
}

template <int kRanks, typename Vector>
__global__ void __launch_bounds__(kPeerThreads, 4)
    AddOfPeersKernel(const __grid_constant__ Peers peers, const float* part,
                     size_t count, int each, float* sum) {
  PeerBlock block;
  if (!BeginBlock(peers, count, each, &block)) return;
  Give<Vector>(peers, block, part);
  MeetPeers(peers, block.call);
  ForEach<Vector>(block.size, [&](int i) {
    Vector of_ranks[kRanks];
#pragma unroll
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == peers.rank) {
        of_ranks[rank] = VectorAt<Vector>(part + block.first + i);
      } else {
        LoadFromPeer(block.ValuesOf(peers, rank) + i, of_ranks[rank]);
      }
    }
    VectorAt<Vector>(sum + block.first + i) = SumOfRanks<kRanks>(of_ranks);
  });
}

template <typename Vector>
__global__ void __launch_bounds__(kPeerThreads, 4)
    TakeOfFirstKernel(const __grid_constant__ Peers peers, float* values,
                      size_t count, int each) {
  PeerBlock block;
  if (!BeginBlock(peers, count, each, &block)) return;
  if (peers.rank == 0) Give<Vector>(peers, block, values);
  MeetPeers(peers, block.call);
  if (peers.rank == 0) return;
  ForEach<Vector>(block.size, [&](int i) {
    Vector value;
    LoadFromPeer(block.ValuesOf(peers, 0) + i, value);
    VectorAt<Vector>(values + block.first + i) = value;
  });
}

// `part` begins with what the call gives, which is `before` values of whole
// rows and others.
template <typename Vector>
__global__ void __launch_bounds__(kPeerThreads, 4)
    GatherOfPeersKernel(const __grid_constant__ Peers peers, const float* part,
                        size_t before, size_t count, int each, int cols,
                        float* whole) {
  PeerBlock block;
  if (!BeginBlock(peers, count, each, &block)) return;
  Give<Vector>(peers, block, part);
  MeetPeers(peers, block.call);
  if (peers.rank != 0) return;
  for (int rank = 0; rank < peers.ranks; ++rank) {
    ForEach<Vector>(block.size, [&](int i) {
      const size_t at = before + block.first + i;
      const size_t row = at / cols;
      Vector value;
      if (rank == 0) {
        value = VectorAt<Vector>(part + block.first + i);
      } else {
        LoadFromPeer(block.ValuesOf(peers, rank) + i, value);
      }
      VectorAt<Vector>(whole + (row * peers.ranks + rank) * cols + at % cols) =
          value;
    });
  }
}

// Values of a block: a vector for each thread, or as many as all blocks need.
int EachOf(size_t count) {
  constexpr size_t kUnit = size_t{kPeerBlocks} * kVectorValues;
  const size_t each = (count + kUnit - 1) / kUnit * kVectorValues;
  return each < kLeastBlockValues ? kLeastBlockValues : static_cast<int>(each);
}

Grid GridOf(size_t count) {
  const auto each = static_cast<size_t>(EachOf(count));
  const auto blocks = static_cast<unsigned>((count + each - 1) / each);
  return {dim3(blocks), kPeerThreads};
}

bool IsAligned(const float* values) {
  return reinterpret_cast<uintptr_t>(values) % sizeof(float4) == 0;
}

template <int kRanks>
cudaError_t AddOf(const Queue& queue, const Peers& peers, const float* part,
                  size_t count, float* sum) {
  const bool vectors =
      count % kVectorValues == 0 && IsAligned(part) && IsAligned(sum);
  return LaunchKernel(queue, GridOf(count),
                      vectors ? &AddOfPeersKernel<kRanks, float4>
                              : &AddOfPeersKernel<kRanks, float>,
                      peers, part, count, EachOf(count), sum);
}

}  // namespace

cudaError_t AddOfPeers(const Queue& queue, const Peers& peers,
                       const float* part, size_t count, float* sum) {
  switch (peers.ranks) {
    case 2:
      return AddOf<2>(queue, peers, part, count, sum);
    case 4:
      return AddOf<4>(queue, peers, part, count, sum);
    case 8:
      return AddOf<8>(queue, peers, part, count, sum);
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t TakeOfFirst(const Queue& queue, const Peers& peers, float* values,
                        size_t count) {
  const bool vectors = count % kVectorValues == 0 && IsAligned(values);
  return LaunchKernel(
      queue, GridOf(count),
      vectors ? &TakeOfFirstKernel<float4> : &TakeOfFirstKernel<float>, peers,
      values, count, EachOf(count));
}

cudaError_t GatherOfPeers(const Queue& queue, const Peers& peers,
                          const float* part, size_t first, size_t count,
                          int cols, float* whole) {
  const bool vectors = count % kVectorValues == 0 &&
                       cols % kVectorValues == 0 && IsAligned(part) &&
                       IsAligned(whole);
  return LaunchKernel(
      queue, GridOf(count),
      vectors ? &GatherOfPeersKernel<float4> : &GatherOfPeersKernel<float>,
      peers, part + first, first, count, EachOf(count), cols, whole);
}

}  // namespace nacre::kernels::cuda
