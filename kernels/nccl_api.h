// The functions of NCCL that tensors need on their way from one GPU to
// another, and those of the CUDA runtime beside them. An interface, so that
// tests have a NCCL that fails when asked to.
//
// A communicator has two ranks and is non-blocking: no call waits for the other
// rank. Neither does any call wait for a stream, but for those that give or
// free memory.
//
// Thread-compatible: one thread, which has called BindThread. Everything
// that it gives is freed before it is destroyed. Errors are those of the
// library, with its message; INTERNAL unless another code fits better.

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

  // Before the first other call on a thread.
  virtual absl::Status BindThread() = 0;

  // ncclGetUniqueId: bytes that the other rank needs.
  virtual absl::StatusOr<std::string> GetUniqueId() = 0;
  // ncclCommInitRankConfig: begins to join as rank 0 or 1. INVALID_ARGUMENT: no
  // id of GetUniqueId.
  virtual absl::StatusOr<Comm> CommInitRank(const std::string& id,
                                            int rank) = 0;
  // ncclCommGetAsyncError. False: the last call on it is still in progress, and
  // it takes no other but CommAbort. An error is for good.
  virtual absl::StatusOr<bool> CommIsIdle(Comm comm) = 0;
  // Ends it, and what it does on streams. The only call that frees it.
  virtual void CommAbort(Comm comm) = 0;

  // Queue a transfer of `bytes` bytes with the other rank, in order. It is on
  // the stream once CommIsIdle says so.
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

struct NcclOptions {
  int device = 0;  // CUDA's index
  std::string library = "libnccl.so.2";
};

// The machine's NCCL. FAILED_PRECONDITION: this build has none, or the machine
// has no such library, too old a one, or no such GPU.
absl::StatusOr<std::unique_ptr<NcclApi>> OpenNccl(const NcclOptions& options);

}  // namespace nacre::kernels

#endif  // KERNELS_NCCL_API_H_
