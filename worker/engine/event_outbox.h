// Collects a step's events by stream, so that each stream gets one message.
//
// Owned by an engine, used by its thread.

#ifndef WORKER_ENGINE_EVENT_OUTBOX_H_
#define WORKER_ENGINE_EVENT_OUTBOX_H_

#include <functional>
#include <utility>
#include <vector>

#include "wire/session_events.h"
#include "worker/engine/streams.h"

namespace nacre::worker {

// What writes events to the sockets (30-100 us each): the engine's thread where
// it would wait otherwise, since waking another one takes as long. It is
// another where a forward is about to begin.
enum class Delivery { kHere, kElsewhere };

// What both workers tell of their sessions, for those parts of an engine that
// do not know the rest of its messages.
class SessionOutbox {
 public:
  virtual ~SessionOutbox() = default;

  // What is told to the stream's coordinator next. Valid until another call.
  virtual wire::SessionEvents& Common(StreamId stream) = 0;
  virtual void Flush() = 0;
};

// `Events` has `common`, and empty().
template <typename Events>
class EventOutbox final : public SessionOutbox {
 public:
  // Called on the engine's thread: must not block.
  using Send = std::function<void(StreamId, Events)>;

  explicit EventOutbox(Send send) : send_(std::move(send)) {}

  Events& For(StreamId stream) {
    for (auto& [id, events] : pending_) {
      if (id == stream) return events;
    }
    return pending_.emplace_back(stream, Events()).second;
  }
  wire::SessionEvents& Common(StreamId stream) override {
    return For(stream).common;
  }

  void Flush() override {
    for (auto& [id, events] : pending_) {
      if (!events.empty()) send_(id, std::move(events));
    }
    pending_.clear();
  }

 private:
  Send send_;
  std::vector<std::pair<StreamId, Events>> pending_;  // few streams
};

}  // namespace nacre::worker

#endif  // WORKER_ENGINE_EVENT_OUTBOX_H_
