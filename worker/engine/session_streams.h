// A worker's open Session streams: numbers them, hands their messages to the
// engine, finds them again to send, answers pings. The part of a worker's gRPC
// service that does not depend on its messages' types.
//
// A stream belongs to the coordinator that its first ping names.
//
// Thread-safe. gRPC threads only decode and enqueue.

#ifndef WORKER_ENGINE_SESSION_STREAMS_H_
#define WORKER_ENGINE_SESSION_STREAMS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/message_stream.h"
#include "wire/kv_report.h"
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
    // What a coordinator says of its share of the KV. May be empty.
    std::function<void(uint64_t coordinator, const wire::KvReport&)> on_report =
        {};
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
      OnMessage(id, wire::Decode(control));
    };
    callbacks.on_done = [this, id] {
      {
        absl::MutexLock lock(&mu_);
        streams_.erase(id);
      }
      callbacks_.on_end(id);
    };
    std::shared_ptr<Stream> stream = Stream::Create(std::move(callbacks));
    streams_[id].stream = stream;
    return stream.get();
  }

  // Goes into every answer to a ping of that coordinator.
  void SetAttachment(uint64_t coordinator, uint64_t attachment)
      ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    coordinators_[coordinator].attachment = attachment;
  }
  // How many KeptSessions of the coordinator have been handed on, ever; 0
  // without an attachment.
  uint64_t kept_lists(uint64_t coordinator) const ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    const auto it = coordinators_.find(coordinator);
    return it == coordinators_.end() ? 0 : it->second.kept_lists;
  }

  // A stream that has ended loses its events.
  void Send(StreamId id, const Events& events) ABSL_LOCKS_EXCLUDED(mu_) {
    if (const std::shared_ptr<Stream> stream = Find(id)) {
      stream->Send(wire::Encode(events));
    }
  }

  // Ends the coordinator's streams for the engine, now. A connection whose
  // other end is gone ends only when TCP or a ping has found out; on_end comes
  // again then.
  void Abandon(uint64_t coordinator) ABSL_LOCKS_EXCLUDED(mu_) {
    std::vector<std::pair<StreamId, std::shared_ptr<Stream>>> streams;
    {
      absl::MutexLock lock(&mu_);
      for (const auto& [id, open] : streams_) {
        if (open.coordinator == coordinator) {
          streams.emplace_back(id, open.stream);
        }
      }
      for (const auto& [id, stream] : streams) streams_.erase(id);
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
      for (const auto& [id, open] : streams_) streams.push_back(open.stream);
    }
    for (const auto& stream : streams) stream->Finish(status);
  }

 private:
  struct OpenStream {
    std::shared_ptr<Stream> stream;
    uint64_t coordinator = 0;  // 0: it has not pinged yet
  };
  struct Coordinator {
    uint64_t attachment = 0;
    uint64_t kept_lists = 0;
  };

  void OnMessage(StreamId id, Commands commands) {
    LogMalformed(commands.malformed);
    if (commands.ping_ns.has_value()) {
      AnswerPing(id, *commands.ping_ns, commands.coordinator);
    }
    const bool keeps = commands.kept.has_value();
    const auto report = commands.kv_report;
    callbacks_.on_message(id, std::move(commands));
    if (!keeps && !report.has_value()) return;
    uint64_t coordinator = 0;
    {
      absl::MutexLock lock(&mu_);
      const auto it = streams_.find(id);
      if (it == streams_.end()) return;
      coordinator = it->second.coordinator;
      const auto known = coordinators_.find(coordinator);
      if (keeps && known != coordinators_.end()) ++known->second.kept_lists;
    }
    if (report.has_value() && callbacks_.on_report) {
      callbacks_.on_report(coordinator, *report);
    }
  }

  // Copies the pointer: its stream may end while the caller uses it.
  std::shared_ptr<Stream> Find(StreamId id) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    const auto it = streams_.find(id);
    return it == streams_.end() ? nullptr : it->second.stream;
  }

  void AnswerPing(StreamId id, uint64_t coordinator_ns, uint64_t coordinator)
      ABSL_LOCKS_EXCLUDED(mu_) {
    Events events;
    {
      absl::MutexLock lock(&mu_);
      const auto it = streams_.find(id);
      if (it == streams_.end()) return;
      uint64_t& of_stream = it->second.coordinator;
      if (of_stream == 0) of_stream = coordinator;
      const auto known = coordinators_.find(of_stream);
      events.common.pong = {
          coordinator_ns, MonotonicNowNs(),
          known == coordinators_.end() ? 0 : known->second.attachment};
    }
    Send(id, events);
  }

  const Callbacks callbacks_;
  mutable absl::Mutex mu_;
  StreamId next_id_ ABSL_GUARDED_BY(mu_) = 1;
  absl::flat_hash_map<StreamId, OpenStream> streams_ ABSL_GUARDED_BY(mu_);
  // By the number that names it, those that SetAttachment named, also if they
  // are gone.
  absl::flat_hash_map<uint64_t, Coordinator> coordinators_ ABSL_GUARDED_BY(mu_);
};

}  // namespace nacre::worker

#endif  // WORKER_ENGINE_SESSION_STREAMS_H_
