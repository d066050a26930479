#include "draft_worker/hidden_states.h"

#include <algorithm>
#include <utility>

namespace nacre::draft_worker {

HiddenStates::HiddenStates(uint64_t channel, uint32_t epoch,
                           int committed_length, int64_t now_ns)
    : channel_(channel),
      epoch_(epoch),
      committed_length_(committed_length),
      committed_ns_(now_ns) {}

HiddenStates::Outcome HiddenStates::OnArrived(worker::ReceivedTensor received) {
  const worker::TensorTag& tag = received.tensor.tag;
  // Policies read the last layer's, after the norm.
  if (tag.epoch != epoch_ || tag.layer != 0 || !tag.after_norm ||
      tag.position < position()) {
    ++num_stale_;
    return Outcome::kStale;
  }
  if (tag.position == position()) {
    MakeCurrent(std::move(received));
    return Outcome::kCurrent;
  }
  if (early_.has_value()) {
    ++num_stale_;
    if (early_->tensor.tag.position >= tag.position) return Outcome::kStale;
  }
  early_ = std::move(received);
  return Outcome::kEarly;
}

bool HiddenStates::OnCommit(int committed_length, int64_t now_ns) {
  committed_length_ = committed_length;
  committed_ns_ = now_ns;
  if (!early_.has_value() || early_->tensor.tag.position > position()) {
    return false;
  }
  worker::ReceivedTensor early = *std::exchange(early_, absl::nullopt);
  if (early.tensor.tag.position < position()) {
    ++num_stale_;
    return false;
  }
  MakeCurrent(std::move(early));
  return true;
}

void HiddenStates::MakeCurrent(worker::ReceivedTensor received) {
  current_.tensor = std::move(received.tensor);
  current_.start_ns = std::min(committed_ns_, received.received_ns);
  current_.duration_ns =
      std::max<int64_t>(0, received.received_ns - committed_ns_);
}

}  // namespace nacre::draft_worker
