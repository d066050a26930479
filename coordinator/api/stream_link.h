// TargetLink and DraftLink over the worker's gRPC session stream. The only file
// of the coordinator that speaks TargetControl and DraftControl.
//
// Thread-safe, but for the calls that the dispatcher's lock orders. Owned by
// the worker's attachment and, while in service, by the dispatcher.

#ifndef COORDINATOR_API_STREAM_LINK_H_
#define COORDINATOR_API_STREAM_LINK_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/message_stream.h"
#include "common/rpc/security.h"
#include "coordinator/dispatch/collecting_links.h"
#include "proto/worker.grpc.pb.h"
#include "wire/session_codec.h"

namespace nacre::coordinator {

// What an attachment does with its worker's stream, whatever the worker's kind.
class WorkerStream {
 public:
  virtual ~WorkerStream() = default;

  // Measures the clock offset; the answer with the shortest round trip counts.
  virtual void Ping() = 0;
  // Ends the stream; on_lost follows.
  virtual void Cancel() = 0;
};

struct TargetSide {
  using Link = CollectingTargetLink;
  using Message = TargetMessage;
  using Events = wire::TargetEvents;
  using Service = v1::TargetWorker;
  using Stream = rpc::ClientMessageStream<v1::TargetControl, v1::TargetEvent>;
};
struct DraftSide {
  using Link = CollectingDraftLink;
  using Message = DraftMessage;
  using Events = wire::DraftEvents;
  using Service = v1::DraftWorker;
  using Stream = rpc::ClientMessageStream<v1::DraftControl, v1::DraftEvent>;
};

template <typename Side>
class StreamLink final : public Side::Link, public WorkerStream {
 public:
  using Events = typename Side::Events;
  // On gRPC threads, one at a time; on_lost is the last.
  struct Callbacks {
    // The worker has answered the first ping, as the one that was told this
    // number when it attached.
    std::function<void(uint64_t attachment)> on_ready;
    std::function<void(Events)> on_events;
    std::function<void(const absl::Status&)> on_lost;
  };

  // Dials the worker and opens its session stream, as the `coordinator` that
  // VocabularyRequest named.
  static std::shared_ptr<StreamLink> Connect(
      const std::string& address, const rpc::ChannelSecurity& security,
      Callbacks callbacks, uint64_t coordinator = 0);

  void Flush() override ABSL_LOCKS_EXCLUDED(mu_);
  int64_t clock_offset_ns() const override { return clock_offset_ns_; }
  int64_t round_trip_ns() const override { return round_trip_ns_; }

  void Ping() override ABSL_LOCKS_EXCLUDED(mu_);
  void Cancel() override { stream_->Cancel(); }

 private:
  using Message = typename Side::Message;

  StreamLink(Callbacks callbacks, uint64_t coordinator)
      : callbacks_(std::move(callbacks)), coordinator_(coordinator) {}
  void OnEvents(Events events);
  void OnPong(const wire::Pong& pong);
  void Queue(Message message) override ABSL_LOCKS_EXCLUDED(mu_);

  const Callbacks callbacks_;
  const uint64_t coordinator_;
  std::atomic<int64_t> clock_offset_ns_{0};
  std::atomic<int64_t> round_trip_ns_{0};  // smoothed
  // Used by the stream's reading callback only.
  int64_t best_round_trip_ns_ = 0;

  absl::Mutex mu_;
  std::deque<Message> outgoing_ ABSL_GUARDED_BY(mu_);
  bool sending_ ABSL_GUARDED_BY(mu_) = false;  // some thread is at it
  // Constant after Connect.
  std::unique_ptr<typename Side::Service::Stub> stub_;
  std::shared_ptr<typename Side::Stream> stream_;
};

extern template class StreamLink<TargetSide>;
extern template class StreamLink<DraftSide>;
using TargetStreamLink = StreamLink<TargetSide>;
using DraftStreamLink = StreamLink<DraftSide>;

}  // namespace nacre::coordinator

#endif  // COORDINATOR_API_STREAM_LINK_H_
