// Which rows the draft feeds in its next step: those of sessions that may draft
// first, then chunks of prompts, within a budget of rows.
//
// Owned by the engine, used by its thread.

#ifndef DRAFT_WORKER_STEP_PLANNER_H_
#define DRAFT_WORKER_STEP_PLANNER_H_

#include <cstdint>

#include "draft_worker/step.h"
#include "model/drafter.h"
#include "worker/engine/engine.h"
#include "worker/engine/session_accounts.h"
#include "worker/engine/session_table.h"
#include "worker/engine/step_budget.h"
#include "worker/engine/step_tap.h"

namespace nacre::draft_worker {

class StepPlanner {
 public:
  using Session = EngineSession;
  // All outlive it.
  struct Parts {
    worker::SessionTable* table = nullptr;
    worker::SessionAccounts* accounts = nullptr;
    model::Drafter* drafter = nullptr;
    worker::StepTap* tap = nullptr;  // null: none
  };
  StepPlanner(const Parts& parts, worker::StepBudget budget)
      : parts_(parts), sessions_(parts.table), budget_(budget) {}

  // Fills in step() and `outcome`. Returns what the engine does in the step or,
  // without one, what it waits for.
  worker::WorkerState Plan(int64_t now_ns, worker::StepOutcome* outcome);
  const Step& step() const { return step_; }

 private:
  // One row for each session that may draft, and those that it lacks.
  void PlanDrafts(int64_t now_ns, worker::StepOutcome* outcome);
  // False: this step has no room for the session.
  bool PlanDraft(Session& session, int max_rows, int64_t now_ns);
  void PlanPrefills();
  void AddRows(Session& session, int rows, bool drafts);
  // Of a session with branches: at most `max_rows`.
  void AddTreeRows(Session& session, int max_rows);
  // Tells the drafter which sessions will go on after the step, if nothing
  // comes between.
  void PlanNextSteps();

  const Parts parts_;
  const worker::TypedSessions<Session> sessions_;
  const worker::StepBudget budget_;
  Step step_;
};

}  // namespace nacre::draft_worker

#endif  // DRAFT_WORKER_STEP_PLANNER_H_
