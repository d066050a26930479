// Which rows the target feeds in its next step: those of sessions that can
// verify first, then chunks of prompts, within a budget of rows.
//
// Owned by the engine, used by its thread.

#ifndef TARGET_WORKER_STEP_PLANNER_H_
#define TARGET_WORKER_STEP_PLANNER_H_

#include <cstdint>
#include <vector>

#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "speculation/estimators.h"
#include "speculation/step_rows.h"
#include "target_worker/own_drafts.h"
#include "target_worker/row_sampler.h"
#include "target_worker/step.h"
#include "worker/engine/engine.h"
#include "worker/engine/session_accounts.h"
#include "worker/engine/session_table.h"
#include "worker/engine/step_budget.h"

namespace nacre::target_worker {

class StepPlanner {
 public:
  using Session = EngineSession;
  // All outlive it.
  struct Parts {
    worker::TypedSessions<Session> sessions;
    worker::SessionAccounts* accounts = nullptr;
    RowSampler* sampler = nullptr;
    const OwnDrafts* own = nullptr;
  };
  // `shared_block_size`: the model's.
  StepPlanner(Parts parts, worker::StepBudget budget, int shared_block_size)
      : parts_(parts), budget_(budget), shared_block_size_(shared_block_size) {}

  // Fills in step() and `outcome`. Returns what the engine does in the step or,
  // without one, what it waits for.
  worker::WorkerState Plan(int64_t now_ns, worker::StepOutcome* outcome);
  const Step& step() const { return step_; }

  // What one row more than those of the last step costs, in steps.
  double row_price() const { return row_price_; }
  // A step of so many rows has taken so long.
  void Learn(int rows, int64_t duration_ns) {
    step_times_.Add(rows, duration_ns);
  }

 private:
  // Adds the sessions that can verify, sets the outcome's deadline and returns
  // what the engine waits for if nothing steps.
  worker::WorkerState PlanVerifies(int64_t now_ns,
                                   worker::StepOutcome* outcome);
  // Notes the session as one that can verify, or what it waits for in `idle`.
  // False: this step has no room for it. `least_rows`: of those noted so far,
  // with chains but no trees.
  bool PlanVerify(Session& session, int max_rows, int64_t now_ns,
                  int* least_rows, worker::WorkerState* idle,
                  worker::StepOutcome* outcome);
  // Adds the rows of those that can: chains as planned, of trees the nodes that
  // pay on this target.
  void AddReady(int least_rows, int max_rows, int64_t now_ns);
  // Of the nodes that each of the trees gets, `counts`, those that the target
  // proposes itself. There are no more than their session can pay for, after
  // all other rows and those that sessions before it have paid for.
  void PayForOwn(int least_rows,
                 const std::vector<speculation::StepTree>& trees,
                 std::vector<int>* counts);
  // Adds chunks of prefilling_, whose first step may share the forward.
  void PlanPrefills(bool decoding, int64_t now_ns);
  // Adds a session's rows: up to max_rows of its prompt, or its step, or both.
  // `num_nodes`: of its tree, where it does not step with a chain.
  void AddRows(Session& session, int max_rows, int64_t now_ns,
               absl::optional<int> num_nodes = absl::nullopt);
  // Returns its rows.
  int BeginVerify(Session& session, int64_t now_ns,
                  absl::optional<int> num_nodes);
  void NoteDraftWait(Session& session, absl::optional<int64_t> deadline_ns,
                     int64_t now_ns, worker::StepOutcome* outcome);

  const Parts parts_;
  const worker::StepBudget budget_;
  const int shared_block_size_;
  speculation::StepTimeCurve step_times_;
  double row_price_ = 0;
  Step step_;
  std::vector<Session*> prefilling_;  // when the step was planned
  std::vector<Session*> ready_;       // likewise, to verify
};

}  // namespace nacre::target_worker

#endif  // TARGET_WORKER_STEP_PLANNER_H_
