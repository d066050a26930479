// Collects a step's events by stream, so that each stream gets one message.
//
// Owned by an engine, used by its thread.

#ifndef WORKER_ENGINE_EVENT_OUTBOX_H_
#define WORKER_ENGINE_EVENT_OUTBOX_H_

#include <functional>
#include <utility>
#include <vector>

#include "worker/engine/streams.h"

namespace nacre::worker {

// Who writes events to the sockets (30-100 us each): the engine's thread where
// it would wait otherwise, since waking another one takes as long; another
// where a forward is about to begin.
enum class Delivery { kHere, kElsewhere };

// `Events` has empty().
template <typename Events>
class EventOutbox {
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

  void Flush() {
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
