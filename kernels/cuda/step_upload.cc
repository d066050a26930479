#include "kernels/cuda/step_upload.h"

#include <algorithm>
#include <cstring>

namespace nacre::kernels::cuda {

void StepUpload::Clear() {
  places_.fill({});
  image_.clear();
  is_sent_ = false;
}

void StepUpload::Add(StepPart part, const void* host, size_t bytes,
                     size_t room) {
  const size_t begin = image_.size();
  places_[static_cast<size_t>(part)] = {begin, bytes, true};
  const size_t taken = std::max(bytes, room);
  image_.resize(begin + (taken + kAlignment - 1) / kAlignment * kAlignment);
  if (bytes > 0) std::memcpy(image_.data() + begin, host, bytes);
}

bool StepUpload::Send(size_t least_bytes) {
  if (!device_->Grow(std::max(least_bytes, image_.size()), &memory_)) {
    return false;
  }
  staging_->Upload(image_.data(), image_.size(), memory_->data());
  is_sent_ = device_->ok();
  return is_sent_;
}

const void* StepUpload::Find(StepPart part) const {
  const Place& place = PlaceOf(part);
  if (!is_sent_ || !place.is_there) return nullptr;
  return static_cast<const char*>(memory_->data()) + place.begin;
}

const int32_t* StepUpload::Find(StepPart part,
                                absl::Span<const int32_t> ints) const {
  const void* const found = Find(part);
  const Place& place = PlaceOf(part);
  if (found == nullptr || place.bytes != ints.size() * sizeof(int32_t) ||
      (place.bytes > 0 && std::memcmp(image_.data() + place.begin, ints.data(),
                                      place.bytes) != 0)) {
    return nullptr;
  }
  return static_cast<const int32_t*>(found);
}

}  // namespace nacre::kernels::cuda
