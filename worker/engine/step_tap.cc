#include "worker/engine/step_tap.h"

#include <algorithm>

namespace nacre::worker {

void StepTaps::Add(std::unique_ptr<StepTap> tap) {
  if (tap != nullptr) taps_.push_back(std::move(tap));
}

StepTap::Rows StepTaps::ReadsHidden(const TapSession& session) const {
  Rows most = Rows::kNone;
  for (const auto& tap : taps_) {
    most = std::max(most, tap->ReadsHidden(session));
  }
  return most;
}

bool StepTaps::ReadsLogits() const {
  return std::any_of(taps_.begin(), taps_.end(),
                     [](const auto& tap) { return tap->ReadsLogits(); });
}

void StepTaps::OnRows(const TapSession& session, const TapRows& rows) {
  for (const auto& tap : taps_) {
    if (tap->ReadsLogits() || tap->ReadsHidden(session) != Rows::kNone) {
      tap->OnRows(session, rows);
    }
  }
}

void StepTaps::OnVerdict(const TapSession& session, int accepted,
                         bool rejected) {
  for (const auto& tap : taps_) tap->OnVerdict(session, accepted, rejected);
}

void StepTaps::OnClosed(const TapSession& session) {
  for (const auto& tap : taps_) tap->OnClosed(session);
}

}  // namespace nacre::worker
