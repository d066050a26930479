#include "worker/process/load_watch.h"

namespace nacre::worker {

LoadWatch::LoadWatch(NodeProcess process,
                     std::function<void(const absl::Status&)> tell)
    : process_(std::move(process)) {
  if (process_.quit == nullptr) return;
  thread_ = std::thread([this, tell = std::move(tell)] {
    if (!process_.exit->WaitWhileLoading()) return;
    const absl::Status failure = process_.exit->failure();
    tell(failure);
    process_.quit(failure);
  });
}

LoadWatch::~LoadWatch() {
  if (!thread_.joinable()) return;
  process_.exit->EndLoading();
  thread_.join();
}

}  // namespace nacre::worker
