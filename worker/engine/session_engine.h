// The half of an engine that both workers have: the order of a step,
//
//   take commands, plan, forward, finish, publish
//
// and the parts that each step uses:
//
//   session_table.h     which sessions there are
//   session_accounts.h  their KV and spans, and what is counted
//   soundness.h         whether the device is to be trusted
//
// TypedSessionEngine (typed_session_engine.h) adds the ways in and out, whose
// messages differ. What a step computes is the engines' own
// (target_worker/target_engine.h, draft_worker/draft_engine.h).
//
// Sessions live until Close, their stream's end or a failure. One thread runs
// it (Engine::Run, or RunOnce in tests).

#ifndef WORKER_ENGINE_SESSION_ENGINE_H_
#define WORKER_ENGINE_SESSION_ENGINE_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/language_model.h"
#include "model/sampling_scratch.h"
#include "worker/engine/engine.h"
#include "worker/engine/engine_session.h"
#include "worker/engine/event_outbox.h"
#include "worker/engine/session_accounts.h"
#include "worker/engine/session_table.h"
#include "worker/engine/soundness.h"

namespace nacre::worker {

class SessionEngine : public Engine {
 public:
  absl::Status Prepare() override { return soundness_.Remember(); }
  absl::StatusOr<StepOutcome> RunOnce() override;

 protected:
  struct Parts {
    // For the canary, and outlives the engine; null: there is none to ask.
    model::LanguageModel* canary_model = nullptr;
    // What was sent may leave now. Called on the engine's thread; must not
    // block. Null: that needs no more.
    std::function<void(Delivery)> deliver;
    // How long to keep the core awake for what the other worker will send.
    int64_t spin_ns = 0;
    Clock now_ns;
  };
  SessionEngine(Parts parts, std::unique_ptr<SessionOutbox> outbox);

  void Deliver(Delivery delivery) override {
    if (deliver_) deliver_(delivery);
  }
  // ------------------------------------------------ what an engine does itself
  // Of what it computes with.
  virtual const model::ModelInfo& model_info() const = 0;
  virtual int64_t kv_free_tokens() const = 0;
  // As of LanguageModel.
  virtual int blocks_brought_at_once() const = 0;
  virtual model::QueuedSteps queued_steps() const { return {}; }
  // Applies what has arrived, in order.
  virtual void TakeCommands() = 0;
  // Before the events of the commands leave and the step is planned.
  virtual void BeforePlan() {}
  // Fills in what is ready now and says in `outcome` whether that makes a step.
  // Returns what the engine does in it or, without one, what it waits for.
  virtual WorkerState Plan(int64_t now_ns, StepOutcome* outcome) = 0;
  // Runs what was planned. False: the engine has ended the forward early. An
  // error is the device's.
  virtual absl::StatusOr<bool> Forward() = 0;
  // The sessions of the step fail: `status` is the device's.
  virtual void FailStep(const absl::Status& status) = 0;
  // Turns what the forward gave, if it was not `abandoned`, into events. The
  // step has begun at `start_ns`, with all planned.
  virtual void Finish(int64_t start_ns, bool abandoned) = 0;
  // The session is being closed.
  virtual void OnClosing(EngineSession&) {}

  // Those that have arrived during the forward: they remove no session.
  void TakeCommandsInStep() {
    in_step_ = true;
    TakeCommands();
    in_step_ = false;
  }
  // The stats, for other threads. Also when the engine has been made.
  void Publish();

  const int64_t spin_ns_;
  const std::unique_ptr<SessionOutbox> outbox_;
  SessionAccounts accounts_;
  SessionTable table_;
  Soundness soundness_;
  model::SamplingScratch scratch_;  // of all samplers
  bool in_step_ = false;
  bool in_forward_ = false;

 private:
  const std::function<void(Delivery)> deliver_;
};

}  // namespace nacre::worker

#endif  // WORKER_ENGINE_SESSION_ENGINE_H_
