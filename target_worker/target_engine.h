// The target worker's engine: owns the sessions and their KV, batches all that
// are ready into one forward, draws the target's tokens and turns them into
// verdicts. A session's next step starts by itself when its gate is open: no
// round trip sits between two steps.
//
// Sessions live until Close, their stream's end or a failure; their KV until
// they finish. One thread runs it (worker::Engine::Run, or RunOnce in tests);
// Push is thread-safe.

#ifndef TARGET_WORKER_TARGET_ENGINE_H_
#define TARGET_WORKER_TARGET_ENGINE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "model/language_model.h"
#include "model/sampler.h"
#include "model/sampling_scratch.h"
#include "target_worker/target_messages.h"
#include "worker/engine.h"
#include "worker/engine_inbox.h"
#include "worker/event_outbox.h"
#include "worker/feature_file.h"
#include "worker/soundness.h"
#include "worker/step_budget.h"
#include "worker/tensors/tensor_publisher.h"

namespace nacre::target_worker {

class TargetEngine : public worker::Engine {
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
    // Whether a gate opens by time, without the tokens that it waits for. Where
    // it does not, what a recording holds does not depend on time.
    bool gate_timeouts = true;
    // Where hidden states of sessions with a channel go; null: nowhere.
    // Outlives the engine.
    worker::TensorPublisher* tensors = nullptr;
    // Where hidden states are recorded, which it must be able to (AddHidden);
    // null: nowhere. Outlives the engine.
    worker::FeatureFile* features = nullptr;
  };

  explicit TargetEngine(Options options);
  ~TargetEngine() override;

  void Push(TargetCommands commands) { inbox_.Push(std::move(commands)); }

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

  // The plan as this engine follows it.
  speculation::TargetPlan Followed(speculation::TargetPlan plan) const;
  void TakeCommands();
  void Apply(TargetCommands& commands);
  // Closes the stream's sessions that are not among `kept`.
  void Reap(worker::StreamId stream, const std::vector<uint64_t>& kept);
  void ApplyOpen(worker::StreamId stream, OpenTarget& open);
  // INVALID_ARGUMENT, ALREADY_EXISTS, RESOURCE_EXHAUSTED: see worker.proto.
  absl::StatusOr<std::unique_ptr<Session>> NewSession(worker::StreamId stream,
                                                      OpenTarget& open);
  void ApplyTail(Session& session, const speculation::Tail& tail);
  // nullptr, and counted, when there is no such session.
  Session* Find(worker::StreamId stream, uint64_t session_id);
  void Close(Session& session);
  void RemoveClosed();

