// Ranks that have a GPU each and read each other's memory: a kernel on each
// meets those of the others, with no part of the host. It writes what its rank
// gives to memory that its peers read, says so by flags in theirs, waits for
// their flags, and reads what they gave. A block meets the blocks of its number
// alone. The number of a call is counted on the device: launches that come
// again, as of a graph, need no other arguments.
//
// All ranks queue the same calls in the same order, with the same counts. Each
// kernel meets all others, whoever gives: so a place is written again only when
// all have read it. There are two of each, since a rank may be one call ahead.
//
// A wait ends after a limit, or when the host says so. Then its rank gives
// nothing from there on, and the kernels after it do nothing.
//
// Each queues one kernel and does not block; what it returns is the launch's.
// Free of Abseil: it also builds where only CUDA is installed.

#ifndef KERNELS_CUDA_PEER_SUMS_H_
#define KERNELS_CUDA_PEER_SUMS_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.h"

namespace nacre::kernels::cuda {

inline constexpr int kMostPeers = 8;
// All blocks of a call run at the same time, since they wait: several fit on a
// multiprocessor, so that these do on each GPU that we take.
inline constexpr int kPeerBlocks = 64;
inline constexpr int kPeerThreads = 256;
inline constexpr int kPeerBlockValues = 2048;
// 512 KB: 16 rows, of as many as products have kernels for decoding, of a
// model whose hidden_size is 8192. Each GPU reads so much of every other one.
inline constexpr size_t kMostPeerValues =
    size_t{kPeerBlocks} * kPeerBlockValues;

// A rank's, on its device; zeros before the first call.
struct PeerBuffer {
  // Its peers read these, of odd and even calls of each block.
  alignas(16) float values[2][kPeerBlocks][kPeerBlockValues];
  // Its peers write these: the call that the block of each rank has come to.
  unsigned arrivals[kPeerBlocks][kMostPeers];
  unsigned calls[kPeerBlocks];  // of each block so far
  unsigned ended;               // not 0: a wait did, for good
};

// What a rank's kernels are given.
struct Peers {
  int rank = 0;
  int ranks = 0;  // 2, 4 or 8
  PeerBuffer* of_ranks[kMostPeers] = {};
  // In memory of the host: by rank, set when it was waited for too long; and
  // what ends all waits when the host sets it.
  unsigned* late = nullptr;
  const unsigned* stop = nullptr;
  int64_t limit = 0;  // ns

  friend bool operator==(const Peers&, const Peers&) = default;
};

// sum[i] = (part of rank 0 [i] + of rank 1 [i]) + (of rank 2 [i] + ...) ...
//   part, sum [count], apart; count: 1 to kMostPeerValues
cudaError_t AddOfPeers(const Queue& queue, const Peers& peers,
                       const float* part, size_t count, float* sum);

// The values of rank 0, on every rank.   values [count], likewise
cudaError_t TakeOfFirst(const Queue& queue, const Peers& peers, float* values,
                        size_t count);

// Of part [.., cols] on each rank the values from `first` on, one row after
// the other, in their places of whole [.., ranks * cols] on rank 0.
//   count: 1 to kMostPeerValues; `first` is a multiple of 4
cudaError_t GatherOfPeers(const Queue& queue, const Peers& peers,
                          const float* part, size_t first, size_t count,
                          int cols, float* whole);

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_PEER_SUMS_H_
