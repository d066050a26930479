#include "speculation/draft_wait.h"

namespace nacre::speculation {

void DraftWait::OnAttached() {
  has_draft_ = true;
  is_silent_ = false;
  // It has the whole time, whatever the draft before it left.
  EndGateWait();
  EndLastRowWait();
  OnMismatch();
}

void DraftWait::OnCommitted() {
  missed_ = false;
  if (stop_ != StopMark::kEnd) stop_ = StopMark::kNone;
}

void DraftWait::OnMismatch() {
  missed_ = true;
  stop_ = StopMark::kNone;
  chunk_end_ = 0;
}

bool DraftWait::Wait(absl::optional<int64_t>* since_ns, int64_t now_ns) {
  if (!since_ns->has_value()) {
    *since_ns = now_ns;
    was_heard_ = false;
  }
  if (now_ns < **since_ns + timeout_ns_) return true;
  is_silent_ = !was_heard_;
  since_ns->reset();
  return false;
}

bool DraftWait::WaitAtGate(int64_t now_ns) {
  return Wait(&gate_since_ns_, now_ns);
}

bool DraftWait::WaitWithLastRow(int64_t now_ns) {
  return Wait(&last_row_since_ns_, now_ns);
}

absl::optional<int64_t> DraftWait::Deadline(
    absl::optional<int64_t> since_ns) const {
  if (!since_ns.has_value()) return absl::nullopt;
  return *since_ns + timeout_ns_;
}

absl::optional<int64_t> DraftWait::gate_deadline_ns() const {
  return Deadline(gate_since_ns_);
}

absl::optional<int64_t> DraftWait::last_row_deadline_ns() const {
  return Deadline(last_row_since_ns_);
}

}  // namespace nacre::speculation
