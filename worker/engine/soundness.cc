#include "worker/engine/soundness.h"

#include <spdlog/spdlog.h>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace nacre::worker {

absl::Status UnsoundLogits(int num_tokens) {
  return absl::InternalError(absl::StrCat(
      "the logits after ", num_tokens,
      " tokens are NaN or infinite: the device computes wrongly, the weights "
      "are damaged, or the model has no numbers for these tokens"));
}

void Soundness::EndStep() {
  unsound_ += static_cast<uint64_t>(unsound_in_step_);
  if (sound_in_step_ > 0) {
    unsound_steps_ = 0;
  } else if (unsound_in_step_ > 0) {
    ++unsound_steps_;
  }
  sound_in_step_ = unsound_in_step_ = 0;
}

absl::Status Soundness::Remember() {
  if (!canary_.has_value()) return absl::OkStatus();
  NACRE_ASSIGN_OR_RETURN(const bool is_sound, canary_->Ask());
  if (is_sound) return absl::OkStatus();
  return absl::DataLossError(
      "the logits of the canary are no numbers: the weights are damaged, or "
      "the device computes wrongly");
}

absl::Status Soundness::Judge() {
  if (!canary_.has_value() || computes_wrongly_ ||
      unsound_steps_ < kMaxUnsoundSteps) {
    return absl::OkStatus();
  }
  const absl::StatusOr<bool> is_well = canary_->Ask();
  // Sessions hold all KV: once more after the next step that gives reason to.
  if (absl::IsResourceExhausted(is_well.status())) return absl::OkStatus();
  NACRE_RETURN_IF_ERROR(is_well.status());
  if (*is_well) {
    spdlog::warn(
        "logits were NaN or infinite in {} steps in a row, but the device is "
        "well: the sessions' own tokens are to blame",
        unsound_steps_);
    unsound_steps_ = 0;
  } else {
    spdlog::error(
        "logits were NaN or infinite in {} steps in a row, and those of a "
        "fixed prompt are not what they were: the device computes wrongly",
        unsound_steps_);
    computes_wrongly_ = true;
  }
  return absl::OkStatus();
}

}  // namespace nacre::worker
