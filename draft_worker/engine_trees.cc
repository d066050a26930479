// Sessions with branches: which nodes a step of the draft engine feeds, what it
// makes of their proposals, and what a commit leaves of the tree.

#include <algorithm>
#include <array>
#include <utility>

#include "draft_worker/draft_engine.h"
#include "draft_worker/engine_session.h"

namespace nacre::draft_worker {

using speculation::DraftTree;

absl::StatusOr<std::unique_ptr<model::Sequence>> DraftEngine::NewSequence(
    const OpenDraft& open, bool has_policy, int reserved_length) {
  // A policy ends chunks, the ratio test judges chains, and recordings are of
  // them.
  if (open.num_slots > 0 && !has_policy && tap_ == nullptr &&
      open.verification == speculation::Verification::kExact &&
      drafter_->traits().ranks_children) {
    absl::StatusOr<std::unique_ptr<model::Sequence>> sequence =
        drafter_->NewTreeSequence(reserved_length, open.num_slots,
                                  open.token_ids);
    // Without room for branches, or slots at all, it drafts a chain.
    if (sequence.ok()) return sequence;
  }
  return drafter_->NewSequenceWithPrefix(reserved_length, open.token_ids);
}

speculation::ScoreCalibration& DraftEngine::CalibrationOf(
    const Session& session) {
  const float temperature = session.temperature;
  return calibrations_[temperature == 0 ? 0 : temperature < 0.9f ? 1 : 2];
}

void DraftEngine::AddTreeRows(Session& session, int max_rows) {
  session.drafts = true;
  session.cut = session.drew = session.pointless = session.unsound = false;
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
    if (row.slot < 0) {
      node.token_ids =
          absl::MakeConstSpan(tokens).subspan(session.sequence->length());
    } else {
      node.token_ids = {&row.token_id, 1};
      node.node = model::TreeNode{row.slot, row.parent_slot, row.position};
    }
    node.max_children = speculation::kRanks;
    node.sampler = &session.sampler;
    node.history = &session.history;
    node.path = absl::MakeConstSpan(session.tree_paths)
                    .subspan(path_begin, path_ends[i] - path_begin);
    path_begin = path_ends[i];
    session.fed_rows += static_cast<int>(node.token_ids.size());
    batch_.push_back(node);
  }
  stepping_.push_back(&session);
  batch_rows_ += session.fed_rows;
  ++num_drafting_;
}

void DraftEngine::DraftTreeRows(Session& session,
                                absl::Span<const model::Proposal> proposals) {
  if (session.closing) return;
  const speculation::ScoreCalibration& calibration = CalibrationOf(session);
  speculation::Tail tail;
  for (size_t i = 0; i < proposals.size(); ++i) {
    std::array<int32_t, speculation::kRanks> token_ids;
    std::array<float, speculation::kRanks> scores;
    std::array<float, speculation::kRanks> log2s;
    const size_t count = proposals[i].children.size();
    for (size_t k = 0; k < count; ++k) {
      token_ids[k] = proposals[i].children[k].token_id;
      scores[k] = proposals[i].children[k].score;
    }
    calibration.Apply({scores.data(), count}, {log2s.data(), count});
    session.schedule.OnExpanded(session.tree_rows[i].number,
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

void DraftEngine::KeepTree(Session& session) {
  const DraftTree& tree = *session.schedule.tree();
  speculation::ScoreCalibration& calibration = CalibrationOf(session);
  for (const DraftTree::Judged& judged : tree.judged()) {
    calibration.Add({judged.scores.data(), static_cast<size_t>(judged.count)},
                    judged.rank);
  }
  const int kept = session.schedule.kept_length();
  accounts_.TruncateKv(session, kept);
  if (tree.kept_slots().empty()) return;
  absl::Status status = session.sequence->KeepPath(kept, tree.kept_slots());
  if (!status.ok()) table_.Fail(session, std::move(status));
}

}  // namespace nacre::draft_worker
