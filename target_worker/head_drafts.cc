#include "target_worker/head_drafts.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "model/gumbel_race.h"
#include "model/logit_row.h"
#include "target_worker/engine_session.h"

namespace nacre::target_worker {

using model::FutureHeads;
using speculation::SuffixAccount;

HeadDrafts::HeadDrafts(Parts parts, speculation::TreeSpec tree)
    : parts_(std::move(parts)), tree_(std::move(tree)) {
  if (parts_.heads == nullptr) return;
  for (speculation::HeadCalibrations& each : calibrations_) {
    each.resize(static_cast<size_t>(parts_.heads->count()));
  }
}

void HeadDrafts::Open(EngineSession& session, const OpenTarget& open) {
  // The request allows drafts of the target's own with its suffixes.
  if (parts_.heads == nullptr || !open.suffixes.has_value() ||
      open.verification != speculation::Verification::kExact) {
    return;
  }
  session.heads = std::make_unique<speculation::HeadDraft>(
      &tree_,
      &calibrations_[speculation::TemperatureKind(open.sampling.temperature)]);
}

bool HeadDrafts::Wants(const EngineSession& session, double row_price) const {
  const SuffixAccount& account = session.own_account;
  return session.heads != nullptr && !session.closing && !session.unsound &&
         // It has verified in this step.
         static_cast<int>(session.fed.size()) > session.prefill_rows &&
         session.schedule.WantsSuffixes() && row_price < account.worth() &&
         account.budget() > 0;
}

double HeadDrafts::LookPrice(size_t sessions, double ns_price) const {
  if (call_times_.empty()) return 0;
  constexpr int kMost = FutureHeads::kMaxRows;
  const int rows = static_cast<int>(sessions);
  double ns = rows / kMost * call_times_.At(kMost);
  if (rows % kMost > 0) ns += call_times_.At(rows % kMost);
  return ns / rows * ns_price;
}

void HeadDrafts::ChooseWhoLooks(double ns_price) {
  EngineSession* const first = sessions_.front();
  size_t before = 0;
  // The fewer look, the more each pays.
  while (!sessions_.empty() && sessions_.size() != before) {
    before = sessions_.size();
    const double price = LookPrice(before, ns_price);
    sessions_.erase(std::remove_if(sessions_.begin(), sessions_.end(),
                                   [price](const EngineSession* session) {
                                     return session->own_account.budget() <
                                            price;
                                   }),
                    sessions_.end());
  }
  if (sessions_.empty()) {
    // Something may have slowed the last call down, and no session can pay for
    // another one. So once enough steps have gone without a call, one is made
    // all the same, and measures the time anew.
    saved_ += SuffixAccount::kShare;
    if (saved_ < LookPrice(1, ns_price)) return;
    call_times_ = {};
    was_measured_ = false;
    sessions_.push_back(first);
  }
  saved_ = 0;
  // One call shows what calls take.
  if (!was_measured_ && sessions_.size() > FutureHeads::kMaxRows) {
    sessions_.resize(FutureHeads::kMaxRows);
  }
}

void HeadDrafts::Look(const Step& step, double row_price, int64_t step_ns) {
  if (parts_.heads == nullptr || step_ns <= 0) return;
  // While they are looked at all sessions of the step wait.
  const double ns_price =
      static_cast<double>(step.sessions.size()) / static_cast<double>(step_ns);
  sessions_.clear();
  for (EngineSession* session : step.sessions) {
    if (Wants(*session, row_price)) sessions_.push_back(session);
  }
  if (sessions_.empty()) return;
  ChooseWhoLooks(ns_price);
  if (sessions_.empty()) return;
  const kernels::FloatView hidden = parts_.model->final_hidden();
  if (hidden.empty()) return;
  const bool was_known = std::exchange(was_measured_, true);
  const auto all = absl::MakeConstSpan(sessions_);
  for (size_t at = 0; at < all.size(); at += FutureHeads::kMaxRows) {
    const auto some = all.subspan(at, FutureHeads::kMaxRows);
    const int64_t begin_ns = parts_.now_ns();
    LookAt(some, hidden);
    call_times_.Add(static_cast<int>(some.size()), parts_.now_ns() - begin_ns);
  }
  double price = LookPrice(all.size(), ns_price);
  // A session pays no more than its credit for a call whose time was unknown.
  if (!was_known) price = std::min(price, SuffixAccount::kCredit);
  for (EngineSession* session : sessions_) session->own_account.Spend(price);
}

void HeadDrafts::LookAt(absl::Span<EngineSession* const> sessions,
                        const kernels::FloatView& hidden) {
  const size_t size = static_cast<size_t>(parts_.model->info().hidden_size);
  hidden_.resize(sessions.size() * size);
  for (size_t i = 0; i < sessions.size(); ++i) {
    const EngineSession& session = *sessions[i];
    // The row that gave the last committed token.
    const size_t row =
        static_cast<size_t>(session.first_logits + session.walked.back());
    hidden.subview(row * size, size).CopyTo(hidden_.data() + i * size);
  }
  const absl::Span<const float> logits = parts_.heads->Run(hidden_);
  for (size_t i = 0; i < sessions.size(); ++i) {
    Rank(*sessions[i], static_cast<int>(i), static_cast<int>(sessions.size()),
         logits);
  }
}

void HeadDrafts::Rank(EngineSession& session, int row, int num_rows,
                      absl::Span<const float> logits) {
  const size_t vocab_size =
      static_cast<size_t>(parts_.model->info().vocab_size);
  said_.assign(static_cast<size_t>(parts_.heads->count()), {});
  for (size_t k = 0; k < said_.size(); ++k) {
    const size_t at =
        k * static_cast<size_t>(num_rows) + static_cast<size_t>(row);
    const absl::Span<const float> row_logits =
        logits.subspan(at * vocab_size, vocab_size);
    if (!model::IsSoundRow(row_logits.data(),
                           static_cast<int>(row_logits.size()))) {
      continue;
    }
    std::array<model::ScoredToken, speculation::kRanks> best;
    // Head k says the token of the position that is k behind the next one.
    const int count = session.sampler.Rank(
        row_logits, session.schedule.committed_length() + static_cast<int>(k),
        session.history, absl::MakeSpan(best));
    speculation::HeadCandidates& head = said_[k];
    // -inf: the request allows none of what the head says.
    head.count = best[0].score == -model::kInfinity ? 0 : count;
    for (size_t i = 0; i < static_cast<size_t>(head.count); ++i) {
      head.token_ids[i] = best[i].token_id;
      head.scores[i] = best[i].score;
    }
  }
  session.heads->Look(session.schedule.committed(), said_);
}

}  // namespace nacre::target_worker
