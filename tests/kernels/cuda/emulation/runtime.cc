#include "tests/kernels/cuda/emulation/runtime.h"

#include <cuda_runtime_api.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "tests/kernels/cuda/emulation/arena.h"
#include "tests/kernels/cuda/emulation/machine.h"
#include "tests/kernels/cuda/emulation/peers.h"

struct CUstream_st {
  int device = 0;
};

namespace nacre::kernels::cuda::emulation {
namespace {

constexpr size_t kDefaultSharedBytes = 48 << 10;
constexpr unsigned kMostBlocksYZ = 65535;

// What a stream does: one of these.
struct Job {
  std::unique_ptr<GridRun> kernel;
  std::function<void()> other;
  std::function<bool()> together;  // false: not yet
};

// Kernels after the one that runs which may have started: each starts when the
// one before it has.
constexpr size_t kLookAhead = 2;

// Host memory that copies which have not run yet read or write.
struct HostRange {
  const char* begin;
  const char* end;
  int64_t copy;  // how many were queued with it
};

// What one device has to do, for all its streams.
struct DeviceQueue {
  int device = 0;
  std::deque<Job> jobs;
  // How many were queued, and how many have run.
  int64_t queued = 0;
  int64_t finished = 0;
  std::deque<HostRange> host_ranges;
  size_t used_bytes = 0;
};

DeviceQueue& QueueOf(int device) {
  static std::map<int, DeviceQueue> queues;
  DeviceQueue& queue = queues[device];
  queue.device = device;
  return queue;
}

// Held by every function of the runtime.
std::mutex& DeviceMutex() {
  static std::mutex mutex;
  return mutex;
}

thread_local int current_device = 0;
int running_device = 0;
// Whether a device that waits for others has them go on.
std::mt19937 random_advance(1);

// That have waited for other devices.
std::set<const void*>& KernelsThatMeet() {
  static std::set<const void*> kernels;
  return kernels;
}

bool Meets(const Job& job) {
  return job.together != nullptr ||
         (job.kernel != nullptr &&
          KernelsThatMeet().count(job.kernel->kernel()) > 0);
}

// Kernels from the job with that index on start early, of `most` at most.
void StartKernels(DeviceQueue* queue, size_t first, size_t most) {
  for (size_t i = first; i < first + std::min(most, kLookAhead); ++i) {
    GridRun* const next = queue->jobs[i].kernel.get();
    if (next == nullptr || !next->overlaps()) break;
    next->StartEarly();
  }
}

// Runs the first; of the next ones `most` are waited for, too. False: it waits
// for other devices.
bool RunJob(DeviceQueue* queue, size_t most) {
  running_device = queue->device;
  if (queue->jobs.front().together != nullptr) {
    StartKernels(queue, 1, most);
    if (!queue->jobs.front().together()) return false;
    queue->jobs.pop_front();
  } else {
    // Taken off first: what runs may not queue.
    Job job = std::move(queue->jobs.front());
    queue->jobs.pop_front();
    if (job.kernel == nullptr) {
      job.other();
    } else if (!settings.idle && !job.kernel->Run([queue, most] {
                 StartKernels(queue, 0, most);
               })) {
      ++counts.stood_still;
      KernelsThatMeet().insert(job.kernel->kernel());
      queue->jobs.push_front(std::move(job));
      return false;
    }
  }
  ++queue->finished;
  std::deque<HostRange>& ranges = queue->host_ranges;
  while (!ranges.empty() && ranges.front().copy <= queue->finished) {
    ranges.pop_front();
  }
  return true;
}

// Of each other device what is before what it does together with others, and
// that; at times all that it can. Whether any of it was run.
bool RunOthers(int device) {
  bool ran = false;
  for (int other = 0; other < settings.devices; ++other) {
    DeviceQueue& queue = QueueOf(other);
    const auto meets =
        std::find_if(queue.jobs.begin(), queue.jobs.end(), Meets);
    if (other == device || meets == queue.jobs.end()) continue;
    auto left = meets - queue.jobs.begin();
    if (random_advance() % 2 == 0) left = std::ssize(queue.jobs) - 1;
    for (; left >= 0; --left) {
      if (!RunJob(&queue, queue.jobs.size() - 1)) break;
      ran = true;
    }
  }
  return ran;
}

// Others may use the devices while this one waits for another one.
void RunUntil(int device, int64_t target) {
  static std::condition_variable_any time;
  DeviceQueue& queue = QueueOf(device);
  if (queue.finished >= target) return;
  DeviceMemory().Open();
  while (queue.finished < target) {
    const auto others = static_cast<size_t>(target - queue.finished - 1);
    if (RunJob(&queue, others) || RunOthers(device)) continue;
    DeviceMemory().Close();
    time.wait_for(DeviceMutex(), std::chrono::milliseconds(1));
    DeviceMemory().Open();
  }
  DeviceMemory().Close();
}

// The next job, if there is one and it waits for no other device.
void RunOne(int device) {
  if (QueueOf(device).jobs.empty()) return;
  DeviceMemory().Open();
  RunJob(&QueueOf(device), 0);
  DeviceMemory().Close();
}

// What was queued on a device so far.
void RunAll(int device) { RunUntil(device, QueueOf(device).queued); }

// The graph that a stream of this thread is being captured into.
struct OpenCapture {
  std::vector<KernelLaunch> kernels;
  bool invalid = false;
};
thread_local std::optional<OpenCapture> capture;

// Whether a capture is open, which what calls this ends.
bool InvalidatesCapture() {
  if (capture.has_value()) capture->invalid = true;
  return capture.has_value();
}

void CheckNotInUse(void* host) {
  const auto* const begin = static_cast<const char*>(host);
  const char* const end = begin + malloc_usable_size(host);
  for (int device = 0; device < settings.devices; ++device) {
    for (const HostRange& range : QueueOf(device).host_ranges) {
      if (range.begin < end && begin < range.end) {
        Die("host memory was freed that a copy has yet to use");
      }
    }
  }
}

// What waits for a device returns.
cudaError_t FaultOf(int device) {
  const bool has = settings.fault_device < 0 || settings.fault_device == device;
  return has ? settings.fault : cudaSuccess;
}

cudaError_t WaitUntil(int device, int64_t target) {
  if (InvalidatesCapture()) return cudaErrorStreamCaptureUnsupported;
  ++counts.waits;
  RunUntil(device, target);
  return FaultOf(device);
}

cudaError_t WaitForAll(int device) {
  return WaitUntil(device, QueueOf(device).queued);
}

// What kernels have asked for.
struct SharedMemory {
  size_t limit = kDefaultSharedBytes;
  int carveout = -1;
};

// On the current device.
SharedMemory& SharedOf(const void* kernel) {
  using Key = std::pair<int, const void*>;
  static std::map<Key, SharedMemory> kernels;
  return kernels[Key(current_device, kernel)];
}

// A capture takes none.
void Enqueue(int device, std::function<void()> run) {
  QueueOf(device).jobs.push_back({nullptr, std::move(run), nullptr});
  ++QueueOf(device).queued;
}

}  // namespace

void ResetDevice() {
  settings = DeviceSettings();
  current_device = 0;
  const DeviceCounts before = std::exchange(counts, DeviceCounts());
  counts.used_bytes = before.used_bytes;
  counts.graphs = before.graphs;
  SeedOverlap(1);
}

int DeviceOf(cudaStream_t stream) {
  return stream == nullptr ? current_device : stream->device;
}

namespace {

// Of a thread that holds the mutex.
void EnqueueOnDevice(int device, KernelLaunch launch) {
  if (capture.has_value()) {
    capture->kernels.push_back(std::move(launch));
    return;
  }
  if (!settings.runs_kernels) return;
  DeviceQueue& queue = QueueOf(device);
  queue.jobs.push_back(
      {std::make_unique<GridRun>(std::move(launch)), nullptr, nullptr});
  ++queue.queued;
}

void CheckPointer(const void* pointer, int device) {
  if (pointer == nullptr) return;
  if (!DeviceMemory().Contains(pointer)) {
    Die("a kernel was given a pointer that is not the device's");
  }
  const int owner = DeviceMemory().DeviceOf(pointer);
  if (owner != Arena::kNoDevice && owner != device) {
    Die("a pointer of another device");
  }
}

}  // namespace

void EnqueueKernel(KernelLaunch launch, cudaStream_t stream) {
  const std::lock_guard lock(DeviceMutex());
  EnqueueOnDevice(DeviceOf(stream), std::move(launch));
}

void EnqueueTogether(cudaStream_t stream,
                     const std::vector<const void*>& pointers,
                     std::function<bool()> run) {
  const std::lock_guard lock(DeviceMutex());
  const int device = DeviceOf(stream);
  if (InvalidatesCapture()) return;
  for (const void* const pointer : pointers) CheckPointer(pointer, device);
  QueueOf(device).jobs.push_back({nullptr, nullptr, std::move(run)});
  ++QueueOf(device).queued;
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

bool IsCooperative(const cudaLaunchConfig_t& config) {
  return std::any_of(config.attrs, config.attrs + config.numAttrs,
                     [](const cudaLaunchAttribute& attribute) {
                       return attribute.id == cudaLaunchAttributeCooperative &&
                              attribute.val.cooperative != 0;
                     });
}

namespace {

// Blocks that the device has room for at the same time.
unsigned MostBlocks(const cudaLaunchConfig_t& config) {
  constexpr size_t kReserved = 1 << 10;  // bytes of a block's shared memory
  constexpr unsigned kMostThreads = 2048;
  const auto of_memory = static_cast<unsigned>(
      (static_cast<size_t>(settings.shared_limit) + kReserved) /
      (config.dynamicSmemBytes + kReserved));
  return static_cast<unsigned>(settings.multiprocessors) *
         std::min(of_memory, kMostThreads / config.blockDim.x);
}

}  // namespace

int SharedCarveout(const void* kernel) { return SharedOf(kernel).carveout; }

int64_t Unfinished() {
  const std::lock_guard lock(DeviceMutex());
  int64_t unfinished = 0;
  for (int device = 0; device < settings.devices; ++device) {
    unfinished += QueueOf(device).queued - QueueOf(device).finished;
  }
  return unfinished;
}

int RunningDevice() { return running_device; }

void CheckDevicePointer(const void* pointer) {
  const std::lock_guard lock(DeviceMutex());
  CheckPointer(pointer, current_device);
}

cudaError_t CheckLaunch(const cudaLaunchConfig_t& config, const void* kernel) {
  const std::lock_guard lock(DeviceMutex());
  ++counts.launches;
  counts.kernels.insert(kernel);
  if (settings.next_launch != cudaSuccess) {
    return std::exchange(settings.next_launch, cudaSuccess);
  }
  if (DeviceOf(config.stream) != current_device) {
    return cudaErrorInvalidResourceHandle;
  }
  const dim3& grid = config.gridDim;
  const dim3& block = config.blockDim;
  const bool fits = config.dynamicSmemBytes <= SharedOf(kernel).limit &&
                    grid.x > 0 && grid.y > 0 && grid.z > 0 &&
                    grid.x <= 0x7fffffffu && grid.y <= kMostBlocksYZ &&
                    grid.z <= kMostBlocksYZ && block.x > 0 && block.x <= 1024 &&
                    block.x % 32 == 0 && block.y == 1 && block.z == 1;
  if (!fits) return cudaErrorInvalidValue;
  if (!IsCooperative(config)) return cudaSuccess;
  ++counts.cooperative_launches;
  return grid.x * grid.y * grid.z <= MostBlocks(config)
             ? cudaSuccess
             : cudaErrorCooperativeLaunchTooLarge;
}

}  // namespace nacre::kernels::cuda::emulation

namespace emulation = nacre::kernels::cuda::emulation;
using emulation::capture;
using emulation::counts;
using emulation::current_device;
using emulation::DeviceMutex;
using emulation::DeviceOf;
using emulation::Enqueue;
using emulation::InvalidatesCapture;
using emulation::QueueOf;
using emulation::settings;
using Lock = std::lock_guard<std::mutex>;

struct CUevent_st {
  int device = 0;
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
  if (device < 0 || device >= settings.devices) return cudaErrorInvalidDevice;
  current_device = device;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute,
                                   int device) {
  const bool is_older = device == settings.older_device;
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = settings.multiprocessors;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = settings.shared_limit;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = is_older ? 8 : settings.major;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = is_older ? 0 : settings.minor;
      return cudaSuccess;
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  const bool is_older = device == settings.older_device;
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "emulated device");
  properties->major = is_older ? 8 : settings.major;
  properties->minor = is_older ? 0 : settings.minor;
  properties->multiProcessorCount = settings.multiprocessors;
  properties->cooperativeLaunch = settings.cooperative ? 1 : 0;
  properties->sharedMemPerBlockOptin =
      static_cast<size_t>(settings.shared_limit);
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* kernel,
                                 cudaFuncAttribute attribute, int value) {
  const Lock lock(DeviceMutex());
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
  const Lock lock(DeviceMutex());
  *total = settings.memory_bytes;
  *free = settings.memory_bytes - QueueOf(current_device).used_bytes;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** data, size_t bytes) {
  const Lock lock(DeviceMutex());
  if (InvalidatesCapture()) return cudaErrorStreamCaptureUnsupported;
  size_t* const used = &QueueOf(current_device).used_bytes;
  if (bytes > settings.memory_bytes - *used) {
    *data = nullptr;
    return cudaErrorMemoryAllocation;
  }
  ++counts.allocations;
  *data = emulation::DeviceMemory().Allocate(bytes, current_device);
  *used += bytes;
  counts.used_bytes += bytes;
  return cudaSuccess;
}

