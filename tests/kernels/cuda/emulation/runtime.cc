#include "tests/kernels/cuda/emulation/runtime.h"

#include <cuda_runtime_api.h>
#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace nacre::kernels::cuda::emulation {
namespace {

constexpr size_t kArenaBytes = size_t{16} << 30;  // of addresses
constexpr size_t kPage = 4096;
constexpr size_t kAlignment = 256;
constexpr unsigned char kGarbage = 0xa5;
constexpr unsigned char kGuard = 0x5a;
constexpr size_t kDefaultSharedBytes = 48 << 10;
constexpr unsigned kMostBlocksYZ = 65535;

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "emulated device: %s\n", what);
  std::exit(1);
}

// Device memory, in pieces of powers of two that are used again. Only what runs
// on the device can read or write it.
class Arena {
 public:
  Arena() {
    void* const begin =
        mmap(nullptr, kArenaBytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin == MAP_FAILED) Die("no addresses for device memory");
    begin_ = static_cast<char*>(begin);
  }

  // A piece of `bytes` with a guard behind it.
  void* Allocate(size_t bytes) {
    const size_t size = std::bit_ceil(bytes + kAlignment);
    std::deque<char*>& freed = freed_[size];
    char* data = begin_ + used_;
    if (freed.empty()) {
      if (size > kArenaBytes - used_) Die("no addresses left");
      used_ += size;
    } else {
      data = freed.front();
      freed.pop_front();
    }
    Open();
    std::memset(data, kGarbage, bytes);
    std::memset(data + bytes, kGuard, size - bytes);
    Close();
    pieces_[data] = {bytes, size};
    return data;
  }

  size_t Free(void* data) {
    const auto piece = pieces_.find(static_cast<char*>(data));
    if (piece == pieces_.end()) Die("freed what is not device memory");
    const auto [bytes, size] = piece->second;
    Open();
    char* const guard = piece->first + bytes;
    if (!std::all_of(guard, piece->first + size, [](char byte) {
          return static_cast<unsigned char>(byte) == kGuard;
        })) {
      Die("device memory was written behind its end");
    }
    std::memset(piece->first, kGarbage, bytes);
    Close();
    freed_[size].push_back(piece->first);
    pieces_.erase(piece);
    return bytes;
  }

  bool Contains(const void* pointer) const {
    const auto* const at = static_cast<const char*>(pointer);
    return at >= begin_ && at < begin_ + used_;
  }

  void Open() { Protect(PROT_READ | PROT_WRITE); }
  void Close() { Protect(PROT_NONE); }

 private:
  struct Piece {
    size_t bytes;
    size_t size;  // with its guard
  };

  void Protect(int rights) {
    const size_t bytes = (used_ + kPage - 1) / kPage * kPage;
    if (bytes > 0 && mprotect(begin_, bytes, rights) != 0) Die("mprotect");
  }

  char* begin_ = nullptr;
  size_t used_ = 0;
  std::map<char*, Piece> pieces_;
  std::map<size_t, std::deque<char*>> freed_;  // by their size
};

Arena& DeviceMemory() {
  static Arena arena;
  return arena;
}

std::deque<std::function<void()>>& Stream() {
  static std::deque<std::function<void()>> stream;
  return stream;
}
// How many were queued, and how many have run.
int64_t queued = 0;
int64_t finished = 0;

// Host memory that copies which have not run yet read or write.
struct HostRange {
  const char* begin;
  const char* end;
  int64_t copy;  // how many were queued with it
};
std::deque<HostRange> host_ranges;

void RunUntil(int64_t target) {
  if (finished >= target) return;
  DeviceMemory().Open();
  while (finished < target) {
    // Taken off first: what runs may not queue.
    const std::function<void()> run = std::move(Stream().front());
    Stream().pop_front();
    run();
    ++finished;
  }
  while (!host_ranges.empty() && host_ranges.front().copy <= finished) {
    host_ranges.pop_front();
  }
  DeviceMemory().Close();
}

