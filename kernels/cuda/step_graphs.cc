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
  for (const Step& step : steps_) Destroy(step.graph);
}

cudaError_t StepGraphs::Launch(const RecordedLaunches& launches,
                               cudaStream_t stream) {
  if (launches.size() < kLeastLaunches) return QueueEach(launches, stream);
  const auto found =
      std::find_if(steps_.begin(), steps_.end(),
                   [&](const Step& step) { return step.launches == launches; });
  if (found == steps_.end()) {
    if (steps_.size() == kMostSteps) {
      Destroy(steps_.back().graph);
      steps_.pop_back();
    }
    steps_.push_front({launches, nullptr});
    return QueueEach(launches, stream);
  }
  steps_.splice(steps_.begin(), steps_, found);
  Step& step = steps_.front();
  if (step.graph == nullptr) {
    const cudaError_t status = Capture(launches, stream, &step.graph);
    if (status != cudaSuccess) return status;
  }
  return cudaGraphLaunch(step.graph, stream);
}

}  // namespace nacre::kernels::cuda
