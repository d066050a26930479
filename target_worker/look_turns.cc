#include "target_worker/look_turns.h"

#include <algorithm>
#include <array>

#include "model/gumbel_race.h"
#include "model/logit_row.h"
#include "target_worker/engine_session.h"

namespace nacre::target_worker {

using speculation::SuffixAccount;

speculation::HeadCandidates RankCandidates(EngineSession& session,
                                           absl::Span<const float> logits,
                                           int position) {
  speculation::HeadCandidates said;
  if (!model::IsSoundRow(logits.data(), static_cast<int>(logits.size()))) {
    return said;
  }
  std::array<model::ScoredToken, speculation::kRanks> best;
  const int count = session.sampler.Rank(logits, position, session.history,
                                         absl::MakeSpan(best));
  // -inf: the request allows none of what is said.
  said.count = best[0].score == -model::kInfinity ? 0 : count;
  for (size_t i = 0; i < static_cast<size_t>(said.count); ++i) {
    said.token_ids[i] = best[i].token_id;
    said.scores[i] = best[i].score;
  }
  return said;
}

bool LookTurns::Wants(const EngineSession& session, double row_price) {
  const SuffixAccount& account = session.own_account;
  return session.ahead.is_ready() && !session.closing && !session.unsound &&
         // It has verified in this step.
         static_cast<int>(session.fed.size()) > session.prefill_rows &&
         session.schedule.WantsSuffixes() && row_price < account.worth() &&
         account.budget() > 0;
}

double LookTurns::LookPrice(size_t sessions, double ns_price) const {
  if (call_times_.empty()) return 0;
  const int rows = static_cast<int>(sessions);
  const int full_calls = rows / kMaxSessions;
  double ns = full_calls * call_times_.At(kMaxSessions);
  if (rows % kMaxSessions > 0) ns += call_times_.At(rows % kMaxSessions);
  return ns / rows * ns_price;
}

void LookTurns::ChooseWhoLooks(double ns_price) {
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
  if (!was_measured_ && sessions_.size() > kMaxSessions) {
    sessions_.resize(kMaxSessions);
  }
}

void LookTurns::Run(const Step& step, double row_price, int64_t step_ns,
                    Call look) {
  if (step_ns <= 0) return;
  // While they look all sessions of the step wait.
  const double ns_price =
      static_cast<double>(step.sessions.size()) / static_cast<double>(step_ns);
  sessions_.clear();
  for (EngineSession* session : step.sessions) {
    if (Wants(*session, row_price)) sessions_.push_back(session);
  }
  if (sessions_.empty()) return;
  ChooseWhoLooks(ns_price);
  if (sessions_.empty()) return;
  const bool was_known = std::exchange(was_measured_, true);
  const auto all = absl::MakeConstSpan(sessions_);
  for (size_t at = 0; at < all.size(); at += kMaxSessions) {
    const auto some = all.subspan(at, kMaxSessions);
    const int64_t begin_ns = now_ns_();
    look(some, ns_price);
    call_times_.Add(static_cast<int>(some.size()), now_ns_() - begin_ns);
  }
  double price = LookPrice(all.size(), ns_price);
  // A session pays no more than its credit for a call whose time was unknown.
  if (!was_known) price = std::min(price, SuffixAccount::kCredit);
  for (EngineSession* session : sessions_) session->own_account.Spend(price);
}

}  // namespace nacre::target_worker