// The graph that the stream is being captured into.
struct OpenCapture {
  std::vector<std::function<void()>> kernels;
  bool invalid = false;
};
std::optional<OpenCapture> capture;

// Whether a capture is open, which what calls this ends.
bool InvalidatesCapture() {
  if (capture.has_value()) capture->invalid = true;
  return capture.has_value();
}

void CheckNotInUse(void* host) {
  const auto* const begin = static_cast<const char*>(host);
  const char* const end = begin + malloc_usable_size(host);
  for (const HostRange& range : host_ranges) {
    if (range.begin < end && begin < range.end) {
      Die("host memory was freed that a copy has yet to use");
    }
  }
}

cudaError_t WaitUntil(int64_t target) {
  if (InvalidatesCapture()) return cudaErrorStreamCaptureUnsupported;
  ++counts.waits;
  RunUntil(target);
  return settings.fault;
}

std::map<const void*, size_t>& SharedLimits() {
  static std::map<const void*, size_t> limits;  // of kernels that raised theirs
  return limits;
}

}  // namespace

void ResetDevice() {
  settings = DeviceSettings();
  const DeviceCounts before = std::exchange(counts, DeviceCounts());
  counts.used_bytes = before.used_bytes;
  counts.graphs = before.graphs;
}

void Enqueue(std::function<void()> run) {
  if (capture.has_value()) {
    capture->kernels.push_back(std::move(run));
    return;
  }
  Stream().push_back(std::move(run));
  ++queued;
}

int64_t Unfinished() { return queued - finished; }

void CheckDevicePointer(const void* pointer) {
  if (pointer != nullptr && !DeviceMemory().Contains(pointer)) {
    Die("a kernel was given a pointer that is not the device's");
  }
}

cudaError_t CheckLaunch(const cudaLaunchConfig_t& config, const void* kernel) {
  ++counts.launches;
  counts.kernels.insert(kernel);
  if (settings.next_launch != cudaSuccess) {
    return std::exchange(settings.next_launch, cudaSuccess);
  }
  const auto limit = SharedLimits().find(kernel);
  const size_t shared_bytes =
      limit == SharedLimits().end() ? kDefaultSharedBytes : limit->second;
  const dim3& grid = config.gridDim;
  const dim3& block = config.blockDim;
  const bool fits = config.dynamicSmemBytes <= shared_bytes && grid.x > 0 &&
                    grid.y > 0 && grid.z > 0 && grid.x <= 0x7fffffffu &&
                    grid.y <= kMostBlocksYZ && grid.z <= kMostBlocksYZ &&
                    block.x > 0 && block.x <= 1024 && block.x % 32 == 0 &&
                    block.y == 1 && block.z == 1;
  return fits ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace nacre::kernels::cuda::emulation

namespace emulation = nacre::kernels::cuda::emulation;
using emulation::capture;
using emulation::counts;
using emulation::Enqueue;
using emulation::InvalidatesCapture;
using emulation::settings;

struct CUevent_st {
  int64_t target = 0;
};
struct CUgraph_st {
  std::vector<std::function<void()>> kernels;
};
struct CUgraphExec_st {
  std::vector<std::function<void()>> kernels;
};

extern "C" {

cudaError_t cudaGetDeviceCount(int* devices) {
  *devices = settings.count_error == cudaSuccess ? settings.devices : 0;
  return settings.count_error;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = settings.driver_version;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  return device < settings.devices ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = settings.multiprocessors;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = settings.shared_limit;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = settings.major;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = settings.minor;
      return cudaSuccess;
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "emulated device");
  properties->major = settings.major;
  properties->minor = settings.minor;
  properties->multiProcessorCount = settings.multiprocessors;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* kernel,
                                 cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) {
    return cudaSuccess;
  }
  if (value > settings.shared_limit) return cudaErrorInvalidValue;
  emulation::SharedLimits()[kernel] = static_cast<size_t>(value);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = settings.memory_bytes;
  *free = settings.memory_bytes - counts.used_bytes;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** data, size_t bytes) {
  if (InvalidatesCapture()) return cudaErrorStreamCaptureUnsupported;
  if (bytes > settings.memory_bytes - counts.used_bytes) {
    *data = nullptr;
    return cudaErrorMemoryAllocation;
  }
  *data = emulation::DeviceMemory().Allocate(bytes);
  counts.used_bytes += bytes;
  return cudaSuccess;
}

