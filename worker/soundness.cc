#include "worker/soundness.h"

#include "absl/strings/str_cat.h"

namespace nacre::worker {

absl::Status UnsoundLogits(int num_tokens) {
  return absl::InternalError(absl::StrCat(
      "the logits behind ", num_tokens,
      " tokens are NaN or infinite: the device computes wrongly, or the "
      "weights are damaged"));
}

void Soundness::EndStep() {
  unsound_ += static_cast<uint64_t>(unsound_in_step_);
  if (unsound_steps_ < kMaxUnsoundSteps) {
    if (sound_in_step_ > 0) {
      unsound_steps_ = 0;
    } else if (unsound_in_step_ > 0) {
      ++unsound_steps_;
    }
  }
  sound_in_step_ = unsound_in_step_ = 0;
}

}  // namespace nacre::worker
