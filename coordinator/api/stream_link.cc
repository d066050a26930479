#include "coordinator/api/stream_link.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>
#include <utility>

#include "common/rpc/channel.h"
#include "coordinator/dispatch/clock.h"

namespace nacre::coordinator {

template <typename Side>
std::shared_ptr<StreamLink<Side>> StreamLink<Side>::Connect(
    const std::string& address, const rpc::ChannelSecurity& security,
    Callbacks callbacks, uint64_t coordinator) {
  std::shared_ptr<StreamLink> link(
      new StreamLink(std::move(callbacks), coordinator));
  // The stream's callbacks keep the link alive; the stream lets go of them
  // after on_done.
  link->stream_ = Side::Stream::Create(
      {[link](const auto& event) { link->OnEvents(wire::Decode(event)); },
       [link](const absl::Status& status) {
         link->callbacks_.on_lost(status);
       }});
  link->stub_ = Side::Service::NewStub(rpc::CreateChannel(address, security));
  link->stub_->async()->Session(link->stream_->context(), link->stream_.get());
  link->stream_->Start();
  link->Ping();
  return link;
}

template <typename Side>
void StreamLink<Side>::OnEvents(Events events) {
  for (const wire::Malformed& part : events.common.malformed) {
    spdlog::debug("session {}: message malformed: {}", part.session_id,
                  std::string(part.status.message()));
  }
  if (events.common.pong.has_value()) OnPong(*events.common.pong);
  callbacks_.on_events(std::move(events));
}

template <typename Side>
void StreamLink<Side>::OnPong(const wire::Pong& pong) {
  const int64_t now_ns = MonotonicNs();
  // No answer to a ping of ours.
  if (pong.coordinator_ns > static_cast<uint64_t>(now_ns)) return;
  const int64_t sent_ns = static_cast<int64_t>(pong.coordinator_ns);
  const int64_t round_trip_ns = std::max<int64_t>(1, now_ns - sent_ns);
  const bool first = best_round_trip_ns_ == 0;
  if (first || round_trip_ns <= best_round_trip_ns_) {
    best_round_trip_ns_ = round_trip_ns;
    clock_offset_ns_ = pong.worker_ns - (sent_ns + round_trip_ns / 2);
  }
  // The first one pays for the connection.
  const int64_t smoothed = round_trip_ns_;
  if (!first) {
    round_trip_ns_ = smoothed == 0 ? round_trip_ns
                                   : smoothed + (round_trip_ns - smoothed) / 8;
  }
  if (first) callbacks_.on_ready(pong.attachment);
}

template <typename Side>
void StreamLink<Side>::Ping() {
  // A message of its own: the dispatcher may be at the next one.
  Message message;
  message.commands.ping_ns = static_cast<uint64_t>(MonotonicNs());
  message.commands.coordinator = coordinator_;
  Queue(std::move(message));
  Flush();
}

template <typename Side>
void StreamLink<Side>::Queue(Message message) {
  absl::MutexLock lock(&mu_);
  outgoing_.push_back(std::move(message));
}

template <typename Side>
void StreamLink<Side>::Flush() {
  absl::MutexLock lock(&mu_);
  // One thread sends at a time, so messages keep their order; without the lock,
  // since it builds them and usually writes to the connection itself.
  if (std::exchange(sending_, true)) return;
  while (!outgoing_.empty()) {
    Message message = std::move(outgoing_.front());
    outgoing_.pop_front();
    mu_.Unlock();
    stream_->Send(wire::Encode(std::move(message).Take()));
    mu_.Lock();
  }
  sending_ = false;
}

template class StreamLink<TargetSide>;
template class StreamLink<DraftSide>;

}  // namespace nacre::coordinator
