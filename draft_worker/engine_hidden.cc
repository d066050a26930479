// How the draft engine gets the target's hidden states to the length policies
// that read them.

#include <utility>

#include "draft_worker/draft_engine.h"
#include "draft_worker/engine_session.h"
#include "draft_worker/hidden_sink.h"

namespace nacre::draft_worker {

bool DraftEngine::CanReadHidden(const OpenDraft& open) const {
  // A channel is one session's.
  return options_.tensors != nullptr && open.hidden_channel != 0 &&
         !open.hidden_address.empty() &&
         !by_hidden_channel_.contains(open.hidden_channel);
}

void DraftEngine::SubscribeHidden(Session& session, OpenDraft& open) {
  if (!session.length.has_value() || !CanReadHidden(open)) return;
  const int size = session.length->target_hidden_size();
  if (size == 0) return;
  session.hidden.emplace(open.hidden_channel, open.epoch,
                         session.schedule.committed_length(), now_ns_());
  by_hidden_channel_[open.hidden_channel] = &session;
  options_.tensors->Subscribe({std::move(open.hidden_address),
                               open.hidden_channel, static_cast<size_t>(size),
                               hidden_sink_});
}

void DraftEngine::UnsubscribeHidden(Session& session) {
  if (!session.hidden.has_value()) return;
  by_hidden_channel_.erase(session.hidden->channel());
  options_.tensors->Unsubscribe(session.hidden->channel());
  session.hidden.reset();
}

void DraftEngine::OnHidden(worker::ReceivedTensor received) {
  const auto it = by_hidden_channel_.find(received.tensor.tag.channel);
  if (it == by_hidden_channel_.end()) {  // closed meanwhile
    ++accounts_.counts().rejected_messages;
    return;
  }
  Session& session = *it->second;
  const int64_t num_stale = session.hidden->num_stale();
  if (session.hidden->OnArrived(std::move(received)) ==
      HiddenStates::Outcome::kCurrent) {
    GiveHidden(session);
  }
  accounts_.counts().rejected_messages +=
      static_cast<uint64_t>(session.hidden->num_stale() - num_stale);
}

void DraftEngine::OnHiddenLost(uint64_t channel) {
  const auto it = by_hidden_channel_.find(channel);
  if (it == by_hidden_channel_.end()) return;
  Session& session = *it->second;
  by_hidden_channel_.erase(it);
  session.hidden.reset();
  session.length->OnTargetHidden({});
  events_.For(session.stream)
      .policy_notes.push_back(
          {session.id,
           "no model score: the target's hidden states stopped coming"});
}

void DraftEngine::RenewHidden(Session& session) {
  const int64_t num_stale = session.hidden->num_stale();
  if (session.hidden->OnCommit(session.schedule.committed_length(),
                               now_ns_())) {
    GiveHidden(session);
  } else {
    session.length->OnTargetHidden({});
  }
  accounts_.counts().rejected_messages +=
      static_cast<uint64_t>(session.hidden->num_stale() - num_stale);
}

void DraftEngine::GiveHidden(Session& session) {
  const HiddenStates::State& state = session.hidden->current();
  session.length->OnTargetHidden(state.tensor.values.OnHost(&hidden_copy_));
  wire::Span span;
  span.kind = wire::Span::Kind::kHidden;
  span.start_ns = state.start_ns;
  span.duration_ns = state.duration_ns;
  span.length = session.schedule.committed_length();
  span.bytes = static_cast<int64_t>(state.tensor.num_bytes());
  accounts_.AddSpan(session, span);
}

}  // namespace nacre::draft_worker
