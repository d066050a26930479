// NCCL as the machine has it: loaded when it is asked for, so that programs
// start where there is none.

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nccl.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/cuda/device.h"
#include "kernels/nccl_api.h"

namespace nacre::kernels {
namespace {

// The first whose communicators may be non-blocking and of few blocks.
constexpr int kLeastNcclVersion = NCCL_VERSION(2, 17, 0);

struct NcclLibrary {
  int version = 0;
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) comm_init = nullptr;
  decltype(&ncclCommGetAsyncError) comm_async_error = nullptr;
  decltype(&ncclCommAbort) comm_abort = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) recv = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclGetErrorString) error_string = nullptr;
  decltype(&ncclGetLastError) last_error = nullptr;
};

template <typename Function>
absl::Status LoadFunction(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("NCCL without ", name, ": too old a one"));
}

absl::StatusOr<NcclLibrary> LoadFunctions(void* library) {
  NcclLibrary nccl;
  NACRE_RETURN_IF_ERROR(
      LoadFunction(library, "ncclGetVersion", &nccl.get_version));
  NACRE_RETURN_IF_ERROR(
      LoadFunction(library, "ncclGetUniqueId", &nccl.get_unique_id));
  NACRE_RETURN_IF_ERROR(
      LoadFunction(library, "ncclCommInitRankConfig", &nccl.comm_init));
  NACRE_RETURN_IF_ERROR(
      LoadFunction(library, "ncclCommGetAsyncError", &nccl.comm_async_error));
  NACRE_RETURN_IF_ERROR(
      LoadFunction(library, "ncclCommAbort", &nccl.comm_abort));
  NACRE_RETURN_IF_ERROR(LoadFunction(library, "ncclSend", &nccl.send));
  NACRE_RETURN_IF_ERROR(LoadFunction(library, "ncclRecv", &nccl.recv));
  NACRE_RETURN_IF_ERROR(
      LoadFunction(library, "ncclAllGather", &nccl.all_gather));
  NACRE_RETURN_IF_ERROR(
      LoadFunction(library, "ncclBroadcast", &nccl.broadcast));
  NACRE_RETURN_IF_ERROR(
      LoadFunction(library, "ncclGroupStart", &nccl.group_start));
  NACRE_RETURN_IF_ERROR(LoadFunction(library, "ncclGroupEnd", &nccl.group_end));
  NACRE_RETURN_IF_ERROR(
      LoadFunction(library, "ncclGetErrorString", &nccl.error_string));
  NACRE_RETURN_IF_ERROR(
      LoadFunction(library, "ncclGetLastError", &nccl.last_error));
  return nccl;
}

// It stays loaded: NCCL has threads of its own.
absl::StatusOr<NcclLibrary> LoadNcclLibrary(const std::string& name) {
  void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("no NCCL on this machine: ", dlerror()));
  }
  NACRE_ASSIGN_OR_RETURN(NcclLibrary nccl, LoadFunctions(library));
  if (nccl.get_version(&nccl.version) != ncclSuccess ||
      nccl.version < kLeastNcclVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, " is too old: version ", nccl.version,
                     ", this program needs ", kLeastNcclVersion, " or later"));
  }
  return nccl;
}

absl::Status ToCudaStatus(cudaError_t error, const char* what) {
  return error == cudaSuccess ? absl::OkStatus() : cuda::ToStatus(error, what);
}

cudaStream_t ToStream(NcclApi::Stream stream) {
  return static_cast<cudaStream_t>(stream);
}

class CudaNccl final : public NcclCollectiveApi {
 public:
  CudaNccl(const NcclLibrary& nccl, const NcclOptions& options)
      : nccl_(nccl),
        device_(options.device),
        most_blocks_(options.most_blocks) {}

  // As NCCL_VERSION makes them, since 2.9.
  std::string version() const override {
    return absl::StrCat(nccl_.version / 10000, ".", nccl_.version / 100 % 100,
                        ".", nccl_.version % 100);
  }

  absl::Status BindThread() override {
    return ToCudaStatus(cudaSetDevice(device_), "cudaSetDevice");
  }

  absl::StatusOr<std::string> GetUniqueId() override {
    ncclUniqueId id;
    NACRE_RETURN_IF_ERROR(
        Check(nccl_.get_unique_id(&id), "ncclGetUniqueId", nullptr));
    return std::string(id.internal, sizeof(id.internal));
  }

  absl::StatusOr<Comm> CommInitRank(const std::string& id, int rank,
                                    int ranks) override {
    ncclUniqueId unique;
    if (id.size() != sizeof(unique.internal)) {
      return absl::InvalidArgumentError(absl::StrCat("an id of ", id.size(),
                                                     " bytes, NCCL's have ",
                                                     sizeof(unique.internal)));
    }
    std::memcpy(unique.internal, id.data(), id.size());
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (most_blocks_ > 0) {
      config.minCTAs = 1;
      config.maxCTAs = most_blocks_;
    }
    ncclComm_t comm = nullptr;
    const absl::Status status =
        Check(nccl_.comm_init(&comm, ranks, unique, rank, &config),
              "ncclCommInitRankConfig", comm);
    if (!status.ok()) {
      if (comm != nullptr) nccl_.comm_abort(comm);
      return status;
    }
    return Comm(comm);
  }

  absl::StatusOr<bool> CommIsIdle(Comm comm) override {
    auto* const nccl_comm = static_cast<ncclComm_t>(comm);
    ncclResult_t state = ncclSuccess;
    NACRE_RETURN_IF_ERROR(Check(nccl_.comm_async_error(nccl_comm, &state),
                                "ncclCommGetAsyncError", nccl_comm));
    NACRE_RETURN_IF_ERROR(Check(state, "the communicator", nccl_comm));
    return state != ncclInProgress;
  }