cudaError_t cudaFree(void* data) {
  const Lock lock(DeviceMutex());
  if (data == nullptr) return cudaSuccess;
  if (InvalidatesCapture()) return cudaErrorStreamCaptureUnsupported;
  const int device = emulation::DeviceMemory().DeviceOf(data);
  emulation::RunAll(device);
  emulation::ForgetPeersOf(data);
  const size_t bytes = emulation::DeviceMemory().Free(data);
  QueueOf(device).used_bytes -= bytes;
  counts.used_bytes -= bytes;
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** data, size_t bytes) {
  *data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *data == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t cudaFreeHost(void* data) {
  const Lock lock(DeviceMutex());
  emulation::CheckNotInUse(data);
  std::free(data);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes,
                            cudaStream_t stream) {
  const Lock lock(DeviceMutex());
  if (InvalidatesCapture()) return cudaErrorStreamCaptureUnsupported;
  emulation::CheckPointer(data, DeviceOf(stream));
  Enqueue(DeviceOf(stream), [=] { std::memset(data, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream) {
  const Lock lock(DeviceMutex());
  if (InvalidatesCapture()) return cudaErrorStreamCaptureUnsupported;
  const int device = DeviceOf(stream);
  if (kind == cudaMemcpyHostToDevice) {
    emulation::CheckPointer(to, device);
    ++counts.uploads;
  } else if (kind == cudaMemcpyDeviceToHost) {
    emulation::CheckPointer(from, device);
    counts.downloaded_bytes += bytes;
  }
  Enqueue(device, [=] { std::memcpy(to, from, bytes); });
  if (kind != cudaMemcpyDeviceToDevice) {
    const auto* const host =
        static_cast<const char*>(kind == cudaMemcpyHostToDevice ? from : to);
    emulation::DeviceQueue& queue = QueueOf(device);
    queue.host_ranges.push_back({host, host + bytes, queue.queued});
  }
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t run,
                               void* data) {
  const Lock lock(DeviceMutex());
  if (InvalidatesCapture()) return cudaErrorStreamCaptureUnsupported;
  Enqueue(DeviceOf(stream), [=] { run(data); });
  return cudaSuccess;
}

cudaError_t cudaMemset(void* data, int value, size_t bytes) {
  cudaMemsetAsync(data, value, bytes, nullptr);
  return cudaDeviceSynchronize();
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes,
                       cudaMemcpyKind kind) {
  cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  return cudaDeviceSynchronize();
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st{current_device};
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const Lock lock(DeviceMutex());
  return emulation::WaitForAll(DeviceOf(stream));
}

cudaError_t cudaDeviceSynchronize() {
  const Lock lock(DeviceMutex());
  return emulation::WaitForAll(current_device);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st{current_device};
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Lock lock(DeviceMutex());
  if (InvalidatesCapture()) return cudaErrorStreamCaptureUnsupported;
  if (DeviceOf(stream) != event->device) return cudaErrorInvalidResourceHandle;
  event->target = QueueOf(event->device).queued;
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const Lock lock(DeviceMutex());
  const int64_t finished = QueueOf(event->device).finished;
  if (finished >= event->target) return emulation::FaultOf(event->device);
  // Time passes with each question.
  emulation::RunOne(event->device);
  return cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const Lock lock(DeviceMutex());
  return emulation::WaitUntil(event->device, event->target);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  const Lock lock(DeviceMutex());
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
  const Lock lock(DeviceMutex());
  const cudaError_t status =
      std::exchange(settings.next_instantiation, cudaSuccess);
  if (status != cudaSuccess) return status;
  *executable = new CUgraphExec_st{graph->kernels};
  ++counts.graphs;
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  const Lock lock(DeviceMutex());
  const cudaError_t status =
      std::exchange(settings.next_graph_launch, cudaSuccess);
  if (status != cudaSuccess) return status;
  ++counts.graph_launches;
  for (const auto& kernel : executable->kernels) {
    emulation::EnqueueOnDevice(DeviceOf(stream), kernel);
  }
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  const Lock lock(DeviceMutex());
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
