// What the ranks of one model say to each other while each computes its share
// of every layer. A rank has one of these of its own, as a rank of NCCL has its
// communicator. All ranks call the same methods in the same order with the same
// sizes; each call waits for the others. Implementations: ranks that are
// threads of one process (shared_memory_collective.h), that compute on devices
// and meet in memory of the host (staged_collective.h), or on the devices
// (nccl_collective.h, peer_collectives.h). Those on devices only queue: there a
// device waits for the others.
//
// Errors: the status that Abort was called with, of the call that is under way
// and all after it. What a failed call was to write is undefined, and others
// may still be at it. So memory of a call lives until all ranks have returned
// from it.
//
// One thread, the rank's, calls it, but for Abort, which any thread may call.

#ifndef KERNELS_COLLECTIVE_H_
#define KERNELS_COLLECTIVE_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"

namespace nacre::kernels {

class Collective {
 public:
  virtual ~Collective() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;  // a power of two
  // For logs: where it makes sums; empty: where the ranks compute.
  virtual std::string description() const { return ""; }

  // The sum of all ranks' parts, on every rank. The order is fixed: parts are
  // summed in pairs of neighbours, ((p0 + p1) + (p2 + p3)) + ... Ranks that
  // have already summed their own shares so give the same bits as more ranks
  // that have not.
  //   part, sum [count], apart from each other; the backend's memory
  virtual absl::Status AllReduce(const float* part, size_t count,
                                 float* sum) = 0;

  // The values of rank 0, on every rank.                       values [count]
  virtual absl::Status Broadcast(float* values, size_t count) = 0;

  // On rank 0 the columns of all ranks beside each other; `whole` of the others
  // is not touched.    part [rows, cols], whole [rows, ranks() * cols]
  virtual absl::Status Gather(const float* part, int rows, int cols,
                              float* whole) = 0;

  // The reason of Abort, if any. Of one that only queues, after a wait for the
  // device: whether all calls so far came to their end. Else it is as the
  // errors of calls.
  virtual absl::Status Outcome() = 0;

  // Says that a rank has failed. The calls of all ranks, also those that wait,
  // then return `reason`, which is not OK. Of several reasons they return the
  // first.
  virtual void Abort(const absl::Status& reason) = 0;
};

}  // namespace nacre::kernels

#endif  // KERNELS_COLLECTIVE_H_