  void CommAbort(Comm comm) override {
    nccl_.comm_abort(static_cast<ncclComm_t>(comm));
  }

  absl::Status Send(const void* device, size_t bytes, int peer, Comm comm,
                    Stream stream) override {
    auto* const nccl_comm = static_cast<ncclComm_t>(comm);
    return Check(
        nccl_.send(device, bytes, ncclInt8, peer, nccl_comm, ToStream(stream)),
        "ncclSend", nccl_comm);
  }
  absl::Status Recv(void* device, size_t bytes, int peer, Comm comm,
                    Stream stream) override {
    auto* const nccl_comm = static_cast<ncclComm_t>(comm);
    return Check(
        nccl_.recv(device, bytes, ncclInt8, peer, nccl_comm, ToStream(stream)),
        "ncclRecv", nccl_comm);
  }
  absl::Status AllGather(const void* part, size_t bytes, void* all, Comm comm,
                         Stream stream) override {
    auto* const nccl_comm = static_cast<ncclComm_t>(comm);
    return Check(nccl_.all_gather(part, all, bytes, ncclInt8, nccl_comm,
                                  ToStream(stream)),
                 "ncclAllGather", nccl_comm);
  }
  absl::Status Broadcast(void* data, size_t bytes, Comm comm,
                         Stream stream) override {
    auto* const nccl_comm = static_cast<ncclComm_t>(comm);
    return Check(nccl_.broadcast(data, data, bytes, ncclInt8, /*root=*/0,
                                 nccl_comm, ToStream(stream)),
                 "ncclBroadcast", nccl_comm);
  }
  absl::Status GroupStart() override {
    return Check(nccl_.group_start(), "ncclGroupStart", nullptr);
  }
  absl::Status GroupEnd(Comm comm) override {
    return Check(nccl_.group_end(), "ncclGroupEnd",
                 static_cast<ncclComm_t>(comm));
  }

  absl::StatusOr<Stream> StreamCreate() override {
    cudaStream_t stream = nullptr;
    NACRE_RETURN_IF_ERROR(
        ToCudaStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                     "cudaStreamCreateWithFlags"));
    return Stream(stream);
  }
  void StreamDestroy(Stream stream) override {
    cudaStreamDestroy(ToStream(stream));
  }

  absl::StatusOr<void*> Malloc(size_t bytes) override {
    void* data = nullptr;
    NACRE_RETURN_IF_ERROR(ToCudaStatus(cudaMalloc(&data, bytes), "cudaMalloc"));
    return data;
  }
  void Free(void* device) override { cudaFree(device); }
  absl::StatusOr<void*> MallocHost(size_t bytes) override {
    void* data = nullptr;
    NACRE_RETURN_IF_ERROR(
        ToCudaStatus(cudaMallocHost(&data, bytes), "cudaMallocHost"));
    return data;
  }
  void FreeHost(void* host) override { cudaFreeHost(host); }

  absl::Status CopyToDevice(const void* host, size_t bytes, void* device,
                            Stream stream) override {
    return ToCudaStatus(
        cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice,
                        ToStream(stream)),
        "a copy to the device");
  }
  absl::Status CopyToHost(const void* device, size_t bytes, void* host,
                          Stream stream) override {
    return ToCudaStatus(
        cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost,
                        ToStream(stream)),
        "a copy to the host");
  }

  absl::StatusOr<Event> EventCreate() override {
    cudaEvent_t event = nullptr;
    NACRE_RETURN_IF_ERROR(
        ToCudaStatus(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                     "cudaEventCreateWithFlags"));
    return Event(event);
  }
  void EventDestroy(Event event) override {
    cudaEventDestroy(static_cast<cudaEvent_t>(event));
  }
  absl::Status EventRecord(Event event, Stream stream) override {
    return ToCudaStatus(
        cudaEventRecord(static_cast<cudaEvent_t>(event), ToStream(stream)),
        "cudaEventRecord");
  }
  absl::StatusOr<bool> EventIsDone(Event event) override {
    const cudaError_t error = cudaEventQuery(static_cast<cudaEvent_t>(event));
    if (error == cudaErrorNotReady) return false;
    NACRE_RETURN_IF_ERROR(ToCudaStatus(error, "cudaEventQuery"));
    return true;
  }

 private:
  absl::Status Check(ncclResult_t result, const char* what, ncclComm_t comm) {
    if (result == ncclSuccess || result == ncclInProgress) {
      return absl::OkStatus();
    }
    const char* const detail = nccl_.last_error(comm);
    return absl::InternalError(
        absl::StrCat(what, ": ", nccl_.error_string(result),
                     detail == nullptr || *detail == '\0' ? "" : ": ",
                     detail == nullptr ? "" : detail));
  }

  const NcclLibrary nccl_;
  const int device_;
  const int most_blocks_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<NcclCollectiveApi>> OpenNccl(
    const NcclOptions& options) {
  int devices = 0;
  NACRE_RETURN_IF_ERROR(
      ToCudaStatus(cudaGetDeviceCount(&devices), "NCCL needs a GPU"));
  if (options.device < 0 || options.device >= devices) {
    return absl::FailedPreconditionError(
        absl::StrCat("NCCL needs a GPU: there is no device ", options.device,
                     ", ", devices, " are there"));
  }
  NACRE_ASSIGN_OR_RETURN(const NcclLibrary nccl,
                         LoadNcclLibrary(options.library));
  return std::make_unique<CudaNccl>(nccl, options);
}

}  // namespace nacre::kernels
