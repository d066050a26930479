#include "tests/kernels/cuda/emulation/runtime.h"

#include <cuda_runtime_api.h>
#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tests/kernels/cuda/emulation/arena.h"
#include "tests/kernels/cuda/emulation/machine.h"

namespace nacre::kernels::cuda::emulation {
namespace {

constexpr size_t kDefaultSharedBytes = 48 << 10;
constexpr unsigned kMostBlocksYZ = 65535;

// What a stream does: a kernel or something else.
struct Job {
  std::unique_ptr<GridRun> kernel;
  std::function<void()> other;
};

std::deque<Job>& Stream() {
  static std::deque<Job> stream;
  return stream;
}
// Kernels after the one that runs which may have started: each starts when the
// one before it has.
constexpr size_t kLookAhead = 2;
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

// Runs the first; of the next ones `most` are waited for, too.
void RunJob(size_t most) {
  // Taken off first: what runs may not queue.
  const Job job = std::move(Stream().front());
  Stream().pop_front();
  if (job.kernel == nullptr) return job.other();
  job.kernel->Run([most] {
    for (size_t i = 0; i < std::min(most, kLookAhead); ++i) {
      GridRun* const next = Stream()[i].kernel.get();
      if (next == nullptr || !next->overlaps()) break;
      next->StartEarly();
    }
  });
}

void RunUntil(int64_t target) {
  if (finished >= target) return;
  DeviceMemory().Open();
  while (finished < target) {
    RunJob(static_cast<size_t>(target - finished - 1));
    ++finished;
  }
  while (!host_ranges.empty() && host_ranges.front().copy <= finished) {
    host_ranges.pop_front();
  }
  DeviceMemory().Close();
}

// The graph that the stream is being captured into.
struct OpenCapture {
  std::vector<KernelLaunch> kernels;
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

// What kernels have asked for.
struct SharedMemory {
  size_t limit = kDefaultSharedBytes;
  int carveout = -1;
};

SharedMemory& SharedOf(const void* kernel) {
  static std::map<const void*, SharedMemory> kernels;
  return kernels[kernel];
}

// A capture takes none.
void Enqueue(std::function<void()> run) {
  Stream().push_back({nullptr, std::move(run)});
  ++queued;
}

}  // namespace

void ResetDevice() {
  settings = DeviceSettings();
  const DeviceCounts before = std::exchange(counts, DeviceCounts());
  counts.used_bytes = before.used_bytes;
  counts.graphs = before.graphs;
  SeedOverlap(1);
}

void EnqueueKernel(KernelLaunch launch) {
  if (capture.has_value()) {
    capture->kernels.push_back(std::move(launch));
    return;
  }
  Stream().push_back({std::make_unique<GridRun>(std::move(launch)), {}});
  ++queued;
}

bool MayOverlap(const cudaLaunchConfig_t& config) {
  return std::any_of(
      config.attrs, config.attrs + config.numAttrs,
      [](const cudaLaunchAttribute& attribute) {
        return attribute.id ==
                   cudaLaunchAttributeProgrammaticStreamSerialization &&
               attribute.val.programmaticStreamSerializationAllowed != 0;
      });
}

int SharedCarveout(const void* kernel) { return SharedOf(kernel).carveout; }

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
  const dim3& grid = config.gridDim;
  const dim3& block = config.blockDim;
  const bool fits = config.dynamicSmemBytes <= SharedOf(kernel).limit &&
                    grid.x > 0 && grid.y > 0 && grid.z > 0 &&
                    grid.x <= 0x7fffffffu && grid.y <= kMostBlocksYZ &&
                    grid.z <= kMostBlocksYZ && block.x > 0 && block.x <= 1024 &&
                    block.x % 32 == 0 && block.y == 1 && block.z == 1;
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
  std::vector<emulation::KernelLaunch> kernels;
};
struct CUgraphExec_st {
  std::vector<emulation::KernelLaunch> kernels;
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
  ++counts.kernel_attributes;
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
    if (value > settings.shared_limit) return cudaErrorInvalidValue;
    emulation::SharedOf(kernel).limit = static_cast<size_t>(value);
  } else if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) {
    emulation::SharedOf(kernel).carveout = value;
  }
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
  ++counts.allocations;
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

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (emulation::finished >= event->target) return settings.fault;
  // Time passes with each question.
  emulation::RunUntil(emulation::finished + 1);
  return cudaErrorNotReady;
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
  for (const auto& kernel : executable->kernels) {
    emulation::EnqueueKernel(kernel);
  }
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  --counts.graphs;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return cudaSuccess; }

const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorMemoryAllocation     ? "cudaErrorMemoryAllocation"
         : error == cudaErrorNoDevice           ? "cudaErrorNoDevice"
         : error == cudaErrorInsufficientDriver ? "cudaErrorInsufficientDriver"
                                                : "cudaErrorEmulated";
}

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory"
         : error == cudaErrorNoDevice ? "no CUDA-capable device is detected"
                                      : "emulated error";
}

}  // extern "C"
