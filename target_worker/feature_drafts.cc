#include "target_worker/feature_drafts.h"

#include <algorithm>
#include <utility>

#include "spdlog/spdlog.h"
#include "target_worker/engine_session.h"

namespace nacre::target_worker {

using model::FeatureRows;
using model::kNoSlot;
using speculation::GrownDraft;

namespace {

bool ReadsKv(const model::FeatureDrafter* drafter) {
  return drafter != nullptr && !drafter->taps().empty() &&
         drafter->taps().front().kind == model::FeatureTap::Kind::kKv;
}

}  // namespace

void FeatureDraft::Restart(int position) {
  sequence->Clear();
  first_position = position;
  num_pending = 0;
  // Its room, too: that of a chunk of a prompt is more than steps need.
  std::vector<float>().swap(pending);
}

void FeatureDraft::KeepLast() {
  const size_t size = pending.size() / static_cast<size_t>(num_pending);
  std::vector<float> last(pending.end() - static_cast<ptrdiff_t>(size),
                          pending.end());
  Restart(next_position() - 1);
  pending = std::move(last);
  num_pending = 1;
}

bool FeatureDraft::IsReady() const {
  return num_pending <= FeatureDrafts::kMostPending;
}

void FeatureDraft::Shrink(size_t most) {
  if (pending.capacity() <= most) return;
  std::vector<float>(pending).swap(pending);
}

FeatureDrafts::FeatureDrafts(Parts parts)
    : parts_(std::move(parts)),
      reads_kv_(ReadsKv(parts_.drafter)),
      turns_(parts_.now_ns) {
  if (parts_.drafter == nullptr) return;
  const int depth = std::min(kMaxDepth, parts_.drafter->max_depth());
  for (speculation::HeadCalibrations& each : calibrations_) {
    each.resize(static_cast<size_t>(depth));
  }
}

void FeatureDrafts::Open(EngineSession& session, const OpenTarget& open) {
  // The request allows drafts of the target's own with its suffixes.
  if (parts_.drafter == nullptr || !open.suffixes.has_value() ||
      open.verification != speculation::Verification::kExact) {
    return;
  }
  auto sequence = parts_.drafter->NewSequence(
      open.prompt_length + open.max_tokens, kRows * kMaxDepth);
  // Without room it drafts nothing of this kind.
  if (!sequence.ok()) return LogOnce(sequence.status());
  session.ahead.features = std::make_unique<FeatureDraft>(
      &calibrations_[speculation::TemperatureKind(open.sampling.temperature)]);
  session.ahead.features->sequence = *std::move(sequence);
  // The session has the tokens, `open` no longer.
  session.ahead.features->given_length = session.schedule.committed_length();
}

void FeatureDrafts::Look(const Step& step, double row_price, int64_t step_ns) {
  if (parts_.drafter == nullptr || step_ns <= 0) return;
  size_t row = 0;
  for (size_t i = 0; i < step.sessions.size(); ++i) {
    EngineSession& session = *step.sessions[i];
    if (session.ahead.features != nullptr && !session.closing &&
        !session.unsound && !session.schedule.finished()) {
      if (reads_kv_) {
        CountPending(session);
      } else {
        Take(session, row);
      }
    }
    row += step.batch[i].token_ids.size();
  }
  FeedPending(step, static_cast<double>(step.sessions.size()) /
                        static_cast<double>(step_ns));
  turns_.Run(step, row_price, step_ns, [this](auto sessions, double ns_price) {
    Grow(sessions, ns_price);
  });
}

void FeatureDrafts::Close(EngineSession& session) {
  if (session.ahead.features != nullptr) turns_.Close(session);
}

void FeatureDrafts::Take(EngineSession& session, size_t row) {
  FeatureDraft& draft = *session.ahead.features;
  const size_t taps = parts_.drafter->taps().size();
  const size_t width = static_cast<size_t>(parts_.model->info().hidden_size);
  const auto take = [&](int position, size_t at) {
    if (position != draft.next_position()) draft.Restart(position);
    for (size_t tap = 0; tap < taps; ++tap) {
      const auto values = parts_.model->features(static_cast<int>(tap))
                              .subspan(at * width, width);
      draft.pending.insert(draft.pending.end(), values.begin(), values.end());
    }
    ++draft.num_pending;
  };
  FindTextRows(session, static_cast<int>(row), &text_rows_);
  for (const TextRow& text : text_rows_) {
    take(text.position, static_cast<size_t>(text.row));
  }
}

void FeatureDrafts::CountPending(EngineSession& session) {
  FeatureDraft& draft = *session.ahead.features;
  // The row after what the target has is the last that sees all before it.
  const int end = std::min(session.sequence->length() + 1,
                           session.schedule.committed_length());
  draft.num_pending = end - draft.fed_position();
}

bool FeatureDrafts::IsGiven(const EngineSession& session) const {
  const FeatureDraft& draft = *session.ahead.features;
  return reads_kv_ ? draft.fed_position() + 1 < draft.given_length
                   : session.prefill_rows > 0;
}

int FeatureDrafts::LeftByFeed(const EngineSession& session) const {
  return reads_kv_
             ? std::max(1, session.ahead.features->num_pending - kMostGiven)
             : 1;
}

void FeatureDrafts::AddTarget(const EngineSession& session,
                              FeatureRows* rows) const {
  if (!reads_kv_) return;
  rows->target = {parts_.model->KvTable(*session.sequence),
                  session.sequence->length()};
  rows->first_position = session.ahead.features->first_position;
}

FeatureRows FeatureDrafts::PendingRows(const EngineSession& session,
                                       int left) const {
  const FeatureDraft& draft = *session.ahead.features;
  const size_t count = static_cast<size_t>(draft.num_pending - left);
  // Beside the features of each position stands the token after it.
  const int next = draft.fed_position() + (reads_kv_ ? 0 : 1);
  FeatureRows rows;
  AddTarget(session, &rows);
  rows.sequence = draft.sequence.get();
  rows.token_ids = absl::MakeConstSpan(session.schedule.committed())
                       .subspan(static_cast<size_t>(next), count);
  rows.features =
      absl::MakeConstSpan(draft.pending)
          .first(count * static_cast<size_t>(parts_.drafter->feature_size()));
  return rows;
}

void FeatureDrafts::DropPending(EngineSession& session, int left) {
  FeatureDraft& draft = *session.ahead.features;
  const size_t count = static_cast<size_t>(draft.num_pending - left) *
                       static_cast<size_t>(parts_.drafter->feature_size());
  draft.pending.erase(draft.pending.begin(),
                      draft.pending.begin() + static_cast<ptrdiff_t>(count));
  draft.num_pending = left;
  draft.Shrink(static_cast<size_t>(kMostPending) *
               static_cast<size_t>(parts_.drafter->feature_size()));
}

void FeatureDrafts::FeedPending(const Step& step, double ns_price) {
  sessions_.clear();
  for (EngineSession* session : step.sessions) {
    // One that has ended has no keys any more, and looks at nothing.
    if (session->ahead.features == nullptr || session->schedule.finished() ||
        session->ahead.features->num_pending < 2) {
      continue;
    }
    FeatureDraft& draft = *session->ahead.features;
    if (IsGiven(*session)) {
      sessions_.push_back(session);
    } else if (draft.num_pending >= kMostPending) {
      const double price =
          feed_times_.empty() ? 0 : feed_times_.At(kMostPending) * ns_price;
      if (session->own_account.budget() < price) {
        // It forgets what it cannot pay to know.
        draft.KeepLast();
        continue;
      }
      session->own_account.Spend(price);
      sessions_.push_back(session);
    }
  }
  auto rest = absl::MakeConstSpan(sessions_);
  while (!rest.empty()) {
    const size_t count = NumFedTogether(rest);
    Feed(rest.first(count));
    rest.remove_prefix(count);
  }
}

size_t FeatureDrafts::NumFedTogether(
    absl::Span<EngineSession* const> sessions) const {
  size_t count = 0;
  int rows = 0;
  for (const EngineSession* session : sessions) {
    rows += session->ahead.features->num_pending - LeftByFeed(*session);
    if (count == LookTurns::kMaxSessions) break;
    if (count > 0 && rows > speculation::StepTimeCurve::kMaxRows) break;
    ++count;
  }
  return count;
}

void FeatureDrafts::Feed(absl::Span<EngineSession* const> sessions) {
  batch_.clear();
  int rows = 0;
  for (const EngineSession* session : sessions) {
    batch_.push_back(PendingRows(*session, LeftByFeed(*session)));
    rows += static_cast<int>(batch_.back().token_ids.size());
  }
  const int64_t begin_ns = parts_.now_ns();
  const absl::Status status = parts_.drafter->Forward(batch_).status();
  if (absl::IsResourceExhausted(status)) {
    // No sequence has changed: they go on with what comes.
    LogOnce(status);
    for (EngineSession* session : sessions) session->ahead.features->KeepLast();
    return;
  }
  if (!status.ok()) return GiveUp(sessions, status);
  feed_times_.Add(rows, parts_.now_ns() - begin_ns);
  for (EngineSession* session : sessions) {
    DropPending(*session, LeftByFeed(*session));
  }
}

void FeatureDrafts::LogOnce(const absl::Status& status) {
  if (std::exchange(has_logged_, true)) return;
  spdlog::warn("the draft of features sees less than it could: {}",
               status.ToString());
}

void FeatureDrafts::GiveUp(absl::Span<EngineSession* const> sessions,
                           const absl::Status& status) {
  LogOnce(status);
  for (EngineSession* session : sessions) session->ahead.features.reset();
}

void FeatureDrafts::Grow(absl::Span<EngineSession* const> sessions,
                         double ns_price) {
  if (!GrowRoots(sessions)) return;
  for (int level = 1; level < kMaxDepth; ++level) {
    if (!GrowLevel(sessions, ns_price)) return;
  }
}

speculation::SuffixLimits FeatureDrafts::LimitsOf(
    const EngineSession& session) {
  speculation::SuffixLimits limits = session.schedule.suffix_limits();
  // Most of a level would be drafted in vain.
  limits.is_chain = limits.is_chain || session.sequence->num_slots() < kRows;
  return limits;
}

bool FeatureDrafts::GrowRoots(absl::Span<EngineSession* const> sessions) {
  batch_.clear();
  for (EngineSession* session : sessions) {
    batch_.push_back(PendingRows(*session, 0));
    batch_.back().num_logits = 1;
  }
  const auto logits = parts_.drafter->Forward(batch_);
  if (!logits.ok()) {
    GiveUp(sessions, logits.status());
    return false;
  }
  const size_t vocab = logits->size() / sessions.size();
  for (size_t i = 0; i < sessions.size(); ++i) {
    EngineSession& session = *sessions[i];
    DropPending(session, 0);
    session.ahead.features->tree.Begin(session.schedule.committed(),
                                       LimitsOf(session));
    session.ahead.features->slots.clear();
    Expand(session, GrownDraft::kRoot, logits->subspan(i * vocab, vocab));
  }
  return true;
}

void FeatureDrafts::AddNodes(EngineSession& session,
                             absl::Span<const int> next) {
  FeatureDraft& draft = *session.ahead.features;
  std::vector<model::TreeNode>& nodes = nodes_.emplace_back();
  std::vector<int32_t>& token_ids = token_ids_.emplace_back();
  for (const int index : next) {
    const speculation::SuffixNode& node = draft.tree.node(index);
    model::TreeNode& added = nodes.emplace_back();
    added.slot = static_cast<int32_t>(draft.slots.size());
    if (node.parent != GrownDraft::kRoot) {
      added.parent = static_cast<int32_t>(
          std::find(draft.slots.begin(), draft.slots.end(), node.parent) -
          draft.slots.begin());
    }
    added.position = draft.sequence->length() + draft.tree.depth(index) - 1;
    draft.slots.push_back(index);
    token_ids.push_back(node.token_id);
  }
}

bool FeatureDrafts::GrowLevel(absl::Span<EngineSession* const> sessions,
                              double ns_price) {
  const int count = static_cast<int>(sessions.size());
  const double price =
      level_times_.empty() ? 0 : level_times_.At(count) / count * ns_price;
  std::vector<EngineSession*> growing;
  next_.clear();
  nodes_.clear();
  token_ids_.clear();
  for (EngineSession* session : sessions) {
    GrownDraft& tree = session->ahead.features->tree;
    std::vector<int> next;
    tree.NextToExpand(kRows, &next);
    // One more token where one of these is right, at most.
    double tokens = 0;
    for (const int node : next) tokens += tree.node(node).probability;
    if (next.empty() || tokens * session->own_account.worth() < price) continue;
    AddNodes(*session, next);
    growing.push_back(session);
    next_.push_back(std::move(next));
  }
  if (growing.empty()) return false;
  batch_.clear();
  size_t rows = 0;
  for (size_t i = 0; i < growing.size(); ++i) {
    FeatureRows& added = batch_.emplace_back();
    added.sequence = growing[i]->ahead.features->sequence.get();
    AddTarget(*growing[i], &added);
    added.token_ids = token_ids_[i];
    added.nodes = nodes_[i];
    added.num_logits = static_cast<int>(nodes_[i].size());
    rows += nodes_[i].size();
  }
  const int64_t begin_ns = parts_.now_ns();
  const auto logits = parts_.drafter->Forward(batch_);
  if (!logits.ok()) {
    GiveUp(growing, logits.status());
    return false;
  }
  const size_t vocab = logits->size() / rows;
  size_t at = 0;
  for (size_t i = 0; i < growing.size(); ++i) {
    for (const int node : next_[i]) {
      Expand(*growing[i], node, logits->subspan(at, vocab));
      at += vocab;
    }
  }
  level_times_.Add(static_cast<int>(growing.size()),
                   parts_.now_ns() - begin_ns);
  return true;
}

void FeatureDrafts::Expand(EngineSession& session, int node,
                           absl::Span<const float> logits) {
  GrownDraft& tree = session.ahead.features->tree;
  const int length = session.schedule.committed_length();
  const std::vector<int32_t> path = tree.Path(node);
  for (const int32_t id : path) session.history.Push(id);
  tree.Expand(node, RankCandidates(session, logits,
                                   length + static_cast<int>(path.size())));
  session.history.Truncate(length);
}

}  // namespace nacre::target_worker
