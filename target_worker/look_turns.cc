#include "target_worker/look_turns.h"

#include <algorithm>
#include <array>

#include "model/gumbel_race.h"
#include "model/logit_row.h"
#include "target_worker/engine_session.h"

namespace nacre::target_worker {

using speculation::OwnPurse;
using speculation::SuffixAccount;

namespace {

bool CanPay(const SuffixAccount& account, double price) {
  return account.budget() > 0 && account.budget() >= price;
}

}  // namespace

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
  return session.ahead.is_ready() && !session.closing && !session.unsound &&
         // It has verified in this step.
         static_cast<int>(session.fed.size()) > session.prefill_rows &&
         session.schedule.WantsSuffixes() &&
         row_price < session.own_account.worth();
}

double LookTurns::LookPrice(size_t sessions, double ns_price) const {
  if (call_times_.empty()) return 0;
  const int rows = static_cast<int>(sessions);
  const int full_calls = rows / kMaxSessions;
  double ns = full_calls * call_times_.At(kMaxSessions);
  if (rows % kMaxSessions > 0) ns += call_times_.At(rows % kMaxSessions);
  return ns / rows * ns_price;
}

bool LookTurns::FillUp(SuffixAccount* account, double price, double row_price,
                       OwnPurse* purse) {
  if (CanPay(*account, price + row_price)) return true;
  // Rows that cost nothing are rows of an account that has something.
  return purse->FillUp(price + SuffixAccount::kShare + kRowsOfALook * row_price,
                       account);
}

void LookTurns::KeepWhoCanPay(double price, double row_price) {
  OwnPurse purse = purse_;
  sessions_.erase(std::remove_if(sessions_.begin(), sessions_.end(),
                                 [&](const EngineSession* session) {
                                   SuffixAccount account = session->own_account;
                                   return !FillUp(&account, price, row_price,
                                                  &purse);
                                 }),
                  sessions_.end());
}

void LookTurns::ChooseWhoLooks(double ns_price, double row_price) {
  const auto own = std::find_if(sessions_.begin(), sessions_.end(),
                                [](const EngineSession* session) {
                                  return CanPay(session->own_account, 0);
                                });
  EngineSession* const first = own == sessions_.end() ? nullptr : *own;
  // Whom nothing can pay for does not make a call dearer for the others.
  KeepWhoCanPay(0, row_price);
  size_t before = 0;
  double price = 0;
  // The fewer look, the more each pays.
  while (!sessions_.empty() && sessions_.size() != before) {
    before = sessions_.size();
    price = LookPrice(before, ns_price);
    KeepWhoCanPay(price, row_price);
  }
  if (sessions_.empty()) {
    if (first == nullptr) return;
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
  for (EngineSession* session : sessions_) {
    FillUp(&session->own_account, price, row_price, &purse_);
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
    purse_.Put(session->own_account.TakeSurplus());
    if (Wants(*session, row_price)) sessions_.push_back(session);
  }
  ChooseWhoLooks(ns_price, row_price);
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
  for (EngineSession* session : sessions_) {
    session->own_account.Spend(price);
    // It may have taken longer than the last ones.
    FillUp(&session->own_account, 0, row_price, &purse_);
  }
}

void LookTurns::Close(EngineSession& session) {
  purse_.Put(session.own_account.TakeAll());
}

}  // namespace nacre::target_worker