cudaError_t cudaFree(void* data) {
  if (data == nullptr) return cudaSuccess;
  if (InvalidatesCapture()) return cudaErrorStreamCaptureUnsupported;
  emulation::RunUntil(emulation::queued);
  counts.used_bytes -= emulation::DeviceMemory().Free(data);
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** data, size_t bytes) {
  *data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *data == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t cudaFreeHost(void* data) {
  emulation::CheckNotInUse(data);
  std::free(data);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t) {
  if (InvalidatesCapture()) return cudaErrorStreamCaptureUnsupported;
  emulation::CheckDevicePointer(data);
  Enqueue([=] { std::memset(data, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t) {
  if (InvalidatesCapture()) return cudaErrorStreamCaptureUnsupported;
  if (kind == cudaMemcpyHostToDevice) {
    emulation::CheckDevicePointer(to);
    ++counts.uploads;
  } else if (kind == cudaMemcpyDeviceToHost) {
    emulation::CheckDevicePointer(from);
    counts.downloaded_bytes += bytes;
  }
  Enqueue([=] { std::memcpy(to, from, bytes); });
  if (kind != cudaMemcpyDeviceToDevice) {
    const auto* const host =
        static_cast<const char*>(kind == cudaMemcpyHostToDevice ? from : to);
    emulation::host_ranges.push_back({host, host + bytes, emulation::queued});
  }
  return cudaSuccess;
}

cudaError_t cudaMemset(void* data, int value, size_t bytes) {
  cudaMemsetAsync(data, value, bytes, nullptr);
  return emulation::WaitUntil(emulation::queued);
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes,
                       cudaMemcpyKind kind) {
  cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  return emulation::WaitUntil(emulation::queued);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = nullptr;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }

cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return emulation::WaitUntil(emulation::queued);
}

cudaError_t cudaDeviceSynchronize() {
  return emulation::WaitUntil(emulation::queued);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  if (InvalidatesCapture()) return cudaErrorStreamCaptureUnsupported;
  event->target = emulation::queued;
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return emulation::WaitUntil(event->target);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  if (capture.has_value()) return cudaErrorIllegalState;
  const cudaError_t status = std::exchange(settings.next_capture, cudaSuccess);
  if (status == cudaSuccess) capture.emplace();
  return status;
}

cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  *graph = nullptr;
  if (!capture.has_value()) return cudaErrorIllegalState;
  const bool invalid = capture->invalid;
  if (!invalid) *graph = new CUgraph_st{std::move(capture->kernels)};
  capture.reset();
  return invalid ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  const cudaError_t status =
      std::exchange(settings.next_instantiation, cudaSuccess);
  if (status != cudaSuccess) return status;
  *executable = new CUgraphExec_st{graph->kernels};
  ++counts.graphs;
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t) {
  const cudaError_t status =
      std::exchange(settings.next_graph_launch, cudaSuccess);
  if (status != cudaSuccess) return status;
  ++counts.graph_launches;
  for (const auto& kernel : executable->kernels) Enqueue(kernel);
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  --counts.graphs;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return cudaSuccess; }

const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation"
         : error == cudaErrorNoDevice       ? "cudaErrorNoDevice"
                                            : "cudaErrorEmulated";
}

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory"
         : error == cudaErrorNoDevice ? "no CUDA-capable device is detected"
                                      : "emulated error";
}

}  // extern "C"
