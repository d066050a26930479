#include "draft_worker/hidden_reader.h"

#include <cstddef>
#include <utility>

#include "draft_worker/engine_session.h"

namespace nacre::draft_worker {

HiddenReader::HiddenReader(Parts parts, TensorInbox::Push push)
    : parts_(std::move(parts)),
      inbox_(std::make_shared<TensorInbox>(std::move(push))) {}

bool HiddenReader::CanRead(const OpenDraft& open) const {
  // A channel is one session's.
  return parts_.tensors != nullptr && open.hidden_channel != 0 &&
         !open.hidden_address.empty() &&
         !by_channel_.contains(open.hidden_channel);
}

void HiddenReader::Subscribe(Session& session, OpenDraft& open) {
  if (!session.length.has_value() || !CanRead(open)) return;
  const int size = session.length->target_hidden_size();
  if (size == 0) return;
  session.hidden.emplace(open.hidden_channel, open.epoch,
                         session.schedule.committed_length(), parts_.now_ns());
  by_channel_[open.hidden_channel] = &session;
  parts_.tensors->Subscribe({std::move(open.hidden_address),
                             open.hidden_channel, static_cast<size_t>(size),
                             inbox_->NewSink(open.epoch)});
}

void HiddenReader::Unsubscribe(Session& session) {
  if (!session.hidden.has_value()) return;
  by_channel_.erase(session.hidden->channel());
  parts_.tensors->Unsubscribe(session.hidden->channel());
  session.hidden.reset();
}

void HiddenReader::OnArrived(worker::ReceivedTensor received) {
  const auto it = by_channel_.find(received.tensor.tag.channel);
  if (it == by_channel_.end()) {  // closed meanwhile
    CountStale(1);
    return;
  }
  Session& session = *it->second;
  const int64_t num_stale = session.hidden->num_stale();
  if (session.hidden->OnArrived(std::move(received)) ==
      HiddenStates::Outcome::kCurrent) {
    Give(session);
  }
  CountStale(session.hidden->num_stale() - num_stale);
}

void HiddenReader::OnLost(const LostChannel& lost) {
  const auto it = by_channel_.find(lost.channel);
  if (it == by_channel_.end()) return;
  Session& session = *it->second;
  // Of the target before this one.
  if (lost.epoch != session.schedule.epoch()) return;
  by_channel_.erase(it);
  session.hidden.reset();
  session.length->OnTargetHidden({});
  parts_.events->For(session.stream)
      .policy_notes.push_back(
          {session.id,
           "no model score: the target's hidden states stopped coming"});
}

void HiddenReader::Renew(Session& session) {
  const int64_t num_stale = session.hidden->num_stale();
  if (session.hidden->OnCommit(session.schedule.committed_length(),
                               parts_.now_ns())) {
    Give(session);
  } else {
    session.length->OnTargetHidden({});
  }
  CountStale(session.hidden->num_stale() - num_stale);
}

void HiddenReader::CountStale(int64_t states) {
  parts_.accounts->counts().rejected_messages += static_cast<uint64_t>(states);
  stale_ += static_cast<uint64_t>(states);
}

void HiddenReader::Give(Session& session) {
  const HiddenStates::State& state = session.hidden->current();
  session.length->OnTargetHidden(state.tensor.values.OnHost(&copy_));
  ++used_;
  lag_ns_ += state.duration_ns;
  wire::Span span;
  span.kind = wire::Span::Kind::kHidden;
  span.start_ns = state.start_ns;
  span.duration_ns = state.duration_ns;
  span.length = session.schedule.committed_length();
  span.bytes = static_cast<int64_t>(state.tensor.num_bytes());
  parts_.accounts->AddSpan(session, span);
}

}  // namespace nacre::draft_worker
