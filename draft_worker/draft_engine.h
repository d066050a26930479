// The draft worker's engine: owns the sessions and gives, in each step, one
// token to every session that may draft. Which one, a model::Drafter proposes.
// A commit that disagrees cuts the sequence; drafting goes on from there. Where
// it makes all that a step is about to draft pointless, the engine abandons the
// step between two layers. That saves half a step a mismatch on average.
//
// What it has in common with the target's, threads included:
// worker/engine/session_engine.h.

#ifndef DRAFT_WORKER_DRAFT_ENGINE_H_
#define DRAFT_WORKER_DRAFT_ENGINE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "draft_worker/draft_messages.h"
#include "draft_worker/policy_library.h"
#include "model/drafter.h"
#include "model/language_model.h"
#include "speculation/ranks.h"
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

  // UNIMPLEMENTED where the drafter needs what this engine does not give.
  absl::Status Prepare() override;

 private:
  class HiddenSink;

  // The drafter is taken out of `options` before the rest is moved.
  DraftEngine(std::unique_ptr<model::Drafter> drafter, Options&& options);

  uint64_t forward_progress() const override {
    return drafter_->forward_progress();
  }
  const model::ModelInfo& model_info() const override {
    return drafter_->info();
  }
  int64_t kv_free_tokens() const override { return drafter_->kv_free_tokens(); }
  model::QueuedSteps queued_steps() const override {
    return drafter_->queued_steps();
  }
  absl::Span<Session* const> stepping() const override { return stepping_; }
  void BeforePlan() override { SendStopNotices(); }
  worker::WorkerState Plan(int64_t now_ns, worker::StepOutcome* idle) override;
  absl::StatusOr<bool> Forward() override;
  void Finish(int64_t start_ns, bool abandoned) override;

  // INVALID_ARGUMENT, RESOURCE_EXHAUSTED, FAILED_PRECONDITION: see
  // worker.proto.
  absl::StatusOr<std::unique_ptr<Session>> NewSession(OpenDraft& open) override;
  void OnOpened(Session& session, OpenDraft& open) override;
  void OnClosing(worker::EngineSession& session) override;
  uint32_t FailureEpoch(const OpenDraft& open) const override {
    return open.epoch;
  }
  void ApplyToSessions(DraftCommands& commands) override;
  // INVALID_ARGUMENT, FAILED_PRECONDITION.
  absl::StatusOr<PolicyLibrary::Made> MakeLength(OpenDraft& open);
  void ApplyCommit(Session& session, const speculation::Commit& commit);
  // Hidden states of the target (engine_hidden.cc):
  // Whether a session opened like this could be given any.
  bool CanReadHidden(const OpenDraft& open) const;
  // Reads them if the session's length policy does.
  void SubscribeHidden(Session& session, OpenDraft& open);
  void UnsubscribeHidden(Session& session);
  void OnHidden(worker::ReceivedTensor received);
  void OnHiddenLost(uint64_t channel);
  // After a commit: the policy's state is of the past.
  void RenewHidden(Session& session);
  void GiveHidden(Session& session);
  // Tells the target of sessions that stopped without having said so.
  void SendStopNotices();

  // One row for each session that may draft, and those that it lacks.
  void PlanDrafts(int64_t now_ns);
  void PlanPrefills();
  void AddRows(Session& session, int rows, bool drafts);
  // Of a session with branches (engine_trees.cc): at most `max_rows`.
  void AddTreeRows(Session& session, int max_rows);
  // Tells the drafter which sessions will go on behind the step, if nothing
  // comes between.
  void PlanNextSteps();
  // Whether what has arrived during the forward makes all of it pointless
  // (engine_interrupt.cc). Changes no session: commands apply after a forward.
  bool IsStepPointless();
  void NotePointless(const DraftCommands& commands);
  // The session as the tap knows it.
  worker::TapSession Tapped(const Session& session) const;
  // For all of the step. Chunks of prompts have a proposal, too, which is only
  // looked at: it depends on all KV of the chunk.
  void DraftAll();
  // Takes the session's next token from the proposal, unless a commit has made
  // it pointless.
  void Draft(Session& session, const model::Proposal& proposal);
  // ... its nodes' children, one proposal for each.
  void DraftTreeRows(Session& session,
                     absl::Span<const model::Proposal> proposals);
  // The sequence for a session, with slots where it may have branches.
  absl::StatusOr<std::unique_ptr<model::Sequence>> NewSequence(
      const OpenDraft& open, bool has_policy, int reserved_length);
  // After a commit: cuts the sequence to what the tree keeps, and learns.
  void KeepTree(Session& session);
  speculation::ScoreCalibration& CalibrationOf(const Session& session);
  void SendTail(Session& session, speculation::Tail tail);
  void AddStepSpans(int64_t start_ns, int64_t end_ns, bool abandoned);

  const Options options_;
  const std::unique_ptr<model::Drafter> drafter_;
  const std::unique_ptr<worker::StepTap> tap_;  // null: none
  PolicyLibrary no_files_;
  absl::flat_hash_map<uint64_t, Session*> by_hidden_channel_;
  std::vector<float> hidden_copy_;  // of the target's, where it is a device's
  std::shared_ptr<HiddenSink> hidden_sink_;  // outlives this in calls to it

  // The step being run.
  std::vector<Session*> stepping_;
  std::vector<model::DraftRows> batch_;
  absl::Span<const model::Proposal> proposals_;
  std::vector<int32_t> candidates_;  // of one of them
  // By kind of temperature: 0, below 0.9, above.
  std::array<speculation::ScoreCalibration, 3> calibrations_;
  int batch_rows_ = 0;
  int num_drafting_ = 0;
};

}  // namespace nacre::draft_worker

#endif  // DRAFT_WORKER_DRAFT_ENGINE_H_
