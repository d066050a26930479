// The target worker's engine. It owns the sessions and their KV, batches all
// that are ready into one forward, draws the target's tokens and turns them
// into verdicts. A session's next step starts by itself when its gate is open:
// no round trip sits between two steps. The parts of a step, in its order:
//
//   step_planner.h    which rows are fed
//   row_sampler.h     which tokens they give
//   step_verdicts.h   what the sessions make of those
//   hidden_taps.h     what else sees hidden states
//   row_publisher.h    and keys and values
//
// and beside it open_session.h, and what sessions draft of their own:
// own_drafts.h, of suffix_memory.h, head_drafts.h and feature_drafts.h.
//
// A session's KV lives until it finishes. What this engine has in common with
// the draft's, threads included: worker/engine/session_engine.h.

#ifndef TARGET_WORKER_TARGET_ENGINE_H_
#define TARGET_WORKER_TARGET_ENGINE_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/feature_drafter.h"
#include "model/future_heads.h"
#include "model/language_model.h"
#include "model/target_rows.h"
#include "speculation/plan.h"
#include "speculation/tree_spec.h"
#include "target_worker/feature_drafts.h"
#include "target_worker/feature_shelf.h"
#include "target_worker/head_drafts.h"
#include "target_worker/hidden_taps.h"
#include "target_worker/own_drafts.h"
#include "target_worker/row_publisher.h"
#include "target_worker/row_sampler.h"
#include "target_worker/step_planner.h"
#include "target_worker/step_verdicts.h"
#include "target_worker/suffix_memory.h"
#include "target_worker/target_messages.h"
#include "worker/engine/engine.h"
#include "worker/engine/event_outbox.h"
#include "worker/engine/step_budget.h"
#include "worker/engine/typed_session_engine.h"
#include "worker/recording/feature_file.h"
#include "worker/tensors/tensor_publisher.h"

namespace nacre::target_worker {

struct EngineSession;  // engine_session.h

class TargetEngine final
    : public worker::TypedSessionEngine<EngineSession, TargetCommands,
                                        TargetEvents> {
 public:
  struct Options {
    model::LanguageModel* model = nullptr;  // outlives the engine
    // Called on the engine's thread; must not block.
    worker::EventOutbox<TargetEvents>::Send send;
    // What was sent may leave now. Called like `send`; not needed where that
    // needs no more.
    std::function<void(worker::Delivery)> deliver;
    // How long to keep the core awake for what the other worker will send.
    int64_t spin_ns = 0;
    worker::Clock now_ns = worker::MonotonicNowNs;
    // Token budget of a step: verifying rows first, then prompt chunks. A step
    // passes it by at most one session's window.
    worker::StepBudget budget;
    // Whether sessions may draft from suffixes, and how much memory texts of
    // finished ones take, of all clients (suffix_index.h). Below
    // SuffixMemory::kLeastBytes they are forgotten.
    bool suffixes = true;
    int64_t suffix_cache_bytes = 0;
    // Heads that sessions may draft from, and the shape of their tree: best, or
    // a static list. Null: there are none. Outlive the engine.
    model::FutureHeads* heads = nullptr;
    speculation::TreeSpec head_tree = {};
    // A draft over the target's features, which the model keeps, in place of
    // heads; null: there is none. Outlives the engine.
    model::FeatureDrafter* feature_drafter = nullptr;
    // Whether a gate opens by time, without the tokens that it waits for. Where
    // it does not, what a recording holds does not depend on time.
    bool gate_timeouts = true;
    // Where tensors of sessions with a channel go; null: nowhere.
    // Outlives the engine.
    worker::TensorPublisher* tensors = nullptr;
    // The keys and values that drafts read; null: the model's. Outlives the
    // engine.
    model::RowSource* rows = nullptr;
    // What it makes of features for drafts that read these, and how many bytes
    // of them it keeps; null: none. Outlives the engine.
    model::FeatureSource* feature_source = nullptr;
    int64_t feature_bytes = FeatureShelf::kDefaultBytes;
    // Where hidden states are recorded, which it must be able to (AddHidden);
    // null: nowhere. Outlives the engine.
    worker::FeatureFile* features = nullptr;
  };

  explicit TargetEngine(Options options);
  ~TargetEngine() override;

  void LearnStepTimes(absl::Span<const worker::StepTime> times) override;

 private:
  uint64_t forward_progress() const override {
    return options_.model->forward_progress();
  }
  const model::ModelInfo& model_info() const override {
    return options_.model->info();
  }
  int64_t kv_free_tokens() const override {
    return options_.model->kv_free_tokens();
  }
  int blocks_brought_at_once() const override {
    return options_.model->blocks_brought_at_once();
  }
  absl::Span<Session* const> stepping() const override {
    return planner_.step().sessions;
  }
  void BeforePlan() override { verdicts_.EndHolds(now_ns_()); }
  worker::WorkerState Plan(int64_t now_ns,
                           worker::StepOutcome* outcome) override;
  absl::StatusOr<bool> Forward() override;
  void Finish(int64_t start_ns, bool abandoned) override;

  // Commands (engine_commands.cc). Errors: of OpenSession.
  absl::StatusOr<std::unique_ptr<Session>> NewSession(
      OpenTarget& open) override;
  void OnOpened(Session& session, OpenTarget& open) override;
  void OnClosing(worker::EngineSession& session) override;
  void ApplyToSessions(TargetCommands& commands) override;
  void ApplyTail(Session& session, const speculation::Tail& tail);
  // The plan as this engine follows it.
  speculation::TargetPlan Followed(speculation::TargetPlan plan) const;

  const Options options_;
  SuffixMemory suffixes_;
  HeadDrafts heads_;
  FeatureDrafts features_;
  OwnDrafts own_drafts_;
  HiddenTaps hidden_;
  FeatureShelf shelf_;
  RowPublisher rows_;
  RowSampler sampler_;
  StepPlanner planner_;
  StepVerdicts verdicts_;
  absl::Span<const float> logits_;  // of the step being run
};

}  // namespace nacre::target_worker

#endif  // TARGET_WORKER_TARGET_ENGINE_H_
