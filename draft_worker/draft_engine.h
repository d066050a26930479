// The draft worker's engine: owns the sessions and their KV and gives, in each
// step, one token to every session that may draft. A commit that disagrees cuts
// the sequence; drafting goes on from there. Where it makes all that a step is
// about to draft pointless, the step is abandoned between two layers: half a
// step a mismatch on average that nobody waits for.
//
// What it has in common with the target's, threads included:
// worker/session_engine.h.

#ifndef DRAFT_WORKER_DRAFT_ENGINE_H_
#define DRAFT_WORKER_DRAFT_ENGINE_H_

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
#include "draft_worker/feature_recorder.h"
#include "draft_worker/policy_library.h"
#include "model/language_model.h"
#include "worker/engine.h"
#include "worker/event_outbox.h"
#include "worker/step_budget.h"
#include "worker/typed_session_engine.h"

namespace nacre::draft_worker {

struct EngineSession;  // engine_session.h

class DraftEngine final
    : public worker::TypedSessionEngine<EngineSession, DraftCommands,
                                        DraftEvents> {
 public:
  struct Options {
    model::LanguageModel* model = nullptr;  // outlives the engine
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

 private:
  class HiddenSink;

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
  // Tells the model what will follow the step, where that can be told: it then
  // need not wait for the engine between the two.
  void PlanNextDraws();
  // Whether what has arrived during the forward makes all of it pointless
  // (engine_interrupt.cc). Changes no session: commands apply after a forward.
  bool IsStepPointless();
  void NotePointless(const DraftCommands& commands);
  // For all that draft, with the logits of the rows that the model did not draw
  // from [sessions, vocab_size]. Chunks of prompts have a row each, too, which
  // is only looked at: it depends on all KV of the chunk.
  void DraftAll(absl::Span<const float> logits);
  // Draws the session's next token, or takes what the model has drawn, unless a
  // commit has made it pointless.
  struct RowOutputs {
    int32_t drawn = 0;               // if session.draw is set
    absl::Span<const float> logits;  // [vocab_size] if it is not
    // [hidden_size] if its length policy reads it or it is recorded
    absl::Span<const float> hidden;
  };
  void Draft(Session& session, const RowOutputs& row);
  void AddStepSpans(int64_t start_ns, int64_t end_ns, bool abandoned);

  const Options options_;
  PolicyLibrary no_files_;
  absl::flat_hash_map<uint64_t, Session*> by_hidden_channel_;
  std::vector<float> hidden_copy_;  // of the model's, where it is a device's
  std::shared_ptr<HiddenSink> hidden_sink_;  // outlives this in calls to it

  // The step being run.
  std::vector<model::SequenceRows> batch_;
  absl::Span<const float> logits_;
  int num_drafting_ = 0;
};

}  // namespace nacre::draft_worker

#endif  // DRAFT_WORKER_DRAFT_ENGINE_H_
