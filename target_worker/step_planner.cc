#include "target_worker/step_planner.h"

#include <algorithm>

#include "target_worker/engine_session.h"
#include "worker/engine/common_prefix.h"

namespace nacre::target_worker {

using speculation::TargetSession;
using wire::Span;
using worker::WorkerState;

WorkerState StepPlanner::Plan(int64_t now_ns, worker::StepOutcome* outcome) {
  step_.sessions.clear();
  step_.batch.clear();
  step_.num_rows = step_.verify_rows = step_.logit_rows = 0;
  prefilling_.clear();
  bool takes_over = false;
  for (Session& session : parts_.sessions) {
    if (session.schedule.finished() || session.unfed_rows() <= 0) continue;
    // What it took over would have no logits.
    if (!session.TellsPrompt()) {
      parts_.accounts->TakeOver(session, session.schedule.committed());
    }
    if (session.takes_over) {
      takes_over = true;
      outcome->deadline_ns = now_ns;
    } else if (session.unfed_rows() > 0) {
      prefilling_.push_back(&session);
    }
  }
  const WorkerState wait = PlanVerifies(now_ns, outcome);
  // One that waits for draft tokens will want its next step soon.
  PlanPrefills(!step_.batch.empty() || wait == WorkerState::kWaitDraftTokens,
               now_ns);
  outcome->stepped = !step_.batch.empty();
  if (!outcome->stepped) {
    outcome->waits_for_peer = wait == WorkerState::kWaitDraftTokens;
    // What is copied need not be computed: that is no waiting.
    return takes_over ? WorkerState::kPrefill : wait;
  }
  return step_.verify_rows * 2 >= step_.num_rows ? WorkerState::kVerify
                                                 : WorkerState::kPrefill;
}

WorkerState StepPlanner::PlanVerifies(int64_t now_ns,
                                      worker::StepOutcome* outcome) {
  const int max_rows = budget_.DecodeRows(!prefilling_.empty());
  WorkerState idle = WorkerState::kNoWork;
  ready_.clear();
  int least_rows = 0;
  parts_.sessions.VisitInTurn([&](Session& session) {
    return PlanVerify(session, max_rows, now_ns, &least_rows, &idle, outcome);
  });
  AddReady(least_rows, max_rows, now_ns);
  return idle;
}

bool StepPlanner::PlanVerify(Session& session, int max_rows, int64_t now_ns,
                             int* least_rows, WorkerState* idle,
                             worker::StepOutcome* outcome) {
  TargetSession& schedule = session.schedule;
  if (schedule.finished() || session.unfed_rows() > 0) return true;
  if (session.hold.has_value()) {
    NoteDraftWait(session, schedule.wait().last_row_deadline_ns(), now_ns,
                  outcome);
    *idle = WorkerState::kWaitDraftTokens;
    return true;
  }
  parts_.own->Propose(session, row_price_);
  switch (schedule.CheckReady(now_ns)) {
    case TargetSession::Readiness::kReady:
      if (*least_rows >= max_rows) return false;
      ready_.push_back(&session);
      *least_rows +=
          1 + (!step_times_.empty() && schedule.NextTree().has_value()
                   ? 0
                   : schedule.NextChain());
      break;
    case TargetSession::Readiness::kWaitDraft:
      NoteDraftWait(session, schedule.wait().gate_deadline_ns(), now_ns,
                    outcome);
      *idle = WorkerState::kWaitDraftTokens;
      break;
    case TargetSession::Readiness::kWaitAcknowledge:
      parts_.accounts->NoteWait(session, {.kind = Span::Kind::kWaitAcknowledge},
                                now_ns);
      if (*idle == WorkerState::kNoWork) *idle = WorkerState::kWaitAcknowledge;
      break;
    case TargetSession::Readiness::kFinished:
      break;
  }
  return true;
}

void StepPlanner::AddReady(int least_rows, int max_rows, int64_t now_ns) {
  std::vector<speculation::StepTree> trees;
  for (const Session* session : ready_) {
    if (step_times_.empty()) break;  // no node is known to pay: chains
    auto tree = session->schedule.NextTree();
    if (!tree.has_value()) continue;
    if (tree->is_local) {
      tree->worth = session->own_account.worth();
    }
    trees.push_back(*tree);
  }
  const int num_sessions = static_cast<int>(ready_.size());
  std::vector<int> counts = speculation::ChooseStepRows(
      trees, {num_sessions, least_rows, max_rows}, step_times_);
  PayForOwn(least_rows, trees, &counts);
  if (num_sessions > 0 && !step_times_.empty()) {
    row_price_ =
        speculation::CostOfRows(num_sessions, least_rows + 1, 1, step_times_);
  }
  auto count = counts.begin();
  for (Session* session : ready_) {
    absl::optional<int> num_nodes;
    if (!counts.empty() && session->schedule.NextTree().has_value()) {
      num_nodes = *count++;
    }
    AddRows(*session, max_rows, now_ns, num_nodes);
  }
}

void StepPlanner::PayForOwn(int least_rows,
                            const std::vector<speculation::StepTree>& trees,
                            std::vector<int>* counts) {
  int rows = least_rows;
  for (size_t i = 0; i < trees.size(); ++i) {
    if (!trees[i].is_local) rows += (*counts)[i];
  }
  size_t i = 0;
  for (Session* session : ready_) {
    if (i == trees.size()) return;
    if (!session->schedule.NextTree().has_value()) continue;
    if (trees[i].is_local) {
      int& count = (*counts)[i];
      count = session->own_account.Pay(static_cast<int>(ready_.size()),
                                       rows + count, count, step_times_);
      rows += count;
    }
    ++i;
  }
}

void StepPlanner::PlanPrefills(bool decoding, int64_t now_ns) {
  std::vector<worker::Prefill> prompts;
  for (const Session* session : prefilling_) {
    // One more row: the first step may share the forward.
    prompts.push_back({session->TellsPrompt()
                           ? absl::Span<const int32_t>()  // takes nothing over
                           : session->schedule.committed(),
                       session->sequence->length(), session->unfed_rows() + 1});
  }
  const worker::PrefillRoom room =
      budget_.RoomForPrompts(decoding, step_.num_rows);
  const std::vector<int> shares =
      worker::SharePrefillOfCommonPrefixes(prompts, shared_block_size_, room);
  int left = room.rows;
  int logits_left = wire::kMaxPromptLogprobs;
  for (size_t i = 0; i < prefilling_.size(); ++i) {
    Session& session = *prefilling_[i];
    // What an earlier one's tail took beyond its share is missing now.
    int share = std::min(shares[i], left);
    if (session.TellsPrompt()) {
      share = std::min(share, session.RowsBeforeLogits() + logits_left);
    }
    if (share <= 0) continue;
    const int before = step_.num_rows;
    AddRows(session, share, now_ns);
    left -= step_.num_rows - before;
    logits_left -= session.prompt.rows;
  }
}

int StepPlanner::BeginVerify(Session& session, int64_t now_ns,
                             absl::optional<int> num_nodes) {
  parts_.accounts->EndWait(session, now_ns);
  TargetSession& schedule = session.schedule;
  const absl::Span<const int32_t> tail =
      num_nodes.has_value() ? schedule.BeginTreeStep(*num_nodes)
                            : schedule.BeginStep();
  session.fed.push_back(schedule.committed().back());
  session.fed.insert(session.fed.end(), tail.begin(), tail.end());
  session.verifies = true;
  // Its path stands at positions, what is beside it in slots.
  const int path = schedule.step().path_length();
  const absl::Span<const int> parents = schedule.step().parents();
  session.row_depths.assign(1, 0);
  for (int row = 1; row <= static_cast<int>(tail.size()); ++row) {
    const int parent = parents[row - 1];
    const int depth = session.row_depths[parent] + 1;
    session.row_depths.push_back(depth);
    if (row <= path) continue;
    model::TreeNode node;
    node.slot = row - path - 1;
    node.parent = parent <= path ? model::kNoSlot : parent - path - 1;
    node.position = schedule.committed_length() - 1 + depth;
    session.nodes.push_back(node);
  }
  return static_cast<int>(tail.size()) + 1;
}

void StepPlanner::AddRows(Session& session, int max_rows, int64_t now_ns,
                          absl::optional<int> num_nodes) {
  const int unfed = session.unfed_rows();
  session.prefill_rows = std::min(unfed, max_rows);
  session.prompt.rows = 0;
  const bool tells_prompt = session.TellsPrompt();
  if (tells_prompt) {
    const int before = session.RowsBeforeLogits();
    session.prefill_rows =
        std::min(session.prefill_rows,
                 before + session.prompt.end - session.prompt.next);
    session.prompt.rows = std::max(0, session.prefill_rows - before);
  }
  const auto begin =
      session.schedule.committed().begin() + session.sequence->length();
  session.fed.assign(begin, begin + session.prefill_rows);
  session.nodes.clear();
  int verify_rows = 0;
  session.first_logits = step_.logit_rows;
  // A gate that no tail can open needs no wait: the last prompt rows and the
  // first step share the forward.
  if (unfed == 0 ||
      (unfed < max_rows && !tells_prompt && session.StepsWithoutTail() &&
       session.schedule.CheckReady(now_ns) ==
           TargetSession::Readiness::kReady)) {
    verify_rows = BeginVerify(session, now_ns, num_nodes);
  }
  parts_.sampler->PlanDraws(session, verify_rows);
  step_.sessions.push_back(&session);
  const int num_logits = std::max({verify_rows, session.prompt.rows, 1});
  model::SequenceRows rows;
  rows.sequence = session.sequence.get();
  rows.token_ids = session.fed;
  rows.num_logits = num_logits;
  rows.draws = session.draws;
  rows.nodes = session.nodes;
  step_.batch.push_back(rows);
  step_.num_rows += session.prefill_rows + verify_rows;
  step_.verify_rows += verify_rows;
  step_.logit_rows += num_logits;
}

void StepPlanner::NoteDraftWait(Session& session,
                                absl::optional<int64_t> deadline_ns,
                                int64_t now_ns, worker::StepOutcome* outcome) {
  parts_.accounts->NoteWait(session,
                            {.kind = Span::Kind::kWaitDraftTokens,
                             .after_miss = session.schedule.wait().missed()},
                            now_ns);
  if (deadline_ns.has_value() && (!outcome->deadline_ns.has_value() ||
                                  *deadline_ns < *outcome->deadline_ns)) {
    outcome->deadline_ns = deadline_ns;
  }
}

}  // namespace nacre::target_worker
