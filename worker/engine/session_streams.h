// A worker's open Session streams: numbers them, hands their messages to the
// engine, finds them again to send, answers pings. The part of a worker's gRPC
// service that does not depend on its messages' types.
//
// Thread-safe. gRPC threads only decode and enqueue.

#ifndef WORKER_ENGINE_SESSION_STREAMS_H_
#define WORKER_ENGINE_SESSION_STREAMS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/message_stream.h"
#include "wire/session_codec.h"
#include "worker/engine/clock.h"
#include "worker/engine/session_log.h"
#include "worker/engine/streams.h"

namespace nacre::worker {

// `Control` and `Event` are DraftControl and DraftEvent, or TargetControl and
// TargetEvent; `Commands` and `Events` are what they carry.
template <typename Control, typename Event>
class SessionStreams {
  using Commands = decltype(wire::Decode(Control()));
  using Events = decltype(wire::Decode(Event()));

 public:
  using Stream = rpc::ServerMessageStream<Control, Event>;
  struct Callbacks {
    std::function<void(StreamId, Commands)> on_message;
    std::function<void(StreamId)> on_end;
  };

  explicit SessionStreams(Callbacks callbacks)
      : callbacks_(std::move(callbacks)) {}

  // A new call: what the service method returns. gRPC ends the server's calls
  // before the service goes away, so `this` outlives the stream's callbacks.
  Stream* Open() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    const StreamId id = next_id_++;
    typename Stream::Callbacks callbacks;
    callbacks.on_message = [this, id](const Control& control) {
      if (Find(id) == nullptr) return;  // abandoned
      Commands commands = wire::Decode(control);
      LogMalformed(commands.malformed);
      if (commands.ping_ns.has_value()) AnswerPing(id, *commands.ping_ns);
      callbacks_.on_message(id, std::move(commands));
    };
    callbacks.on_done = [this, id] {
      {
        absl::MutexLock lock(&mu_);
        streams_.erase(id);
      }
      callbacks_.on_end(id);
    };
    std::shared_ptr<Stream> stream = Stream::Create(std::move(callbacks));
    streams_.emplace(id, stream);
    return stream.get();
  }

  // Goes into every answer to a ping.
  void SetAttachment(uint64_t attachment) { attachment_ = attachment; }

  // A stream that has ended loses its events.
  void Send(StreamId id, const Events& events) ABSL_LOCKS_EXCLUDED(mu_) {
    if (const std::shared_ptr<Stream> stream = Find(id)) {
      stream->Send(wire::Encode(events));
    }
  }

  // Ends every stream for the engine, now. A connection whose other end is gone
  // ends only when TCP or a ping has found out; on_end comes again then.
  void Abandon() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::flat_hash_map<StreamId, std::shared_ptr<Stream>> streams;
    {
      absl::MutexLock lock(&mu_);
      streams.swap(streams_);
    }
    for (const auto& [id, stream] : streams) {
      callbacks_.on_end(id);
      stream->Finish(grpc::Status(grpc::StatusCode::UNAVAILABLE,
                                  "the worker is not attached any more"));
    }
  }

  // Ends every stream once what was sent is written.
  void FinishAll(const grpc::Status& status) ABSL_LOCKS_EXCLUDED(mu_) {
    std::vector<std::shared_ptr<Stream>> streams;
    {
      absl::MutexLock lock(&mu_);
      for (const auto& [id, stream] : streams_) streams.push_back(stream);
    }
    for (const auto& stream : streams) stream->Finish(status);
  }

 private:
  // Copies the pointer: its stream may end while the caller uses it.
  std::shared_ptr<Stream> Find(StreamId id) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    const auto it = streams_.find(id);
    return it == streams_.end() ? nullptr : it->second;
  }

  void AnswerPing(StreamId id, uint64_t coordinator_ns) {
    Events events;
    events.common.pong = {coordinator_ns, MonotonicNowNs(), attachment_};
    Send(id, events);
  }

  const Callbacks callbacks_;
  std::atomic<uint64_t> attachment_{0};
  absl::Mutex mu_;
  StreamId next_id_ ABSL_GUARDED_BY(mu_) = 1;
  absl::flat_hash_map<StreamId, std::shared_ptr<Stream>> streams_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace nacre::worker

#endif  // WORKER_ENGINE_SESSION_STREAMS_H_
