#include "worker/engine/session_engine.h"

#include <utility>

namespace nacre::worker {

SessionEngine::SessionEngine(Parts parts, std::unique_ptr<SessionOutbox> outbox)
    : Engine(std::move(parts.now_ns)),
      spin_ns_(parts.spin_ns),
      outbox_(std::move(outbox)),
      accounts_(outbox_.get(), now_ns_),
      table_(outbox_.get(), &accounts_,
             [this](EngineSession& session) { OnClosing(session); }),
      soundness_(parts.canary_model),
      deliver_(std::move(parts.deliver)) {}

absl::StatusOr<StepOutcome> SessionEngine::RunOnce() {
  TakeCommands();
  BeforePlan();
  // Before the events: a client that heard of a session finds it in the stats.
  Publish();
  outbox_->Flush();
  const int64_t plan_ns = now_ns_();
  accounts_.BeginPlan(blocks_brought_at_once());
  StepOutcome outcome;
  const WorkerState state = Plan(plan_ns, &outcome);
  // The worker is busy from here on, also with what the plan brings back.
  monitor_.Enter(state, plan_ns);
  if (!outcome.stepped) {
    Publish();
    outbox_->Flush();
    return outcome;
  }
  // ... which is no part of what a step of so many rows takes.
  const int64_t start_ns = now_ns_();
  Deliver(Delivery::kElsewhere);
  in_forward_ = true;
  const absl::StatusOr<bool> ran = Forward();
  in_forward_ = false;
  const bool abandoned = ran.ok() && !*ran;
  EngineStats& counts = accounts_.counts();
  ++(abandoned ? counts.abandoned_steps : counts.steps);
  if (ran.ok()) {
    Finish(start_ns, abandoned);
  } else {
    FailStep(ran.status());
  }
  table_.RemoveClosed();
  absl::Status device = ran.status();
  if (device.ok() && !abandoned) device = soundness_.Judge();
  Publish();
  outbox_->Flush();
  if (!device.ok()) return device;
  return outcome;
}

void SessionEngine::Publish() {
  EngineStats stats = accounts_.counts();
  const model::QueuedSteps queued = queued_steps();
  stats.queued_steps_used = queued.used;
  stats.queued_steps_dropped = queued.dropped;
  stats.sessions = static_cast<int>(table_.all().size());
  stats.kv_free_tokens = kv_free_tokens();
  soundness_.FillStats(&stats);
  monitor_.Publish(stats);
}

}  // namespace nacre::worker
