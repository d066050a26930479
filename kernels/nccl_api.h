// The functions of NCCL that tensors need on their way from one GPU to
// another, those that ranks of one model meet by (nccl_collective.h), and those
// of the CUDA runtime beside them. Interfaces, so that tests have a NCCL that
// fails when asked to.
//
// A communicator is non-blocking: no call waits for the other ranks. Neither
// does any call wait for a stream, but for those that give or free memory.
//
// Thread-compatible: one thread, which has called BindThread. CommIsIdle,
// CommAbort and EventIsDone need no such thread. Everything that it gives is
// freed before it is destroyed. Errors are those of the library, with its
// message; INTERNAL unless another code fits better.

#ifndef KERNELS_NCCL_API_H_
#define KERNELS_NCCL_API_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace nacre::kernels {

class NcclApi {
 public:
  // Handles; null is none.
  using Comm = void*;
  using Stream = void*;
  using Event = void*;

  virtual ~NcclApi() = default;

  // Of the library: "2.28.9". NCCL refuses ranks of other versions.
  virtual std::string version() const = 0;

  // Before the first other call on a thread, but for version.
  virtual absl::Status BindThread() = 0;

  // ncclGetUniqueId: bytes that the other ranks need.
  virtual absl::StatusOr<std::string> GetUniqueId() = 0;
  // ncclCommInitRankConfig: begins to join as one of `ranks`.
  // INVALID_ARGUMENT: no id of GetUniqueId.
  virtual absl::StatusOr<Comm> CommInitRank(const std::string& id, int rank,
                                            int ranks) = 0;
  // ncclCommGetAsyncError. False: the last call on it is still in progress, and
  // it takes no other but CommAbort. An error is for good.
  virtual absl::StatusOr<bool> CommIsIdle(Comm comm) = 0;
  // Ends it, and what it does on streams. The only call that frees it.
  virtual void CommAbort(Comm comm) = 0;

  // Queue a transfer of `bytes` bytes with another rank, in order. It is on the
  // stream once CommIsIdle says so.
  virtual absl::Status Send(const void* device, size_t bytes, int peer,
                            Comm comm, Stream stream) = 0;
  virtual absl::Status Recv(void* device, size_t bytes, int peer, Comm comm,
                            Stream stream) = 0;

  // One that waits for no other stream.
  virtual absl::StatusOr<Stream> StreamCreate() = 0;
  virtual void StreamDestroy(Stream stream) = 0;

  // RESOURCE_EXHAUSTED: no room. MallocHost gives memory of the host that
  // copies need not wait for.
  virtual absl::StatusOr<void*> Malloc(size_t bytes) = 0;
  virtual void Free(void* device) = 0;
  virtual absl::StatusOr<void*> MallocHost(size_t bytes) = 0;
  virtual void FreeHost(void* host) = 0;
  // Queue a copy; `host` is of MallocHost.
  virtual absl::Status CopyToDevice(const void* host, size_t bytes,
                                    void* device, Stream stream) = 0;
  virtual absl::Status CopyToHost(const void* device, size_t bytes, void* host,
                                  Stream stream) = 0;

  // An event marks what a stream has queued so far.
  virtual absl::StatusOr<Event> EventCreate() = 0;
  virtual void EventDestroy(Event event) = 0;
  virtual absl::Status EventRecord(Event event, Stream stream) = 0;
  virtual absl::StatusOr<bool> EventIsDone(Event event) = 0;
};

// What all ranks of a communicator call together, in the same order. Each is on
// the stream once CommIsIdle says so.
class NcclCollectiveApi : public NcclApi {
 public:
  // The parts of all ranks, one after the other.
  //   part [bytes], all [ranks * bytes]
  virtual absl::Status AllGather(const void* part, size_t bytes, void* all,
                                 Comm comm, Stream stream) = 0;
  // Rank 0's bytes, on every rank, in place.
  virtual absl::Status Broadcast(void* data, size_t bytes, Comm comm,
                                 Stream stream) = 0;

  // Sends and receives of this thread between the two are one call, and wait
  // for each other in no order. That of a communicator is on its stream once
  // CommIsIdle says so after GroupEnd.
  virtual absl::Status GroupStart() = 0;
  virtual absl::Status GroupEnd(Comm comm) = 0;
};

struct NcclOptions {
  int device = 0;  // CUDA's index
  // Blocks that a kernel of NCCL may have; 0: as many as NCCL likes.
  int most_blocks = 0;
  std::string library = "libnccl.so.2";
};

// The machine's NCCL. FAILED_PRECONDITION: this build has none, or the machine
// has no such library, too old a one, or no such GPU.
absl::StatusOr<std::unique_ptr<NcclCollectiveApi>> OpenNccl(
    const NcclOptions& options);

}  // namespace nacre::kernels

#endif  // KERNELS_NCCL_API_H_
