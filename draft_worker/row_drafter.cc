#include "draft_worker/row_drafter.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "absl/types/optional.h"
#include "draft_worker/engine_session.h"
#include "draft_worker/likeliest_children.h"
#include "speculation/ranks.h"

namespace nacre::draft_worker {

using speculation::LengthDecision;

void RowDrafter::DraftAll(const Step& step,
                          absl::Span<const model::Proposal> all) {
  absl::Span<const model::Proposal> rest = all;
  for (Session* each : step.sessions) {
    Session& session = *each;
    const absl::Span<const model::Proposal> proposals =
        rest.first(session.num_nodes());
    rest.remove_prefix(proposals.size());
    session.unsound = std::any_of(
        proposals.begin(), proposals.end(),
        [](const model::Proposal& proposal) { return !proposal.is_sound; });
    parts_.soundness->Add(!session.unsound);
    if (session.unsound) {
      if (session.closing) continue;
      parts_.table->Fail(session,
                         worker::UnsoundLogits(session.sequence->length()));
    } else if (session.drafts && session.schedule.tree() != nullptr) {
      DraftTreeRows(session, proposals);
    } else if (session.drafts) {
      Draft(session, proposals.front());
    }
  }
}

void RowDrafter::Draft(Session& session, const model::Proposal& proposal) {
  if (session.closing) return;
  if (session.cut || !session.schedule.WantsStep()) {
    // Between steps the last token has no KV: the next step feeds it.
    parts_.accounts->TruncateKv(session, session.schedule.kv_limit());
    return;
  }
  candidates_.clear();
  if (ranks_chains_) {
    for (const model::ScoredToken& child : proposal.children) {
      candidates_.push_back(child.token_id);
    }
  }
  Drawn drawn;
  const LengthDecision decision = Draw(session, proposal, &drawn);
  if (decision == LengthDecision::kDiscard) {
    session.schedule.OnDiscarded();
    session.touched = true;
    // The row that was fed stays: what comes next stands after it.
    return;
  }
  if (parts_.tap != nullptr) {
    parts_.tap->OnRows(session.tapped(),
                       {.position = session.schedule.length(),
                        .token_ids = {&drawn.token_id, 1},
                        .logits = proposal.logits,
                        .hidden = kernels::FloatView(proposal.hidden)});
  }
  session.drew = true;
  if (session.tells_candidates && ranks_chains_) {
    for (const model::ScoredToken& child : proposal.children) {
      session.candidates.push_back({child.token_id, child.score});
    }
  }
  speculation::Tail tail = session.schedule.OnDrafted(
      drawn.token_id, decision == LengthDecision::kStop, candidates_);
  if (session.ratio.has_value()) {
    tail.distributions.push_back(std::move(drawn.distribution));
  }
  SendTail(session, std::move(tail));
}

LengthDecision RowDrafter::Draw(Session& session,
                                const model::Proposal& proposal, Drawn* drawn) {
  const auto [children, is_sound, logits, hidden] = proposal;
  const int length = session.schedule.length();
  LengthDecision decision = LengthDecision::kContinue;
  const bool looks =
      session.length.has_value() && session.length->looks_at_token();
  if (session.length.has_value() && !looks) {
    decision = session.length->Decide(length, absl::nullopt, logits, hidden);
  }
  if (session.ratio.has_value()) {
    drawn->token_id = session.ratio->Draw(
        session.sampler, logits, length, session.history, &drawn->distribution);
  } else if (children.empty()) {
    decision = LengthDecision::kDiscard;  // the drafter knows nothing
  } else {
    drawn->token_id = children.front().token_id;
  }
  if (looks && decision != LengthDecision::kDiscard) {
    decision = session.length->Decide(length, drawn->token_id, logits, hidden);
  }
  return decision;
}

void RowDrafter::DraftTreeRows(Session& session,
                               absl::Span<const model::Proposal> proposals) {
  if (session.closing) return;
  const speculation::ScoreCalibration& calibration =
      parts_.calibrations->At(session.temperature);
  speculation::Tail tail;
  LikeliestChildren likeliest;
  for (size_t i = 0; i < proposals.size(); ++i) {
    const int number = session.tree_rows[i].number;
    if (session.ranks_by_q) {
      likeliest.Find(
          proposals[i].logits.first(static_cast<size_t>(session.vocab_limit)));
      LengthDecision decision = LengthDecision::kContinue;
      if (session.length.has_value() &&
          session.schedule.tree()->IsTipOfStep(number)) {
        decision = DecideDepth(session, proposals[i],
                               likeliest.children().token_ids[0]);
      }
      speculation::DraftTree::Children children = likeliest.children();
      if (decision == LengthDecision::kDiscard) {
        children = {};
        session.touched = true;  // it may have to say that nothing comes
      }
      session.schedule.OnExpanded(number, children, &tail,
                                  decision == LengthDecision::kStop);
      continue;
    }
    std::array<int32_t, speculation::kRanks> token_ids;
    std::array<float, speculation::kRanks> scores;
    std::array<float, speculation::kRanks> log2s;
    const size_t count = proposals[i].children.size();
    for (size_t k = 0; k < count; ++k) {
      token_ids[k] = proposals[i].children[k].token_id;
      scores[k] = proposals[i].children[k].score;
    }
    calibration.Apply({scores.data(), count}, {log2s.data(), count});
    session.schedule.OnExpanded(number,
                                {{token_ids.data(), count},
                                 {scores.data(), count},
                                 {log2s.data(), count}},
                                &tail);
  }
  session.schedule.FinishStep(&tail);
  // None of the nodes stands any more.
  if (tail.token_ids.empty()) return;
  session.drew = true;
  SendTail(session, std::move(tail));
}

LengthDecision RowDrafter::DecideDepth(Session& session,
                                       const model::Proposal& proposal,
                                       int32_t token_id) {
  return session.length->Decide(session.schedule.length(),
                                session.length->looks_at_token()
                                    ? absl::optional<int32_t>(token_id)
                                    : absl::nullopt,
                                proposal.logits, proposal.hidden);
}

void RowDrafter::TellRanks(Session& session, DraftEvents* events) {
  constexpr std::ptrdiff_t kMost = speculation::kMaxRankReport;
  auto begin = session.untold_ranks.begin();
  const auto end = session.untold_ranks.end();
  while (begin != end) {
    const auto next = begin + std::min(kMost, end - begin);
    // No report has more of them than it has ranks above 1.
    const int prepared =
        std::min(session.untold_prepared,
                 static_cast<int>(next - begin - std::count(begin, next, 1)));
    session.untold_prepared -= prepared;
    events->ranks.push_back(
        {session.id, session.schedule.epoch(), {begin, next}, prepared});
    begin = next;
  }
  session.untold_ranks.clear();
}

void RowDrafter::SendTail(Session& session, speculation::Tail tail) {
  DraftEvents& events = parts_.events->For(session.stream);
  TellRanks(session, &events);
  events.tails.push_back({session.id, std::move(tail)});
}

}  // namespace nacre::draft_worker
