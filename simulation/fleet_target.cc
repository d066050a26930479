#include "simulation/fleet_target.h"

#include <algorithm>
#include <utility>

namespace nacre::simulation {

using speculation::TargetSession;

FleetTarget::Seat* FleetTarget::Find(uint64_t session_id) {
  for (const auto& seat : seats_) {
    if (seat->id == session_id && !seat->closing) return seat.get();
  }
  return nullptr;
}

void FleetTarget::LoseSessions() { seats_.clear(); }

void FleetTarget::Open(uint64_t session_id, TargetSession::Options options,
                       speculation::PipelinePlan plan,
                       std::vector<int32_t> committed,
                       std::shared_ptr<const SessionModels> models) {
  seats_.push_back(std::unique_ptr<Seat>(new Seat{
      .id = session_id,
      .machine = TargetSession(std::move(options), std::move(committed)),
      .models = std::move(models),
      .plan = plan}));
}

void FleetTarget::OnTail(uint64_t session_id, const speculation::Tail& tail) {
  if (Seat* seat = Find(session_id)) seat->machine.OnTail(tail);
}

void FleetTarget::OnPlan(uint64_t session_id,
                         const speculation::PipelinePlan& plan) {
  if (Seat* seat = Find(session_id)) {
    seat->plan = plan;
    ApplyPlan(*seat);
  }
}

void FleetTarget::ApplyPlan(Seat& seat) {
  seat.machine.OnPlan(Ablate(options_.method.ablation, seat.plan,
                             seat.last.has_value() ? &*seat.last : nullptr)
                          .target);
}

void FleetTarget::OnDraftAttached(uint64_t session_id, uint32_t epoch,
                                  int length) {
  if (Seat* seat = Find(session_id)) {
    seat->machine.OnDraftAttached(epoch, length);
  }
}

void FleetTarget::OnDraftLost(uint64_t session_id) {
  if (Seat* seat = Find(session_id)) seat->machine.OnDraftLost();
}

void FleetTarget::OnAcknowledged(uint64_t session_id, int length) {
  if (Seat* seat = Find(session_id)) seat->machine.OnAcknowledged(length);
}

void FleetTarget::Close(uint64_t session_id) {
  if (Seat* seat = Find(session_id)) seat->closing = true;
  if (!stepping()) RemoveClosed();
}

void FleetTarget::RemoveClosed() {
  seats_.erase(std::remove_if(seats_.begin(), seats_.end(),
                              [](const auto& seat) { return seat->closing; }),
               seats_.end());
}

void FleetTarget::Look() {
  if (!up() || stepping()) return;
  const int64_t now_ns = world_.queue.now_ns();
  std::vector<Seat*> batch;
  int rows = 0;
  bool waits = false;
  bool full = false;
  const size_t count = seats_.size();
  const size_t first = count == 0 ? 0 : first_ % count;
  for (size_t i = 0; i < count; ++i) {
    Seat& seat = *seats_[(first + i) % count];
    if (seat.machine.finished() || seat.unfed_rows() > 0) continue;
    const absl::optional<int64_t> deadline_ns = seat.machine.gate_deadline_ns();
    switch (seat.machine.CheckReady(now_ns)) {
      case TargetSession::Readiness::kReady:
        if (rows >= options_.max_step_rows) {
          // The next step begins where this one had no more room.
          if (!std::exchange(full, true)) first_ = (first + i) % count;
          break;
        }
        if (deadline_ns.has_value() && now_ns >= *deadline_ns) ++gate_timeouts_;
        rows += AddRows(seat, options_.max_step_rows);
        batch.push_back(&seat);
        break;
      case TargetSession::Readiness::kWaitDraft: {
        waits = true;
        const int64_t timer_ns = *seat.machine.gate_deadline_ns();
        if (std::exchange(seat.timer_ns, timer_ns) != timer_ns) {
          WakeAt(timer_ns);
        }
        break;
      }
      case TargetSession::Readiness::kWaitAcknowledge:
      case TargetSession::Readiness::kFinished:
        break;
    }
  }
  // Prompts take what room is left, or less where others wait for the next
  // step.
  int most = options_.max_step_rows;
  if (!batch.empty() || waits) {
    most = std::min(most, rows + options_.prefill_chunk);
  }
  for (const auto& seat : seats_) {
    if (rows >= most) break;
    if (seat->machine.finished() || seat->unfed_rows() <= 0) continue;
    rows += AddRows(*seat, most - rows);
    batch.push_back(seat.get());
  }
  if (batch.empty()) {
    Enter(waits ? State::kWait : State::kNoWork);
    return;
  }
  Step(options_.target_step.At(rows),
       [this, batch = std::move(batch), rows] { Finish(batch, rows); });
}

int FleetTarget::AddRows(Seat& seat, int max_rows) {
  const int unfed = seat.unfed_rows();
  seat.prefill_rows = std::min(unfed, max_rows);
  // A gate that no tail can open needs no wait: the last prompt rows and the
  // first step share the forward.
  seat.verifies =
      unfed == 0 ||
      (unfed < max_rows && seat.plan.target.gate_after_mismatch == 0 &&
       seat.machine.CheckReady(world_.queue.now_ns()) ==
           TargetSession::Readiness::kReady);
  if (seat.verifies) {
    const absl::Span<const int32_t> tail = seat.machine.BeginStep();
    seat.tail.assign(tail.begin(), tail.end());
  }
  return seat.rows();
}

void FleetTarget::Finish(const std::vector<Seat*>& batch, int batch_rows) {
  for (Seat* seat : batch) {
    const int other_rows = batch_rows - seat->rows();
    seat->kv_length += std::exchange(seat->prefill_rows, 0);
    if (std::exchange(seat->verifies, false)) FinishVerify(*seat, other_rows);
  }
  RemoveClosed();
}

void FleetTarget::FinishVerify(Seat& seat, int other_rows) {
  const std::vector<int32_t> drawn =
      seat.models->models.TargetTokens(seat.machine.committed(), seat.tail);
  FleetVerdict verdict;
  verdict.session_id = seat.id;
  verdict.verdict = seat.machine.FinishStep(drawn);
  verdict.other_rows = other_rows;
  seat.kv_length = seat.machine.kv_length();
  if (options_.method.ablation != Ablation::kNone) {
    seat.last = verdict.verdict;
    ApplyPlan(seat);
  }
  if (seat.closing) return;
  Report([this, verdict] { events_.OnVerdict(this, verdict); });
}

}  // namespace nacre::simulation
