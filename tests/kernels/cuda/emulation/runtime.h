// An emulated CUDA device behind the functions of CUDA's runtime, as many as we
// use: programs are linked with it in place of CUDA's library. Kernels are CUDA
// source compiled as C++ with language.h in front, and run on machine.h.
//
// It is stricter than a device where mistakes hide: what is queued on a stream
// runs as late as it may (when a thread waits), and kernels that may overlap do
// (grid.h); device memory is out of reach
// for the host, holds garbage when allocated, and is checked for writes past
// its end when freed; a kernel's pointers must be the device's; a capture takes
// kernels and nothing else.
//
// Thread-safe: what runs on devices, runs one after another, on a thread that
// waits for it. So tests read `counts` when nothing else runs. A device is the
// one that is current on a thread, and a pointer of another one ends the
// program. One stream's order holds for all streams of a device. Where a device
// waits for another one (EnqueueTogether, or kernels that wait for its flags),
// that one runs as far as it must, or as far as it can.

#ifndef TESTS_KERNELS_CUDA_EMULATION_RUNTIME_H_
#define TESTS_KERNELS_CUDA_EMULATION_RUNTIME_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "tests/kernels/cuda/emulation/grid.h"

namespace nacre::kernels::cuda::emulation {

// What tests may change. Reset() gives back what is written here.
struct DeviceSettings {
  cudaError_t count_error = cudaSuccess;  // of cudaGetDeviceCount
  int driver_version = 13000;             // 0: there is none
  int devices = 1;
  int major = 9;  // compute capability
  int minor = 0;
  int older_device = -1;  // one of compute capability 8.0; negative: none
  int multiprocessors = 6;
  bool cooperative = true;  // whether blocks may wait for each other
  // Pairs of devices of which the first can not read the second's memory.
  std::set<std::pair<int, int>> strangers;
  int shared_limit = 227 << 10;  // bytes that a block may have
  size_t memory_bytes = size_t{1} << 30;
  cudaError_t next_launch = cudaSuccess;  // returned once by a launch
  // Likewise by the beginning of a capture, and by a graph that is made
  // executable or launched.
  cudaError_t next_capture = cudaSuccess;
  cudaError_t next_instantiation = cudaSuccess;
  cudaError_t next_graph_launch = cudaSuccess;
  // Whether kernels run; else they are counted, and nothing more.
  bool runs_kernels = true;
  // A kernel whose WaitForPrevious does nothing: what tests of the waits must
  // notice.
  const void* late_wait = nullptr;
  // Likewise a count that WaitForBlocks does not wait for.
  const unsigned* late_count = nullptr;
  // Whether kernels are queued, but do nothing.
  bool idle = false;
  // Once set, everything that waits returns it: as after a fault in a kernel.
  cudaError_t fault = cudaSuccess;
  int fault_device = -1;  // that has it alone; negative: all
};
inline DeviceSettings settings;

// What was asked of the device since the last reset.
struct DeviceCounts {
  int launches = 0;
  std::set<const void*> kernels;  // that were launched
  // Of which blocks ran before the kernel before was done.
  std::set<const void*> early_kernels;
  int cooperative_launches = 0;
  std::set<const unsigned*> waited_for;  // by WaitForBlocks
  int stood_still = 0;  // kernels, for other devices: how often
  int waits = 0;        // by the host, for a stream or an event
  int uploads = 0;
  size_t downloaded_bytes = 0;
  int graph_launches = 0;
  int allocations = 0;        // of device memory
  int kernel_attributes = 0;  // that were set
  int graphs = 0;             // executable ones, now
  size_t used_bytes = 0;      // of device memory, now
};
inline DeviceCounts counts;

// A test's starting point; what is allocated stays.
void ResetDevice();

// Queues a kernel, to run when the stream gets there; or notes it in the graph
// that is being captured.
void EnqueueKernel(KernelLaunch launch, cudaStream_t stream);

// Queues what a device does together with others. When the stream gets there,
// `run` is called until it returns true: then it is done. It may touch memory
// of the device alone, and waits for nothing. Ends the program unless all
// `pointers` are in memory of the stream's device.
void EnqueueTogether(cudaStream_t stream,
                     const std::vector<const void*>& pointers,
                     std::function<bool()> run);

// Whether it has the attribute that lets it start before the one before is
// done.
bool MayOverlap(const cudaLaunchConfig_t& config);
// Whether all of its blocks are to run at the same time.
bool IsCooperative(const cudaLaunchConfig_t& config);

// The shared memory that a kernel prefers an SM to have, in percent; -1: it has
// not said.
int SharedCarveout(const void* kernel);

// What is queued and has not run yet.
int64_t Unfinished();

// Ends the program unless `pointer` is null or in memory of the current device.
void CheckDevicePointer(const void* pointer);

// The device whose kernel calls it.
int RunningDevice();

// What a launch is refused for; cudaSuccess otherwise.
cudaError_t CheckLaunch(const cudaLaunchConfig_t& config, const void* kernel);

}  // namespace nacre::kernels::cuda::emulation

#endif  // TESTS_KERNELS_CUDA_EMULATION_RUNTIME_H_
