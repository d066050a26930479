#include "simulation/fleet_draft.h"

#include <algorithm>
#include <utility>

namespace nacre::simulation {

using speculation::DraftSession;
using speculation::Tail;

FleetDraft::Seat* FleetDraft::Find(uint64_t session_id) {
  for (const auto& seat : seats_) {
    if (seat->id == session_id && !seat->closing) return seat.get();
  }
  return nullptr;
}

void FleetDraft::LoseSessions() {
  batch_.clear();
  seats_.clear();
}

void FleetDraft::Open(uint64_t session_id, DraftSession::Options options,
                      std::vector<int32_t> committed,
                      std::shared_ptr<const SessionModels> models) {
  Close(session_id);
  seats_.push_back(std::unique_ptr<Seat>(new Seat{
      .id = session_id,
      .machine = DraftSession(std::move(options), std::move(committed)),
      .models = std::move(models)}));
  SendStopNotice(*seats_.back());
}

void FleetDraft::OnCommit(uint64_t session_id,
                          const speculation::Commit& commit) {
  Seat* seat = Find(session_id);
  if (seat == nullptr) return;
  DraftSession& machine = seat->machine;
  const int length = machine.length();
  const DraftSession::CommitOutcome outcome = machine.OnCommit(commit);
  if (outcome == DraftSession::CommitOutcome::kMismatch ||
      machine.length() != length) {
    seat->cut = true;
  }
  seat->kv_length =
      std::min({seat->kv_length, machine.kept_length(), machine.kv_limit()});
  SendStopNotice(*seat);
  AbandonStep();
}

void FleetDraft::OnPlan(uint64_t session_id,
                        const speculation::DraftPlan& plan) {
  Seat* seat = Find(session_id);
  if (seat == nullptr) return;
  seat->machine.OnPlan(plan);
  SendStopNotice(*seat);
}

void FleetDraft::Close(uint64_t session_id) {
  if (Seat* seat = Find(session_id)) seat->closing = true;
  stepping() ? AbandonStep() : RemoveClosed();
}

void FleetDraft::AbandonStep() {
  if (!options_.abandons_steps || !stepping() || hung()) return;
  if (!std::all_of(batch_.begin(), batch_.end(), [](const Seat* seat) {
        return seat->closing || (seat->drafts && seat->cut);
      })) {
    return;
  }
  for (Seat* seat : batch_) {
    seat->kv_length = std::min(seat->kv_length, seat->kv_length_before);
  }
  EndStep();
}

void FleetDraft::RemoveClosed() {
  seats_.erase(std::remove_if(seats_.begin(), seats_.end(),
                              [](const auto& seat) { return seat->closing; }),
               seats_.end());
}

void FleetDraft::Look() {
  if (!up() || hung() || stepping()) return;
  batch_.clear();
  int rows = 0;
  bool full = false;
  const size_t count = seats_.size();
  const size_t first = count == 0 ? 0 : first_ % count;
  for (size_t i = 0; i < count; ++i) {
    Seat& seat = *seats_[(first + i) % count];
    if (seat.unfed_rows() <= 0) seat.prefilled = true;
    if (!seat.prefilled || !seat.machine.WantsStep()) continue;
    const int needed = seat.unfed_rows() + 1;
    if (rows + needed > options_.max_step_rows && rows > 0) {
      // The next step begins where this one had no more room.
      if (!std::exchange(full, true)) first_ = (first + i) % count;
      continue;
    }
    seat.drafts = true;
    seat.cut = false;
    seat.kv_length_before = seat.kv_length;
    seat.kv_length = seat.machine.length();
    rows += needed;
    batch_.push_back(&seat);
  }
  // Prompts take what room is left, or less where others wait for the next
  // step.
  int most = options_.max_step_rows;
  if (std::any_of(seats_.begin(), seats_.end(),
                  [](const auto& seat) { return seat->prefilled; })) {
    most = std::min(most, rows + options_.prefill_chunk);
  }
  for (const auto& seat : seats_) {
    const int fed = std::min(seat->unfed_rows(), most - rows);
    if (seat->prefilled || fed <= 0) continue;
    seat->drafts = false;
    seat->kv_length_before = seat->kv_length;
    seat->kv_length += fed;
    rows += fed;
    batch_.push_back(seat.get());
  }
  if (batch_.empty()) {
    Enter(seats_.empty() ? State::kNoWork : State::kWait);
    return;
  }
  Step(options_.draft_step.At(rows), [this] { Finish(); });
}

void FleetDraft::Finish() {
  for (Seat* seat : std::exchange(batch_, {})) {
    if (!seat->drafts || seat->closing || seat->cut ||
        !seat->machine.WantsStep()) {
      continue;
    }
    const int32_t token_id = seat->models->DraftToken(seat->machine.tokens());
    SendTail(seat->id, seat->machine.OnDrafted(token_id));
  }
  RemoveClosed();
}

void FleetDraft::SendTail(uint64_t session_id, const Tail& tail) {
  Report([this, session_id, tail] { events_.OnTail(this, session_id, tail); });
}

void FleetDraft::SendStopNotice(Seat& seat) {
  if (hung()) return;
  const absl::optional<Tail> notice = seat.machine.TakeStopNotice();
  if (notice.has_value()) SendTail(seat.id, *notice);
}

}  // namespace nacre::simulation
