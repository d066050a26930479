#include "kernels/cuda/step_graphs.h"

#include <algorithm>

namespace nacre::kernels::cuda {
namespace {

cudaError_t QueueEach(const RecordedLaunches& launches, cudaStream_t stream) {
  for (const RecordedLaunch& launch : launches) {
    const cudaError_t status = launch.Launch(stream);
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

// Nothing is queued. Other threads may use CUDA meanwhile.
cudaError_t Capture(const RecordedLaunches& launches, cudaStream_t stream,
                    cudaGraphExec_t* executable) {
  cudaError_t status =
      cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  if (status != cudaSuccess) return status;
  status = QueueEach(launches, stream);
  // Also after an error: until then the stream takes nothing.
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
  if (status == cudaSuccess) status = ended;
  if (status == cudaSuccess) {
    status = cudaGraphInstantiate(executable, graph, 0);
  }
  if (graph != nullptr) cudaGraphDestroy(graph);
  return status;
}

// One that the device still runs is freed when it is done.
void Destroy(cudaGraphExec_t graph) {
  if (graph != nullptr) cudaGraphExecDestroy(graph);
}

}  // namespace

StepGraphs::~StepGraphs() {
  for (const Kept& kept : kept_) Destroy(kept.graph);
}

StepGraphs::Kept* StepGraphs::Find(const RecordedLaunches& launches) {
  // Lists come in the order of the step before, seldom in another.
  if (last_ != nullptr && last_->next != nullptr &&
      last_->next->launches == launches) {
    return last_->next;
  }
  const auto found =
      std::find_if(kept_.begin(), kept_.end(),
                   [&](const Kept& kept) { return kept.launches == launches; });
  return found == kept_.end() ? nullptr : &*found;
}

void StepGraphs::ForgetOldest() {
  Kept* const oldest = &kept_.back();
  for (Kept& kept : kept_) {
    if (kept.next == oldest) kept.next = nullptr;
  }
  if (last_ == oldest) last_ = nullptr;
  Destroy(oldest->graph);
  kept_.pop_back();
}

cudaError_t StepGraphs::Launch(const RecordedLaunches& launches,
                               cudaStream_t stream) {
  if (launches.size() < kLeastLaunches) return QueueEach(launches, stream);
  most_of_a_step_ = std::max(most_of_a_step_, ++lists_of_step_);
  Kept* kept = Find(launches);
  const bool is_new = kept == nullptr;
  if (is_new) {
    if (kept_.size() >= std::min(kMostLists, kMostSteps * most_of_a_step_)) {
      ForgetOldest();
    }
    kept = &kept_.emplace_front();
    kept->launches = launches;
    kept->place = kept_.begin();
  } else {
    kept_.splice(kept_.begin(), kept_, kept->place);
  }
  if (last_ != nullptr) last_->next = kept;
  last_ = kept;
  if (is_new) {
    ++plain_;
    return QueueEach(launches, stream);
  }
  if (kept->graph == nullptr) {
    const cudaError_t status = Capture(launches, stream, &kept->graph);
    if (status != cudaSuccess) return status;
    ++captured_;
  } else {
    ++replayed_;
  }
  return cudaGraphLaunch(kept->graph, stream);
}

}  // namespace nacre::kernels::cuda
