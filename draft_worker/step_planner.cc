#include "draft_worker/step_planner.h"

#include <algorithm>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/types/span.h"
#include "draft_worker/engine_session.h"
#include "speculation/ranks.h"
#include "worker/engine/common_prefix.h"

namespace nacre::draft_worker {

using speculation::DraftTree;
using wire::Span;
using worker::WorkerState;

WorkerState StepPlanner::Plan(int64_t now_ns, worker::StepOutcome* outcome) {
  step_.sessions.clear();
  step_.batch.clear();
  step_.num_rows = step_.num_drafting = 0;
  PlanDrafts(now_ns, outcome);
  PlanPrefills();
  PlanNextSteps();
  outcome->stepped = !step_.batch.empty();
  if (step_.num_drafting > 0) return WorkerState::kDraft;
  if (!step_.batch.empty()) return WorkerState::kPrefill;
  outcome->waits_for_peer = false;
  bool takes_over = false;
  for (const Session& session : sessions_) {
    if (!session.schedule.HasNothingToDo()) outcome->waits_for_peer = true;
    takes_over = takes_over || (session.prefills() && session.takes_over);
  }
  // What is copied need not be computed: that is no waiting.
  if (takes_over) return WorkerState::kPrefill;
  return outcome->waits_for_peer ? WorkerState::kWaitVerdict
                                 : WorkerState::kNoWork;
}

void StepPlanner::PlanDrafts(int64_t now_ns, worker::StepOutcome* outcome) {
  bool prefilling = false;
  for (Session& session : sessions_) {
    if (session.prefills() && session.unfed_rows() > 0) {
      const int before = session.sequence->length();
      parts_.accounts->TakeOver(session, session.settled());
      // What others have shared saw all of it.
      if (session.seen.has_value() && session.seen->whole_length == before) {
        session.seen->whole_length = session.sequence->length();
      }
      if (session.takes_over) outcome->deadline_ns = now_ns;
    }
    if (session.unfed_rows() <= 0 &&
        (!session.seen.has_value() || !session.seen->waits)) {
      session.prefilled = true;
    }
    prefilling = prefilling || (session.prefills() && !session.MustWait());
  }
  const int max_rows = budget_.DecodeRows(prefilling);
  sessions_.VisitInTurn(
      [&](Session& session) { return PlanDraft(session, max_rows, now_ns); });
}

bool StepPlanner::PlanDraft(Session& session, int max_rows, int64_t now_ns) {
  if (!session.prefilled) return true;
  if (!session.schedule.WantsStep()) {
    if (session.schedule.HasNothingToDo()) {
      parts_.accounts->EndWait(session, now_ns);
    } else {
      parts_.accounts->NoteWait(session, {.kind = Span::Kind::kWaitVerdict},
                                now_ns);
    }
    return true;
  }
  // The rows that catch up with commits and the one that drafts.
  const int rows = session.unfed_rows() + 1;
  // Where only branches are left to expand, no position is fed.
  const bool feeds =
      session.schedule.tree() == nullptr || session.unfed_rows() > 0;
  const int most = feeds && session.seen.has_value()
                       ? session.seen->MayFeed(session.sequence->length())
                       : rows;
  if (rows > std::min({max_rows, budget_.prefill_chunk, most})) {
    session.prefilled = false;
    return true;
  }
  if (step_.num_rows + rows > max_rows) return false;
  parts_.accounts->EndWait(session, now_ns);
  if (session.schedule.tree() != nullptr) {
    AddTreeRows(session, max_rows - step_.num_rows);
  } else {
    AddRows(session, rows, /*drafts=*/true);
  }
  return true;
}

void StepPlanner::PlanPrefills() {
  std::vector<Session*> prefilling;
  std::vector<worker::Prefill> prompts;
  size_t num_waiting = 0;  // until their target's rows have come
  for (Session& session : sessions_) {
    if (!session.prefills() || session.takes_over) continue;
    const int rows = session.feedable_rows();
    if (rows <= 0) {
      ++num_waiting;
      continue;
    }
    prefilling.push_back(&session);
    prompts.push_back({session.settled(), session.sequence->length(), rows});
  }
  if (prefilling.empty()) return;
  // One that waits for its verdict will want its next step soon.
  const bool decoding = prefilling.size() + num_waiting < sessions_.size();
  const std::vector<int> shares = worker::SharePrefillOfCommonPrefixes(
      prompts, parts_.drafter->shared_block_size(),
      budget_.RoomForPrompts(decoding, step_.num_rows));
  for (size_t i = 0; i < prefilling.size(); ++i) {
    if (shares[i] > 0) AddRows(*prefilling[i], shares[i], /*drafts=*/false);
  }
}

void StepPlanner::AddRows(Session& session, int rows, bool drafts) {
  session.drafts = drafts;
  session.cut = session.drew = session.pointless = session.unsound = false;
  session.candidates.clear();
  session.fed_rows = rows;
  const std::vector<int32_t>& tokens = session.schedule.tokens();
  model::DraftRows node;
  node.sequence = session.sequence.get();
  node.target = session.seen_rows();
  if (session.seen.has_value()) {
    session.seen->OnFed(session.sequence->length(), rows);
  }
  // Commits that arrive during the forward are applied after it: the span stays
  // valid.
  node.token_ids =
      absl::MakeConstSpan(tokens).subspan(session.sequence->length(), rows);
  if (drafts) {
    const int length = session.schedule.length();
    for (int i = session.history.length(); i < length; ++i) {
      session.history.Push(tokens[i]);
    }
    // Under the ratio test the token is drawn with its distribution.
    const bool ranks = parts_.drafter->traits().ranks_chains();
    node.max_children = session.ratio.has_value() ? 0
                        : ranks                   ? speculation::kRanks
                                                  : 1;
    node.sampler = &session.sampler;
    node.history = &session.history;
    node.shows_logits = session.reads_logits() ||
                        (parts_.tap != nullptr && parts_.tap->ReadsLogits());
    node.shows_hidden =
        session.reads_hidden() ||
        (parts_.tap != nullptr && parts_.tap->ReadsHidden(session.tapped()) !=
                                      worker::StepTap::Rows::kNone);
  }
  step_.batch.push_back(node);
  step_.sessions.push_back(&session);
  step_.num_rows += rows;
  step_.num_drafting += drafts ? 1 : 0;
}

void StepPlanner::AddTreeRows(Session& session, int max_rows) {
  session.drafts = true;
  session.cut = session.drew = session.pointless = session.unsound = false;
  session.candidates.clear();
  const std::vector<int32_t>& tokens = session.schedule.tokens();
  const int num_positions = session.unfed_rows() + 1;  // if the tip is fed
  session.schedule.BeginStep(max_rows - num_positions + 1, &session.tree_rows);
  // History ends with the text; each node has its path.
  const int committed = session.schedule.committed_length();
  for (int i = session.history.length(); i < committed; ++i) {
    session.history.Push(tokens[i]);
  }
  const DraftTree& tree = *session.schedule.tree();
  std::vector<size_t> path_ends;
  session.tree_paths.clear();
  for (const DraftTree::Row& row : session.tree_rows) {
    tree.AppendPath(row.number, &session.tree_paths);
    path_ends.push_back(session.tree_paths.size());
  }
  session.fed_rows = 0;
  size_t path_begin = 0;
  for (size_t i = 0; i < session.tree_rows.size(); ++i) {
    const DraftTree::Row& row = session.tree_rows[i];
    model::DraftRows node;
    node.sequence = session.sequence.get();
    node.target = session.seen_rows();
    if (row.slot < 0) {
      node.token_ids =
          absl::MakeConstSpan(tokens).subspan(session.sequence->length());
      if (session.seen.has_value()) {
        session.seen->OnFed(session.sequence->length(),
                            static_cast<int>(node.token_ids.size()));
      }
    } else {
      node.token_ids = {&row.token_id, 1};
      node.node = model::TreeNode{row.slot, row.parent_slot, row.position};
    }
    node.max_children = speculation::kRanks;
    node.shows_logits = session.ranks_by_q;
    node.shows_hidden = session.reads_hidden();
    node.sampler = &session.sampler;
    node.history = &session.history;
    node.path = absl::MakeConstSpan(session.tree_paths)
                    .subspan(path_begin, path_ends[i] - path_begin);
    path_begin = path_ends[i];
    session.fed_rows += static_cast<int>(node.token_ids.size());
    step_.batch.push_back(node);
  }
  step_.sessions.push_back(&session);
  step_.num_rows += session.fed_rows;
  ++step_.num_drafting;
}

void StepPlanner::PlanNextSteps() {
  if (parts_.table->left_out()) return;
  for (const Session& session : sessions_) {
    if (session.prefills()) return;  // its rows come between
    // What its next step expands is not the child of one node. One that rests
    // or waits is not in the next step, whatever the draft draws now.
    if (session.schedule.tree() != nullptr &&
        (absl::c_linear_search(step_.sessions, &session) ||
         session.schedule.WantsStep())) {
      return;
    }
  }
  for (size_t i = 0; i < step_.batch.size(); ++i) {
    const Session& session = *step_.sessions[i];
    const bool stops = session.length.has_value() && session.length->WillStop();
    step_.batch[i].goes_on = session.schedule.WantsStepAfterNext(stops);
  }
}

}  // namespace nacre::draft_worker
