// The ways into and out of a session engine, whose messages differ by worker.
//
// `Commands` is a FromStream of wire's commands, `Events` wire's events,
// `Session` what the engine makes of an Open, derived from EngineSession. It
// may be incomplete in the engine's header.
//
// Push is thread-safe; the rest belongs to the engine's thread.

#ifndef WORKER_ENGINE_TYPED_SESSION_ENGINE_H_
#define WORKER_ENGINE_TYPED_SESSION_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/status_macros.h"
#include "worker/engine/engine_inbox.h"
#include "worker/engine/event_outbox.h"
#include "worker/engine/session_engine.h"
#include "worker/engine/session_log.h"
#include "worker/engine/session_table.h"
#include "worker/engine/streams.h"
#include "worker/engine/token_ids.h"

namespace nacre::worker {

template <typename SessionT, typename CommandsT, typename EventsT>
class TypedSessionEngine : public SessionEngine {
 public:
  using Commands = CommandsT;
  using Events = EventsT;
  using Open = typename decltype(Commands::open)::value_type;

  void Push(Commands commands) { inbox_.Push(std::move(commands)); }

 protected:
  using Session = SessionT;

  TypedSessionEngine(Parts parts, typename EventOutbox<Events>::Send send)
      : SessionEngine(std::move(parts),
                      std::make_unique<EventOutbox<Events>>(std::move(send))),
        events_(static_cast<EventOutbox<Events>&>(*outbox_)),
        sessions_(&table_) {}

  void Wake() override { inbox_.Wake(); }
  void WaitForCommands(const StepOutcome& idle) override {
    inbox_.Wait(idle.deadline_ns, idle.waits_for_peer ? spin_ns_ : 0);
  }
  bool HasCommands() const override { return inbox_.HasItems(); }

  // What both workers ask of an Open is given. May move from `open`.
  virtual absl::StatusOr<std::unique_ptr<Session>> NewSession(Open& open) = 0;
  virtual void OnOpened(Session&, Open&) {}
  // What failures of a session opened so name (SessionFailure::epoch).
  virtual uint32_t FailureEpoch(const Open&) const { return 0; }
  // The sessions of the step being run.
  virtual absl::Span<Session* const> stepping() const = 0;
  // All but opening and closing.
  virtual void ApplyToSessions(Commands& commands) = 0;

  void TakeCommands() override {
    ApplyAll(&held_);
    inbox_.Take(&commands_);
    ApplyAll(&commands_);
  }

  // Shows `visit` what has arrived during a forward. It is applied after that.
  template <typename Visit>
  void LookAtCommands(const Visit& visit) {
    inbox_.Take(&commands_);
    for (Commands& commands : commands_) {
      visit(commands);
      held_.push_back(std::move(commands));
    }
    commands_.clear();
  }

  // nullptr, and counted, when there is no such session.
  Session* Find(StreamId stream, uint64_t session_id) {
    Session* const found = sessions_.Find({stream, session_id});
    if (found == nullptr) ++accounts_.counts().rejected_messages;
    return found;
  }

  void FailStep(const absl::Status& status) override {
    // UNAVAILABLE: a part of the worker is lost, and it ends. Its sessions wait
    // for another, as those of a worker that is lost whole.
    const absl::StatusCode code = absl::IsUnavailable(status)
                                      ? absl::StatusCode::kAborted
                                      : absl::StatusCode::kInternal;
    const absl::Status failure(
        code, absl::StrCat("the forward failed: ", status.message()));
    for (Session* session : stepping()) table_.Fail(*session, failure);
  }

  EventOutbox<Events>& events_;  // what is sent next, by stream
  const TypedSessions<Session> sessions_;

 private:
  void ApplyAll(std::vector<Commands>* all) {
    for (Commands& commands : *all) {
      Apply(commands);
      ++accounts_.counts().messages;
      // What one message closes makes room for what the next one opens.
      if (!in_step_) table_.RemoveClosed();
    }
    all->clear();
  }

  void Apply(Commands& commands) {
    const StreamId stream = commands.stream;
    accounts_.counts().rejected_messages += commands.malformed.size();
    if (commands.kept.has_value()) table_.Reap(stream, *commands.kept);
    for (Open& open : commands.open) ApplyOpen(stream, open);
    ApplyToSessions(commands);
    for (const uint64_t id : commands.close) {
      if (Session* const session = Find(stream, id)) {
        table_.CloseAsTold(*session);
      }
    }
    if (commands.stream_ended) table_.EndStream(stream);
  }

  void ApplyOpen(StreamId stream, Open& open) {
    const size_t num_tokens = open.token_ids.size();
    absl::StatusOr<std::unique_ptr<Session>> made = MakeSession(stream, open);
    if (!made.ok()) {
      LogSession("session refused", open.request_id, open.session_id,
                 made.status().code());
      outbox_->Common(stream).failures.push_back(
          {open.session_id, made.status(), FailureEpoch(open)});
      return;
    }
    Session& session = **made;
    session.stream = stream;
    session.id = open.session_id;
    session.request_id = std::move(open.request_id);
    session.failure_epoch = FailureEpoch(open);
    table_.Add(*std::move(made), num_tokens);
    OnOpened(session, open);
  }

  absl::StatusOr<std::unique_ptr<Session>> MakeSession(StreamId stream,
                                                       Open& open) {
    NACRE_RETURN_IF_ERROR(open.refusal);
    NACRE_RETURN_IF_ERROR(table_.CheckNew({stream, open.session_id}));
    NACRE_RETURN_IF_ERROR(CheckPrompt(open.prompt_length, open.token_ids,
                                      model_info().vocab_size));
    return NewSession(open);
  }

  EngineInbox<Commands> inbox_;
  std::vector<Commands> commands_;  // scratch of TakeCommands
  std::vector<Commands> held_;  // looked at; older than what is in the inbox
};

}  // namespace nacre::worker

#endif  // WORKER_ENGINE_TYPED_SESSION_ENGINE_H_
