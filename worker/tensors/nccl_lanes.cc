#include "worker/tensors/nccl_lanes.h"

#include <utility>

#include "common/status_macros.h"

namespace nacre::worker {

NcclLanes::~NcclLanes() {
  absl::MutexLock lock(&mu_);
  for (auto* const lanes : {&ended_, &incomplete_, &unusable_}) {
    for (const std::unique_ptr<NcclLane>& lane : *lanes) {
      if (lane->stream != nullptr) api_->StreamDestroy(lane->stream);
      for (const NcclLane::Slot& slot : lane->slots) {
        if (slot.event != nullptr) api_->EventDestroy(slot.event);
        if (slot.device != nullptr) api_->Free(slot.device);
        if (slot.host != nullptr) api_->FreeHost(slot.host);
      }
    }
  }
}

std::unique_ptr<NcclLane> NcclLanes::TakeIdle() {
  absl::MutexLock lock(&mu_);
  if (!incomplete_.empty()) {
    std::unique_ptr<NcclLane> lane = std::move(incomplete_.back());
    incomplete_.pop_back();
    return lane;
  }
  for (auto it = ended_.begin(); it != ended_.end(); ++it) {
    const absl::StatusOr<bool> is_done =
        api_->EventIsDone((*it)->slots[0].event);
    if (!is_done.ok() || !*is_done) continue;
    std::unique_ptr<NcclLane> lane = std::move(*it);
    ended_.erase(it);
    return lane;
  }
  return std::make_unique<NcclLane>();
}

absl::Status NcclLanes::Complete(NcclLane* lane) {
  if (lane->stream == nullptr) {
    NACRE_ASSIGN_OR_RETURN(lane->stream, api_->StreamCreate());
  }
  for (NcclLane::Slot& slot : lane->slots) {
    if (slot.device == nullptr) {
      NACRE_ASSIGN_OR_RETURN(slot.device, api_->Malloc(slot_bytes_));
    }
    if (slot.host == nullptr) {
      NACRE_ASSIGN_OR_RETURN(slot.host, api_->MallocHost(slot_bytes_));
    }
    if (slot.event == nullptr) {
      NACRE_ASSIGN_OR_RETURN(slot.event, api_->EventCreate());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<NcclLane>> NcclLanes::Take() {
  std::unique_ptr<NcclLane> lane = TakeIdle();
  const absl::Status status = Complete(lane.get());
  if (status.ok()) return lane;
  absl::MutexLock lock(&mu_);
  incomplete_.push_back(std::move(lane));
  return status;
}

void NcclLanes::GiveBack(std::unique_ptr<NcclLane> lane) {
  const bool has_mark =
      api_->EventRecord(lane->slots[0].event, lane->stream).ok();
  absl::MutexLock lock(&mu_);
  (has_mark ? ended_ : unusable_).push_back(std::move(lane));
}

}  // namespace nacre::worker
