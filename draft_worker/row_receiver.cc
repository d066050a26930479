#include "draft_worker/row_receiver.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/types/span.h"
#include "draft_worker/engine_session.h"
#include "spdlog/spdlog.h"

namespace nacre::draft_worker {

namespace {

// What is not would be kept, and shared, as keys of the draft's own.
bool AreFinite(absl::Span<const float> values) {
  return std::all_of(values.begin(), values.end(),
                     [](float value) { return std::isfinite(value); });
}

}  // namespace

void SeenTarget::OnFed(int length, int count) {
  whole_length = std::min(whole_length, length);
  if (length > whole_length) return;
  // A position sees those below it.
  whole_length = std::min(length + count, rows->length() + 1);
}

int SeenTarget::MayFeed(int length) const {
  const int known = std::max(0, rows->length() + 1 - length);
  if (max_lag == model::RowReader::kAnyLag) {
    return waits ? known : std::numeric_limits<int>::max();
  }
  if (rows->empty()) return 0;
  // What comes after the rows builds on the draft's own.
  return known == 0 && !waits && length + 1 < horizon() ? 1 : known;
}

int SeenTarget::horizon() const {
  if (max_lag == model::RowReader::kAnyLag) {
    return std::numeric_limits<int>::max();
  }
  return rows->empty() ? 0 : rows->length() + max_lag + 1;
}

RowReceiver::RowReceiver(worker::TensorReader* tensors, model::Drafter* drafter,
                         TensorInbox::Push push)
    : tensors_(tensors),
      drafter_(drafter),
      inbox_(std::make_shared<TensorInbox>(std::move(push))) {}

void RowReceiver::Subscribe(Session& session, const OpenDraft& open) {
  model::RowReader* const reader = drafter_->row_reader();
  // A channel is one session's.
  if (reader == nullptr) return;
  const bool has_lag = reader->max_lag() != model::RowReader::kAnyLag;
  // Until there are some.
  if (has_lag) {
    session.schedule.SetHorizon(0);
  }
  if (tensors_ == nullptr || open.kv_channel == 0 ||
      open.hidden_address.empty() || by_channel_.contains(open.kv_channel)) {
    if (has_lag) session.schedule.SetHorizon(0, /*is_last=*/true);
    return;
  }
  auto rows = reader->NewTargetSequence(session.reserved_length);
  if (!rows.ok()) {
    if (!std::exchange(has_logged_room_, true)) {
      spdlog::warn("sessions draft without their target's rows: {}",
                   rows.status().ToString());
    }
    if (has_lag) session.schedule.SetHorizon(0, /*is_last=*/true);
    return;
  }
  SeenTarget& seen = session.seen.emplace();
  seen.channel = open.kv_channel;
  seen.max_lag = reader->max_lag();
  seen.rows = *std::move(rows);
  // Of the last committed token the target has no row.
  seen.opened_length = session.schedule.committed_length() - 1;
  seen.waits = seen.opened_length > 0;
  seen.most = session.reserved_length;
  // Features are given back once they are fed, and come as fast as that.
  seen.asked = std::min(seen.most, kAhead + (has_lag ? 0 : seen.opened_length));
  seen.heard_length = seen.opened_length;
  seen.whole_length = session.sequence->length();
  by_channel_[seen.channel] = &session;
  worker::TensorReader::Subscription subscription;
  subscription.address = open.hidden_address;
  subscription.channel = seen.channel;
  subscription.num_values = static_cast<size_t>(reader->shape().row_size());
  subscription.sink = inbox_->NewSink(session.schedule.epoch());
  subscription.rows = {
      .shape = reader->shape(),
      .target_fingerprint = drafter_->info().target_fingerprint,
      .end = seen.asked,
      .epoch = session.schedule.epoch(),
      .draft_fingerprint = reader->draft_fingerprint()};
  tensors_->Subscribe(std::move(subscription));
}

void RowReceiver::Unsubscribe(Session& session) {
  if (!session.seen.has_value()) return;
  const auto it = by_channel_.find(session.seen->channel);
  // Also one that was lost: what was lost may have been a session before it.
  if (it == by_channel_.end() || it->second == &session) {
    tensors_->Unsubscribe(session.seen->channel);
    by_channel_.erase(session.seen->channel);
  }
  session.seen.reset();
}

bool RowReceiver::OnArrived(const worker::ReceivedTensor& received) {
  const worker::TensorTag& tag = received.tensor.tag;
  if (!tag.is_rows) return false;
  const auto it = by_channel_.find(tag.channel);
  // Closed meanwhile, or of the target before this one.
  if (it == by_channel_.end() || tag.epoch != it->second->schedule.epoch()) {
    ++num_stale_;
    return true;
  }
  SeenTarget& seen = *it->second->seen;
  // Those before are lost, and the target sends as many after them.
  if (const int gap = tag.position - seen.rows->length();
      seen.num_early == 0 && gap > 0 && seen.rows->SkipTo(tag.position)) {
    seen.asked += gap;
    num_lost_ += static_cast<uint64_t>(gap);
  }
  const int known = seen.rows->length() + seen.num_early - tag.position;
  const int count =
      std::min(received.tensor.shape[0], seen.most - tag.position);
  // Rows that are there stay: those that come again are the same.
  if (known >= count) {
    ++num_stale_;
    return true;
  }
  const absl::Span<const float> values = received.tensor.values.host();
  if (known < 0 || tag.position + count > seen.asked || !AreFinite(values)) {
    // Features that the target had no more room for are lost, no error.
    if (known >= 0 || seen.max_lag == model::RowReader::kAnyLag) {
      ++num_malformed_;
    } else {
      num_lost_ += static_cast<uint64_t>(-known);
    }
    GiveUp(it->second, known < 0           ? "some are missing"
                       : AreFinite(values) ? "more came than was asked for"
                                           : "some are not finite");
    return true;
  }
  seen.heard_length = it->second->schedule.committed_length();
  const size_t row_size = static_cast<size_t>(received.tensor.shape[1]);
  const auto added =
      values.subspan(static_cast<size_t>(known) * row_size,
                     static_cast<size_t>(count - known) * row_size);
  seen.early.insert(seen.early.end(), added.begin(), added.end());
  seen.num_early += count - known;
  num_rows_ += static_cast<uint64_t>(count - known);
  ++num_used_;
  Settle(it->second);
  AskOn(*it->second, &seen);
  return true;
}

void RowReceiver::Settle(Session* session) {
  SeenTarget& seen = *session->seen;
  // A row of a position is of the text up to it.
  const int most =
      seen.max_lag == model::RowReader::kAnyLag
          ? seen.num_early
          : session->schedule.committed_length() - seen.rows->length();
  const int count = std::min(seen.num_early, most);
  if (count > 0) {
    const size_t size =
        static_cast<size_t>(count) *
        (seen.early.size() / static_cast<size_t>(seen.num_early));
    seen.rows->Append(absl::MakeConstSpan(seen.early).first(size));
    seen.early.erase(seen.early.begin(),
                     seen.early.begin() + static_cast<ptrdiff_t>(size));
    seen.num_early -= count;
  }
  if (seen.rows->length() >= seen.opened_length) seen.waits = false;
  if (seen.max_lag == model::RowReader::kAnyLag) return;
  session->schedule.SetHorizon(seen.horizon());
  session->touched = true;
}

void RowReceiver::GiveUp(Session* session, const char* why) {
  ++num_given_up_;
  spdlog::warn(
      "session {} drafts with the {} rows of its target that it has: {}",
      session->id, session->seen->rows->length(), why);
  EndRows(session);
  tensors_->Unsubscribe(session->seen->channel);
  by_channel_.erase(session->seen->channel);
}

void RowReceiver::EndRows(Session* session) {
  session->seen->waits = false;
  if (session->seen->max_lag == model::RowReader::kAnyLag) return;
  session->schedule.SetHorizon(session->seen->horizon(), /*is_last=*/true);
  session->touched = true;
}

void RowReceiver::AskOn(const Session& session, SeenTarget* seen) {
  const int length = seen->rows->length();
  const int used = seen->max_lag == model::RowReader::kAnyLag
                       ? length
                       : std::min(length, session.sequence->length());
  const int end = std::min(seen->most, used + kAhead);
  if (seen->asked >= end ||
      (used + kAhead / 2 < seen->asked && end < seen->most)) {
    return;
  }
  seen->asked = end;
  tensors_->WantRows(seen->channel, seen->asked);
}

void RowReceiver::OnStep(Session& session) {
  SeenTarget& seen = *session.seen;
  if (by_channel_.contains(seen.channel)) AskOn(session, &seen);
}

bool RowReceiver::OnLost(const LostChannel& lost) {
  const auto it = by_channel_.find(lost.channel);
  if (it == by_channel_.end()) return false;
  // Of the target before this one.
  if (lost.epoch != it->second->schedule.epoch()) return true;
  // It goes on with the rows that it has.
  EndRows(it->second);
  by_channel_.erase(it);
  return true;
}

void RowReceiver::OnCommit(Session& session) {
  SeenTarget& seen = *session.seen;
  // Of the last committed token the target has no row. Nor may it have features
  // of the text that the session was opened with: until some have come, none of
  // these is late.
  const bool counts_all =
      seen.max_lag == model::RowReader::kAnyLag || !seen.rows->empty();
  const int known = std::max(seen.rows->length() + seen.num_early,
                             counts_all ? 0 : seen.opened_length);
  ++num_commits_;
  num_missing_ += static_cast<uint64_t>(
      std::max(0, session.schedule.committed_length() - 1 - known));
  Settle(&session);
  // Such as a target that does not know of rows.
  if (seen.waits &&
      session.schedule.committed_length() > seen.heard_length + kPatience) {
    GiveUp(&session, "they do not come");
  }
}

worker::TensorUse RowReceiver::use() const {
  worker::TensorUse use;
  use.used = num_used_;
  use.stale = num_stale_;
  use.rows = num_rows_;
  use.row_commits = num_commits_;
  use.missing_rows = num_missing_;
  use.malformed_rows = num_malformed_;
  use.lost_rows = num_lost_;
  use.given_up = num_given_up_;
  return use;
}

}  // namespace nacre::draft_worker
