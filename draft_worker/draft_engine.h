// The draft worker's engine: owns the sessions and gives, in each step, one
// token to every session that may draft. Which one, a model::Drafter proposes.
// A commit that disagrees cuts the sequence; drafting goes on from there. Where
// it makes all that a step is about to draft pointless, the engine abandons the
// step between two layers. That saves half a step a mismatch on average. The
// parts of a step, in its order:
//
//   step_planner.h   which rows are fed
//   row_drafter.h    which tokens their proposals give
//
// and beside it open_session.h, and what comes of the target: hidden_reader.h
// and row_receiver.h.
//
// What it has in common with the target's, threads included:
// worker/engine/session_engine.h.

#ifndef DRAFT_WORKER_DRAFT_ENGINE_H_
#define DRAFT_WORKER_DRAFT_ENGINE_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "draft_worker/draft_messages.h"
#include "draft_worker/hidden_reader.h"
#include "draft_worker/policy_library.h"
#include "draft_worker/row_drafter.h"
#include "draft_worker/row_receiver.h"
#include "draft_worker/score_calibrations.h"
#include "draft_worker/step_planner.h"
#include "model/drafter.h"
#include "model/language_model.h"
#include "worker/engine/engine.h"
#include "worker/engine/event_outbox.h"
#include "worker/engine/step_budget.h"
#include "worker/engine/step_tap.h"
#include "worker/engine/typed_session_engine.h"
#include "worker/recording/feature_file.h"
#include "worker/tensors/tensor_reader.h"

namespace nacre::draft_worker {

struct EngineSession;  // engine_session.h

class DraftEngine final
    : public worker::TypedSessionEngine<EngineSession, DraftCommands,
                                        DraftEvents> {
 public:
  struct Options {
    // What a ModelDrafter drafts with; outlives the engine.
    model::LanguageModel* model = nullptr;
    // Drafts instead, and needs no `model`.
    std::unique_ptr<model::Drafter> drafter = nullptr;
    // Called on the engine's thread; must not block.
    worker::EventOutbox<DraftEvents>::Send send;
    // What was sent may leave now. Called like `send`; not needed where that
    // needs no more.
    std::function<void(worker::Delivery)> deliver;
    // How long to keep the core awake for what the other worker will send.
    int64_t spin_ns = 0;
    worker::Clock now_ns = worker::MonotonicNowNs;
    // For sessions with a length policy; null: those that need no file.
    // Outlives the engine.
    PolicyLibrary* policies = nullptr;
    // Where sessions record what policies are calibrated from; null: nowhere.
    // Outlives the engine.
    worker::FeatureFile* features = nullptr;
    // Where policies get the target's hidden states; null: nowhere. Outlives
    // the engine.
    worker::TensorReader* tensors = nullptr;
    // Token budget of a step: drafting sessions first, then prompt chunks.
    worker::StepBudget budget;
  };

  explicit DraftEngine(Options options);
  ~DraftEngine() override;

  // UNIMPLEMENTED where the drafter needs what this engine does not give;
  // FAILED_PRECONDITION where it does not give what recordings need.
  absl::Status Prepare() override;

  // Whether sessions with slots grow trees. They do not where they are
  // recorded, or where the drafter ranks no candidates.
  bool grows_trees() const {
    return tap_ == nullptr && drafter_->traits().ranks_children;
  }

  // What became of the target's tensors. Any thread may ask.
  worker::TensorUse tensor_use() const {
    worker::TensorUse use = rows_.use();
    const worker::TensorUse hidden = hidden_.use();
    use.used += hidden.used;
    use.stale += hidden.stale;
    use.lag_ns = hidden.lag_ns;
    return use;
  }

 private:
  // The drafter is taken out of `options` before the rest is moved.
  DraftEngine(std::unique_ptr<model::Drafter> drafter, Options&& options);

  uint64_t forward_progress() const override {
    return drafter_->forward_progress();
  }
  const model::ModelInfo& model_info() const override {
    return drafter_->info();
  }
  int64_t kv_free_tokens() const override { return drafter_->kv_free_tokens(); }
  int blocks_brought_at_once() const override {
    return drafter_->blocks_brought_at_once();
  }
  model::QueuedSteps queued_steps() const override {
    return drafter_->queued_steps();
  }
  absl::Span<Session* const> stepping() const override {
    return planner_.step().sessions;
  }
  void BeforePlan() override { SendStopNotices(); }
  worker::WorkerState Plan(int64_t now_ns,
                           worker::StepOutcome* outcome) override {
    return planner_.Plan(now_ns, outcome);
  }
  absl::StatusOr<bool> Forward() override;
  void Finish(int64_t start_ns, bool abandoned) override;
  void AddStepSpans(int64_t start_ns, int64_t end_ns, bool abandoned);

  // Commands (engine_commands.cc). Errors: of OpenSession.
  absl::StatusOr<std::unique_ptr<Session>> NewSession(OpenDraft& open) override;
  void OnOpened(Session& session, OpenDraft& open) override;
  void OnClosing(worker::EngineSession& session) override;
  uint32_t FailureEpoch(const OpenDraft& open) const override {
    return open.epoch;
  }
  void ApplyToSessions(DraftCommands& commands) override;
  void ApplyCommit(Session& session, const speculation::Commit& commit);
  // After that: cuts the sequence to what the tree keeps, and learns.
  void KeepTree(Session& session);
  // Tells the target of sessions that stopped without having said so.
  void SendStopNotices();

  // Whether what has arrived during the forward makes all of it pointless
  // (engine_interrupt.cc). Changes no session: commands apply after a forward.
  bool IsStepPointless();
  void NotePointless(const DraftCommands& commands);

  const Options options_;
  const std::unique_ptr<model::Drafter> drafter_;
  const std::unique_ptr<worker::StepTap> tap_;  // null: none
  PolicyLibrary no_files_;
  ScoreCalibrations calibrations_;
  HiddenReader hidden_;
  RowReceiver rows_;
  StepPlanner planner_;
  RowDrafter row_drafter_;
  absl::Span<const model::Proposal> proposals_;  // of the step being run
};

}  // namespace nacre::draft_worker

#endif  // DRAFT_WORKER_DRAFT_ENGINE_H_