  // What of the session's prompt others have computed since its last turn.
  void TakeOver(Session& session);
  // Fills batch_ and stepping_ with what is ready now.
  worker::StepOutcome PlanStep(int64_t now_ns);
  // Adds the sessions that can verify, sets the outcome's deadline and returns
  // what the engine waits for if nothing steps.
  worker::WorkerState PlanVerifies(int64_t now_ns,
                                   worker::StepOutcome* outcome);
  // Adds chunks of prefilling_, whose first step may share the forward.
  void PlanPrefills(bool decoding, int64_t now_ns);
  // Adds a session's rows: up to max_rows of its prompt, or its step, or both.
  void AddRows(Session& session, int max_rows, int64_t now_ns);
  int BeginVerify(Session& session, int64_t now_ns);  // returns its rows
  // Leaves to the model what it can draw of the session's `rows` verifying rows
  // where only the token is wanted. A chunk of a prompt has one row with
  // logits, which is only looked at: it depends on all KV of the chunk.
  void PlanDraws(Session& session, int rows);
  // What a forward gave of one session's rows, in their order: tokens of those
  // that the model drew, logits of the others.
  struct RowOutputs {
    absl::Span<const int32_t> drawn;
    absl::Span<const float> logits;  // [others, vocab_size]
  };
  // SampleRows for all sessions of the step; for those that only feed a chunk
  // of their prompt, a look at its row.
  void SampleAll(absl::Span<const float> logits);
  // Takes or draws the target's tokens of one session, up to the first that
  // differs from its tail or whose row is unsound. Under the ratio test it
  // leaves the row behind an accepted tail, which FinishStep judges.     of 1 +
  // tail tokens rows
  void SampleRows(Session& session, const RowOutputs& outputs);
  void JudgeRows(Session& session, absl::Span<const float> logits);
  void JudgeLastRow(Session& session, absl::Span<const float> logits);
  // Adds a token to session.drawn, which `row` is for.
  void AddDrawn(Session& session, int32_t token_id,
                absl::Span<const float> row);
  void FinishStep(Session& session, int64_t start_ns, int64_t end_ns);
  // Tells what was accepted before the last row and holds that; `span` as of
  // FinishVerify.
  void HoldLastRow(Session& session, absl::Span<const float> logits,
                   wire::Span span);
  // Ends the session's step; `span` lacks what the verdict says. Returns how
  // many tokens it committed.
  int FinishVerify(Session& session, wire::Span span, int64_t now_ns);
  void SendVerdict(Session& session, speculation::Verdict verdict);
  // Ends the held steps whose last row has something to judge, or will not.
  void EndHolds(int64_t now_ns);
  // The hidden state of one of its rows in the step that has just run; empty
  // where nobody reads it (engine_hidden.cc).
  kernels::FloatView HiddenRow(const Session& session, int row);
  kernels::FloatView HiddenRows(const Session& session, int row, int count);
  // That of the row that gave the last committed token, after the verdict.
  void PublishHidden(const Session& session, const kernels::FloatView& values);
  // Those of all tokens that the step has committed, the first at `position` of
  // the answer. A step that held its last row is left out.
  void RecordHidden(const Session& session, int position, int num_tokens);
  void FailStep(const absl::Status& status);
  void Fail(Session& session, absl::Status status);
  void NoteDraftWait(Session& session, absl::optional<int64_t> deadline_ns,
                     int64_t now_ns, worker::StepOutcome* outcome);
  void NoteWait(Session& session, wire::Span::Kind kind, int64_t now_ns);
  void EndWait(Session& session, int64_t now_ns);
  void AddSpan(const Session& session, wire::Span span);
  void Publish();

  const Options options_;
  worker::EngineInbox<TargetCommands> inbox_;
  worker::EventOutbox<TargetEvents> outbox_;
  std::vector<TargetCommands> commands_;  // scratch of TakeCommands
  model::SamplingScratch scratch_;        // of all samplers

  std::vector<std::unique_ptr<Session>> sessions_;  // in the order opened
  absl::flat_hash_map<worker::SessionKey, Session*> by_key_;
  size_t first_ = 0;      // who steps first when the budget is too small
  bool closing_ = false;  // some session waits for RemoveClosed
  bool in_step_ = false;

  // The step being run.
  std::vector<Session*> stepping_;
  std::vector<model::SequenceRows> batch_;
  std::vector<Session*> prefilling_;  // when it was planned
  model::TokenWeights weights_;       // scratch of the ratio test
  int batch_rows_ = 0;
  int verify_rows_ = 0;
  int logit_rows_ = 0;
  kernels::FloatView hidden_;       // of all logits, once anybody reads it
  std::vector<float> hidden_copy_;  // what is recorded of a device's

  worker::Soundness soundness_;
  uint64_t steps_ = 0;
  uint64_t rejected_messages_ = 0;
  uint64_t rollback_tokens_ = 0;
  uint64_t reaped_sessions_ = 0;
  uint64_t kept_lists_ = 0;
  uint64_t prefix_queries_ = 0;
  uint64_t prefix_hits_ = 0;
};

}  // namespace nacre::target_worker

#endif  // TARGET_WORKER_TARGET_ENGINE_H_
