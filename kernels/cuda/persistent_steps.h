// Steps as one kernel each (persistent.h): lists of launches that all may be
// phases of it. Their phases are kept on the device, for lists that come again.
// All other lists are another queue's.
//
// Thread-compatible, on the device's current thread, but for what says other.

#ifndef KERNELS_CUDA_PERSISTENT_STEPS_H_
#define KERNELS_CUDA_PERSISTENT_STEPS_H_

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/cuda/phase.h"
#include "kernels/cuda/recorded_launch.h"
#include "kernels/cuda/staging.h"
#include "kernels/cuda/step_queue.h"

namespace nacre::kernels::cuda {

class PersistentSteps : public StepQueue {
 public:
  // Lists whose phases are kept; the one that was used longest ago goes first.
  static constexpr size_t kMostLists = 16;
  // Lists of fewer launches are the others'.
  static constexpr size_t kLeastPhases = 8;
  // Blocks of a phase that a multiprocessor takes one after another. A kernel
  // of its own would have several there at a time: attention after long
  // contexts needs them.
  static constexpr unsigned kMostTurns = 4;

  // `device`, `staging` and `others` outlive it.
  PersistentSteps(Device* device, Staging* staging, StepQueue* others)
      : device_(device), staging_(staging), others_(others) {}

  void BeginStep() override { others_->BeginStep(); }

  // Allocates when a list is longer than all before it.
  cudaError_t Launch(const RecordedLaunches& launches,
                     cudaStream_t stream) override;

  // Lists that ran as one kernel. Any thread.
  uint64_t count() const { return count_; }

 private:
  struct Kept {
    RecordedLaunches launches;
    unsigned times = 0;     // that it was launched since its counts were zeros
    uint64_t last_use = 0;  // 0: none
  };

  // Whether all of them can be phases here.
  bool CanBePhases(const RecordedLaunches& launches) const;
  // Its place among kept_, whose phases and counts are on the device; null
  // after an error.
  Kept* Find(const RecordedLaunches& launches, cudaStream_t stream);
  cudaError_t Send(const Kept& kept, cudaStream_t stream);

  Phase* PhasesOf(const Kept& kept) const;
  unsigned* CountsOf(const Kept& kept) const;

  Device* const device_;
  Staging* const staging_;
  StepQueue* const others_;
  std::vector<Kept> kept_;
  size_t room_ = 0;                 // phases of a list that memory_ is made for
  std::unique_ptr<Buffer> memory_;  // phases of all of kept_, then their counts
  std::vector<Phase> phases_;       // scratch
  std::atomic<uint64_t> count_{0};
};

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_PERSISTENT_STEPS_H_
