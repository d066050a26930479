// CUDA graphs of the kernels of a step. A step queues hundreds of small
// kernels, and the same ones as a step of as many rows before it. As a graph
// they are queued with one call. The device knows each one's successor.
//
// What is queued is what was recorded, launch by launch: a graph serves only
// launches that equal its own in every argument. A buffer that has moved, or a
// longer context that needs a larger grid, makes another graph. So no graph can
// be out of date.
//
// Thread-compatible, on the device's current thread, but for what says other.

#ifndef KERNELS_CUDA_STEP_GRAPHS_H_
#define KERNELS_CUDA_STEP_GRAPHS_H_

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>

#include "kernels/cuda/recorded_launch.h"
#include "kernels/cuda/step_queue.h"
#include "kernels/graph_counts.h"

namespace nacre::kernels::cuda {

class StepGraphs : public StepQueue {
 public:
  // Lists that are remembered; the one that was used longest ago goes first. A
  // step that waits in between, as ranks do in each layer, has several.
  static constexpr size_t kMostSteps = 64;  // times the lists of a step
  static constexpr size_t kMostLists = 2048;
  // Fewer launches are queued one by one. A layer, all that a draft like EAGLE
  // has, is six or more.
  static constexpr size_t kLeastLaunches = 6;

  StepGraphs() = default;
  ~StepGraphs() override;
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;

  void BeginStep() override { lists_of_step_ = 0; }

  // When they come for the first time: one by one (which also loads kernels: a
  // capture must not). From the second time on: as a graph. The first error of
  // a launch, a capture or a graph: then the rest of them is not queued.
  cudaError_t Launch(const RecordedLaunches& launches,
                     cudaStream_t stream) override;

  // Since it was made. Any thread.
  GraphCounts counts() const { return {replayed_, captured_, plain_}; }

 private:
  struct Kept {
    RecordedLaunches launches;
    cudaGraphExec_t graph = nullptr;
    Kept* next = nullptr;  // what came after it the last time; null: forgotten
    std::list<Kept>::iterator place;
  };

  // Null: there is none.
  Kept* Find(const RecordedLaunches& launches);
  void ForgetOldest();

  std::list<Kept> kept_;  // the last used first
  Kept* last_ = nullptr;  // used
  size_t lists_of_step_ = 0;
  size_t most_of_a_step_ = 1;
  std::atomic<uint64_t> replayed_{0};
  std::atomic<uint64_t> captured_{0};
  std::atomic<uint64_t> plain_{0};
};

}  // namespace nacre::kernels::cuda

#endif  // KERNELS_CUDA_STEP_GRAPHS_H_
