// A libnccl for the emulated device: NCCL's own functions, as many as we load,
// in a library that is loaded like NCCL's. Both ranks are of one process and
// one thread; a send reaches its receive on the emulated stream.

#include "tests/kernels/cuda/nccl_library.h"

#include <cstring>
#include <deque>

namespace {

nacre::kernels::cuda::NcclLibraryState state;

// Of the one pair: sends that no receive has met yet.
struct Sent {
  const void* data;
  size_t bytes;
};
std::deque<Sent> sent;

}  // namespace

struct ncclComm {
  int rank = 0;
};

extern "C" {

nacre::kernels::cuda::NcclLibraryState* NcclLibrary() { return &state; }

ncclResult_t ncclGetVersion(int* version) {
  *version = state.version;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id->internal, 'n', sizeof(id->internal));
  return state.result;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks,
                                    ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  *comm = new ncclComm{rank};
  ++state.comms;
  state.nranks = nranks;
  state.rank = rank;
  state.id.assign(id.internal, sizeof(id.internal));
  state.config = *config;
  return state.result == ncclSuccess ? ncclInProgress : state.result;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* error) {
  *error = state.async_error;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  delete comm;
  --state.comms;
  sent.clear();
  return ncclSuccess;
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type,
                      int peer, ncclComm_t comm, cudaStream_t) {
  if (state.result != ncclSuccess) return state.result;
  if (type != ncclInt8 || peer != 1 - comm->rank) return ncclInvalidArgument;
  sent.push_back({data, count});
  return ncclInProgress;
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  if (state.result != ncclSuccess) return state.result;
  if (type != ncclInt8 || peer != 1 - comm->rank) return ncclInvalidArgument;
  if (sent.empty() || sent.front().bytes != count) return ncclInternalError;
  state.copy(data, sent.front().data, count, cudaMemcpyDeviceToDevice, stream);
  sent.pop_front();
  return ncclInProgress;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited" : "other error";
}

const char* ncclGetLastError(ncclComm_t) { return state.last_error; }

}  // extern "C"
