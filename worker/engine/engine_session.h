// What the engines of both workers hold of a session; each adds its own part.
//
// Owned by an engine, used by its thread.

#ifndef WORKER_ENGINE_ENGINE_SESSION_H_
#define WORKER_ENGINE_ENGINE_SESSION_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/types/optional.h"
#include "model/language_model.h"
#include "wire/session_events.h"
#include "worker/engine/streams.h"

namespace nacre::worker {

struct EngineSession {
  EngineSession() = default;
  virtual ~EngineSession() = default;
  EngineSession(const EngineSession&) = delete;
  EngineSession& operator=(const EngineSession&) = delete;

  // Its tokens, as the spans of its waits tell them.
  virtual int num_tokens() const = 0;

  StreamId stream = 0;
  uint64_t id = 0;
  std::string request_id;
  uint32_t failure_epoch = 0;  // SessionFailure::epoch
  // What it has to go without from its opening on; empty: nothing.
  std::string opening_note;
  std::unique_ptr<model::Sequence> sequence;  // null: it needs no KV any more
  // It has not taken over yet all that there is (SessionAccounts::TakeOver): it
  // is fed nothing before that.
  bool takes_over = false;
  // Closed, perhaps while its step ran: it is removed after that.
  bool closing = false;

  // That has begun, with what was known of it then.
  absl::optional<wire::Span> wait;

  // Of the step being run: a row that its next tokens depend on had no sound
  // logits.
  bool unsound = false;
};

}  // namespace nacre::worker

#endif  // WORKER_ENGINE_ENGINE_SESSION_H_
