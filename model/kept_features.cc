#include "model/kept_features.h"

#include "common/status_macros.h"

namespace nacre::model {

void KeptFeatures::Set(absl::Span<const FeatureTap> taps, int hidden_size) {
  hidden_size_ = static_cast<size_t>(hidden_size);
  rows_ = 0;
  kept_.clear();
  for (const FeatureTap& tap : taps) {
    kept_.push_back({tap, StepValues(backend_), BroughtValues(backend_)});
  }
}

bool KeptFeatures::Has(const FeatureTap& tap) const {
  for (const Kept& kept : kept_) {
    if (kept.tap == tap) return true;
  }
  return false;
}

absl::Status KeptFeatures::Begin(int rows) {
  rows_ = 0;
  const size_t count = static_cast<size_t>(rows) * hidden_size_;
  for (Kept& kept : kept_) {
    NACRE_RETURN_IF_ERROR(kept.values.Reserve(count));
    NACRE_RETURN_IF_ERROR(kept.brought.Reserve(count));
  }
  rows_ = rows;
  return absl::OkStatus();
}

void KeptFeatures::Keep(const FeatureTap& tap, const float* x) {
  const int width = static_cast<int>(hidden_size_);
  for (const Kept& kept : kept_) {
    if (kept.tap != tap || rows_ == 0) continue;
    backend_->TakeColumns(x, rows_, width, 0, width, kept.values.data());
  }
}

void KeptFeatures::Bring() {
  for (Kept& kept : kept_) kept.brought.Bring(kept.values.data(), Count());
}

absl::Span<const float> KeptFeatures::At(size_t index) const {
  return kept_[index].brought.Get(0, Count());
}

}  // namespace nacre::model
