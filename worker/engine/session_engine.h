// The half of an engine that both workers have: the sessions with their KV, how
// they are found, closed, reaped and counted, and the order of a step:
//
//   take commands, plan, forward, finish, publish
//
// TypedSessionEngine (typed_session_engine.h) adds the ways in and out, whose
// messages differ. What a step computes is the engines' own
// (target_worker/target_engine.h, draft_worker/draft_engine.h).
//
// Sessions live until Close, their stream's end or a failure. One thread runs
// it (Engine::Run, or RunOnce in tests).

#ifndef WORKER_ENGINE_SESSION_ENGINE_H_
#define WORKER_ENGINE_SESSION_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/language_model.h"
#include "model/sampling_scratch.h"
#include "wire/session_events.h"
#include "worker/engine/engine.h"
#include "worker/engine/engine_session.h"
#include "worker/engine/soundness.h"
#include "worker/engine/streams.h"

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
  explicit SessionEngine(Parts parts);

  void Deliver(Delivery delivery) override {
    if (deliver_) deliver_(delivery);
  }
  // ------------------------------------------------ what an engine does itself
  // Of what it computes with.
  virtual const model::ModelInfo& model_info() const = 0;
  virtual int64_t kv_free_tokens() const = 0;
  virtual model::QueuedSteps queued_steps() const { return {}; }
  // Applies what has arrived, in order.
  virtual void TakeCommands() = 0;
  // Before the events of the commands leave and the step is planned.
  virtual void BeforePlan() {}
  // Fills in what is ready now and adds its rows to batch_rows_. Returns what
  // the engine does in the step or, without rows, what it waits for, `idle`.
  virtual WorkerState Plan(int64_t now_ns, StepOutcome* idle) = 0;
  // Runs what was planned. False: the engine has ended the forward early. An
  // error is the device's.
  virtual absl::StatusOr<bool> Forward() = 0;
  // The sessions of the step fail: `status` is the device's.
  virtual void FailStep(const absl::Status& status) = 0;
  // Turns what the forward gave, if it was not `abandoned`, into events.
  virtual void Finish(int64_t start_ns, bool abandoned) = 0;
  // The session is being closed.
  virtual void OnClosing(EngineSession&) {}
  // What is told to a stream's coordinator next.
  virtual wire::SessionEvents& EventsOf(StreamId stream) = 0;
  virtual void SendEvents() = 0;

  // --------------------------------------------------------------- sessions
  const std::vector<std::unique_ptr<EngineSession>>& all_sessions() const {
    return sessions_;
  }
  // Those that have arrived during the forward: they remove no session.
  void TakeCommandsInStep() {
    in_step_ = true;
    TakeCommands();
    in_step_ = false;
  }
  // What both workers ask of an Open. INVALID_ARGUMENT, ALREADY_EXISTS.
  absl::Status CheckOpen(SessionKey key, const absl::Status& refusal,
                         int prompt_length,
                         absl::Span<const int32_t> token_ids) const;
  // A session that was opened with so many tokens.
  void Add(std::unique_ptr<EngineSession> session, size_t num_tokens);
  // nullptr when there is no such session.
  EngineSession* FindSession(SessionKey key) const {
    const auto it = by_key_.find(key);
    return it == by_key_.end() ? nullptr : it->second;
  }
  // Closes the stream's sessions that are not among `kept`.
  void Reap(StreamId stream, const std::vector<uint64_t>& kept);
  // Closes what a command names, and tells so.
  void CloseAsTold(EngineSession& session);
  void EndStream(StreamId stream);
  void Fail(EngineSession& session, absl::Status status);
  void RemoveClosed();
  // Visits the sessions, first the one that the last step had no room for.
  // visit(index) returns whether this step has room.
  template <typename Visit>
  void VisitInTurn(const Visit& visit) {
    const size_t count = sessions_.size();
    const size_t first = count == 0 ? 0 : first_ % count;
    left_out_ = false;
    for (size_t i = 0; i < count; ++i) {
      const size_t at = (first + i) % count;
      if (!visit(at) && !std::exchange(left_out_, true)) first_ = at;
    }
  }

  // ------------------------------------------------------------ KV and spans
  // What of the session's settled tokens others have computed since its last
  // turn.
  void TakeOver(EngineSession& session, absl::Span<const int32_t> settled);
  // To at most `length` positions.
  void TruncateKv(EngineSession& session, int length);
  void NoteWait(EngineSession& session, wire::Span::Kind kind, int64_t now_ns);
  void EndWait(EngineSession& session, int64_t now_ns);
  void AddSpan(const EngineSession& session, wire::Span span);
  // The stats, for other threads. Also when the engine has been made.
  void Publish();
  // Their sequences do not outlive what the engine computes with.
  void RemoveAll() { sessions_.clear(); }

  const int64_t spin_ns_;
  Soundness soundness_;
  model::SamplingScratch scratch_;  // of all samplers
  bool in_step_ = false;
  bool in_forward_ = false;
  bool left_out_ = false;  // a session for which the step had no room
  int batch_rows_ = 0;     // of the step being run
  uint64_t rejected_messages_ = 0;
  uint64_t suffix_proposed_ = 0;
  uint64_t suffix_accepted_ = 0;

 private:
  void Close(EngineSession& session);

  const std::function<void(Delivery)> deliver_;
  std::vector<std::unique_ptr<EngineSession>> sessions_;  // in the order opened
  absl::flat_hash_map<SessionKey, EngineSession*> by_key_;
  size_t first_ = 0;      // which steps first when the budget is too small
  bool closing_ = false;  // some session waits for RemoveClosed

  uint64_t steps_ = 0;
  uint64_t abandoned_steps_ = 0;
  uint64_t rollback_tokens_ = 0;
  uint64_t reaped_sessions_ = 0;
  uint64_t kept_lists_ = 0;
  uint64_t prefix_queries_ = 0;
  uint64_t prefix_hits_ = 0;
};

}  // namespace nacre::worker

#endif  // WORKER_ENGINE_SESSION_ENGINE_H_
