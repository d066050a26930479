#include "kernels/cuda/persistent_steps.h"

#include <algorithm>

#include "kernels/cuda/persistent.h"

namespace nacre::kernels::cuda {
namespace {

size_t MostSharedBytes(const RecordedLaunches& launches) {
  size_t most = 0;
  for (const RecordedLaunch& launch : launches) {
    most = std::max(most, launch.grid().shared_bytes);
  }
  return most;
}

}  // namespace

bool PersistentSteps::CanBePhases(const RecordedLaunches& launches) const {
  if (launches.size() < kLeastPhases) return false;
  const auto most_blocks =
      kMostTurns * static_cast<unsigned>(device_->multiprocessors());
  const auto can = [most_blocks](const RecordedLaunch& launch) {
    const dim3& blocks = launch.grid().blocks;
    return launch.grid().phase != PhaseKind::kNone &&
           uint64_t{blocks.x} * blocks.y * blocks.z <= most_blocks;
  };
  return std::all_of(launches.begin(), launches.end(), can) &&
         PersistentSharedBytes(MostSharedBytes(launches)) <=
             device_->shared_bytes();
}

Phase* PersistentSteps::PhasesOf(const Kept& kept) const {
  const auto index = static_cast<size_t>(&kept - kept_.data());
  return static_cast<Phase*>(memory_->data()) + index * room_;
}

unsigned* PersistentSteps::CountsOf(const Kept& kept) const {
  const auto index = static_cast<size_t>(&kept - kept_.data());
  auto* const counts = reinterpret_cast<unsigned*>(
      static_cast<Phase*>(memory_->data()) + kMostLists * room_);
  return counts + index * room_ * kPhaseCountStride;
}

cudaError_t PersistentSteps::Send(const Kept& kept, cudaStream_t stream) {
  phases_.clear();
  for (const RecordedLaunch& launch : kept.launches) {
    phases_.push_back(launch.phase());
  }
  staging_->Upload(phases_.data(), phases_.size() * sizeof(Phase),
                   PhasesOf(kept));
  return cudaMemsetAsync(CountsOf(kept), 0,
                         phases_.size() * kPhaseCountStride * sizeof(unsigned),
                         stream);
}

PersistentSteps::Kept* PersistentSteps::Find(const RecordedLaunches& launches,
                                             cudaStream_t stream) {
  if (launches.size() > room_) {
    // Twice: a longer context adds a phase a layer.
    const size_t room = 2 * launches.size();
    const size_t phase_bytes =
        sizeof(Phase) + kPhaseCountStride * sizeof(unsigned);
    if (!device_->Grow(kMostLists * room * phase_bytes, &memory_)) {
      return nullptr;
    }
    room_ = room;
    kept_.assign(kMostLists, {});
  }
  const auto found =
      std::find_if(kept_.begin(), kept_.end(),
                   [&](const Kept& kept) { return kept.launches == launches; });
  if (found != kept_.end()) return &*found;
  Kept& oldest = *std::min_element(
      kept_.begin(), kept_.end(),
      [](const Kept& a, const Kept& b) { return a.last_use < b.last_use; });
  oldest.launches = launches;
  oldest.times = 0;
  return device_->Check(Send(oldest, stream), "phases of a step") ? &oldest
                                                                  : nullptr;
}

cudaError_t PersistentSteps::Launch(const RecordedLaunches& launches,
                                    cudaStream_t stream) {
  if (!CanBePhases(launches)) return others_->Launch(launches, stream);
  Kept* const kept = Find(launches, stream);
  if (kept == nullptr) return cudaSuccess;  // the device keeps the error
  kept->last_use = ++count_;
  PersistentArgs args;
  args.phases = PhasesOf(*kept);
  args.count = static_cast<int>(launches.size());
  args.counts = CountsOf(*kept);
  args.launch = ++kept->times;
  return LaunchPersistent(stream, device_->multiprocessors(),
                          PersistentSharedBytes(MostSharedBytes(launches)),
                          args);
}

}  // namespace nacre::kernels::cuda
