// The target worker's engine: owns the sessions and their KV, batches all that
// are ready into one forward, draws the target's tokens and turns them into
// verdicts. A session's next step starts by itself when its gate is open: no
// round trip sits between two steps.
//
// A session's KV lives until it finishes. What this engine has in common with
// the draft's, threads included: worker/engine/session_engine.h.

#ifndef TARGET_WORKER_TARGET_ENGINE_H_
#define TARGET_WORKER_TARGET_ENGINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "model/language_model.h"
#include "model/sampler.h"
#include "speculation/estimators.h"
#include "speculation/suffix_index.h"
#include "target_worker/target_messages.h"
#include "worker/engine/engine.h"
#include "worker/engine/event_outbox.h"
#include "worker/engine/step_budget.h"
#include "worker/engine/step_tap.h"
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
    // kLeastSuffixBytes they are forgotten.
    bool suffixes = true;
    int64_t suffix_cache_bytes = 0;
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

  static constexpr int64_t kLeastSuffixBytes = 64 << 10;

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
  void BeforePlan() override { EndHolds(now_ns_()); }
  worker::WorkerState Plan(int64_t now_ns, worker::StepOutcome* idle) override;
  absl::StatusOr<bool> Forward() override;
  void Finish(int64_t start_ns, bool abandoned) override;

  // INVALID_ARGUMENT, RESOURCE_EXHAUSTED: see worker.proto.
  absl::StatusOr<std::unique_ptr<Session>> NewSession(
      OpenTarget& open) override;
  // With its slots, if it can have them. Errors: of NewSession.
  absl::StatusOr<std::unique_ptr<model::Sequence>> NewSequence(
      const OpenTarget& open, int length);
  void ApplyToSessions(TargetCommands& commands) override;
  void ApplyTail(Session& session, const speculation::Tail& tail);
  void OnOpened(Session& session, OpenTarget& open) override;
  void OnClosing(worker::EngineSession& session) override;
  // The plan as this engine follows it.
  speculation::TargetPlan Followed(speculation::TargetPlan plan) const;

  // Adds the sessions that can verify, sets the outcome's deadline and returns
  // what the engine waits for if nothing steps.
  worker::WorkerState PlanVerifies(int64_t now_ns,
                                   worker::StepOutcome* outcome);
  // Adds the rows of those that can: chains as planned, of trees the nodes that
  // pay on this target.
  // `least_rows`: without the latter.
  void AddReady(absl::Span<Session* const> ready, int least_rows, int max_rows,
                int64_t now_ns);
  // Where the draft of a session has no token for its next step: nodes of its
  // own.
  void ProposeSuffixes(Session& session);
  // Adds chunks of prefilling_, whose first step may share the forward.
  void PlanPrefills(bool decoding, int64_t now_ns);
  // Adds a session's rows: up to max_rows of its prompt, or its step, or both.
  // `num_nodes`: of its tree, where it does not step with a chain.
  void AddRows(Session& session, int max_rows, int64_t now_ns,
               absl::optional<int> num_nodes = absl::nullopt);
  // Returns its rows.
  int BeginVerify(Session& session, int64_t now_ns,
                  absl::optional<int> num_nodes);
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
  // Takes or draws the target's tokens of one session along its walk, up to the
  // first that no row stands for or whose row is unsound. Under the ratio test
  // it leaves the row behind an accepted tail, which FinishStep judges.
  //                                        outputs: of 1 + tail tokens rows
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
  // What of the KV of the step's rows stands for committed tokens.
  void KeepRows(Session& session, int base_length, int matched);
  // Ends the session's step; `span` lacks what the verdict says. Returns how
  // many tokens it committed.
  int FinishVerify(Session& session, wire::Span span);
  void SendVerdict(Session& session, speculation::Verdict verdict);
  // Ends the held steps whose last row has something to judge, or will not.
  void EndHolds(int64_t now_ns);
  // Hidden states of a session's rows in the step that has just run, for the
  // tap (engine_hidden.cc).
  static worker::StepTaps TapsOf(const Options& options);
  worker::TapSession Tapped(const Session& session, bool is_held) const;
  kernels::FloatView HiddenRows(const Session& session, int row, int count);
  // That of a row to be shown when its step has ended; empty: it is not read.
  kernels::FloatView RowToHold(const Session& session, int row);
  // After the verdict: those of the step's first rows, which have committed so
  // many tokens.
  void ShowStep(const Session& session, int num_tokens, bool is_held);
  // Those that gave the last committed tokens.
  void ShowRows(const Session& session, const kernels::FloatView& hidden,
                int num_tokens, bool is_held);
  void NoteDraftWait(Session& session, absl::optional<int64_t> deadline_ns,
                     int64_t now_ns, worker::StepOutcome* outcome);

  const Options options_;
  worker::StepTaps taps_;

  // Answers of finished sessions, by client; null: they are forgotten.
  std::unique_ptr<speculation::SuffixIndex> remembered_;

  // The step being run.
  std::vector<model::SequenceRows> batch_;
  std::vector<Session*> prefilling_;  // when it was planned
  std::vector<Session*> ready_;       // likewise, to verify
  speculation::StepTimeCurve step_times_;
  model::TokenWeights weights_;  // scratch of the ratio test
  int batch_rows_ = 0;
  int verify_rows_ = 0;
  int logit_rows_ = 0;
  absl::Span<const float> logits_;
  kernels::FloatView hidden_;  // of all logits, once a tap reads them
};

}  // namespace nacre::target_worker

#endif  // TARGET_WORKER_TARGET_ENGINE_H_
