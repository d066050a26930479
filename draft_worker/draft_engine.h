// The draft worker's engine: owns the sessions and their KV and gives, in each
// step, one token to every session that may draft. A commit that disagrees cuts
// the sequence; drafting goes on from there. Where it makes all that a step is
// about to draft pointless, the step is abandoned between two layers: half a
// step a mismatch on average that nobody waits for.
//
// Sessions live until Close, their stream's end or a failure. One thread runs
// it (worker::Engine::Run, or RunOnce in tests); Push is thread-safe.

#ifndef DRAFT_WORKER_DRAFT_ENGINE_H_
#define DRAFT_WORKER_DRAFT_ENGINE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
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
#include "model/sampling_scratch.h"
#include "worker/engine.h"
#include "worker/engine_inbox.h"
#include "worker/event_outbox.h"
#include "worker/soundness.h"
#include "worker/step_budget.h"

namespace nacre::draft_worker {

class DraftEngine : public worker::Engine {
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

  void Push(DraftCommands commands) { inbox_.Push(std::move(commands)); }

  absl::Status Prepare() override { return soundness_.Remember(); }
  absl::StatusOr<worker::StepOutcome> RunOnce() override;

 protected:
  void Wake() override { inbox_.Wake(); }
  void WaitForCommands(const worker::StepOutcome& idle) override {
    inbox_.Wait(idle.deadline_ns, idle.waits_for_peer ? options_.spin_ns : 0);
  }
  void Deliver(worker::Delivery delivery) override {
    if (options_.deliver) options_.deliver(delivery);
  }
  bool HasCommands() const override { return inbox_.HasItems(); }
  uint64_t forward_progress() const override {
    return options_.model->forward_progress();
  }

 private:
  struct Session;
  class HiddenSink;

  void TakeCommands();
  void ApplyAll(std::vector<DraftCommands>* commands);
  void Apply(DraftCommands& commands);
  // Closes the stream's sessions that are not among `kept`.
  void Reap(worker::StreamId stream, const std::vector<uint64_t>& kept);
  void ApplyOpen(worker::StreamId stream, OpenDraft& open);
  // INVALID_ARGUMENT, ALREADY_EXISTS, RESOURCE_EXHAUSTED, FAILED_PRECONDITION:
  // see worker.proto.
  absl::StatusOr<std::unique_ptr<Session>> NewSession(worker::StreamId stream,
                                                      OpenDraft& open,
                                                      std::string* policy_note);
  // INVALID_ARGUMENT, FAILED_PRECONDITION.
  absl::StatusOr<PolicyLibrary::Made> MakeLength(OpenDraft& open);
  void ApplyCommit(Session& session, const speculation::Commit& commit);
  // To at most `length` positions.
  void TruncateKv(Session& session, int length);
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
  // nullptr, and counted, when there is no such session.
  Session* Find(worker::StreamId stream, uint64_t session_id);
  void Fail(Session& session, absl::Status status);
  void Close(Session& session);
  void RemoveClosed();

  // What of the session's prompt others have computed since its last turn.
  void TakeOver(Session& session);
  // Fills batch_ and stepping_ with what is ready now; whether there is any.
  bool PlanStep(int64_t now_ns);
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
  void EndWait(Session& session, int64_t now_ns);
  void AddSpan(const Session& session, wire::Span span);
  void Publish();

  const Options options_;
  PolicyLibrary no_files_;
  worker::EngineInbox<DraftCommands> inbox_;
  worker::EventOutbox<DraftEvents> outbox_;
  std::vector<DraftCommands> commands_;  // scratch of TakeCommands
  // Looked at during a forward; older than what is in the inbox.
  std::vector<DraftCommands> held_;
  model::SamplingScratch scratch_;  // of all samplers

  std::vector<std::unique_ptr<Session>> sessions_;  // in the order opened
  absl::flat_hash_map<worker::SessionKey, Session*> by_key_;
  absl::flat_hash_map<uint64_t, Session*> by_hidden_channel_;
  std::vector<float> hidden_copy_;  // of the model's, where it is a device's
  std::shared_ptr<HiddenSink> hidden_sink_;  // outlives this in calls to it
  size_t first_ = 0;      // who steps first when the budget is too small
  bool closing_ = false;  // some session waits for RemoveClosed
  bool in_step_ = false;
  bool in_forward_ = false;

  // The step being run.
  std::vector<Session*> stepping_;
  std::vector<model::SequenceRows> batch_;
  int batch_rows_ = 0;
  int num_drafting_ = 0;
  bool left_out_ = false;  // somebody for whom it had no room

  worker::Soundness soundness_;
  uint64_t steps_ = 0;
  uint64_t abandoned_steps_ = 0;
  uint64_t rejected_messages_ = 0;
  uint64_t rollback_tokens_ = 0;
  uint64_t reaped_sessions_ = 0;
  uint64_t kept_lists_ = 0;
  uint64_t prefix_queries_ = 0;
  uint64_t prefix_hits_ = 0;
};

}  // namespace nacre::draft_worker

#endif  // DRAFT_WORKER_DRAFT_ENGINE_H_
