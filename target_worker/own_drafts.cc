#include "target_worker/own_drafts.h"

#include <vector>

#include "absl/types/span.h"
#include "speculation/head_draft.h"
#include "target_worker/engine_session.h"

namespace nacre::target_worker {

using speculation::SuffixNode;

void OwnDrafts::Propose(EngineSession& session, double row_price) const {
  speculation::TargetSession& schedule = session.schedule;
  if ((session.suffixes == nullptr && !session.ahead.any()) ||
      !schedule.WantsSuffixes()) {
    return;
  }
  const speculation::SuffixAccount& account = session.own_account;
  if (row_price >= account.worth()) return;  // no node is so likely
  absl::Span<const SuffixNode> nodes = suffixes_->Propose(session);
  std::vector<SuffixNode> merged;
  if (session.ahead.any()) {
    session.ahead.suffixes.assign(nodes.begin(), nodes.end());
    const speculation::SuffixLimits limits = schedule.suffix_limits();
    const std::vector<int32_t>& text = schedule.committed();
    const absl::Span<const SuffixNode> seen =
        session.ahead.heads != nullptr
            ? session.ahead.heads->Propose(text, limits)
            : session.ahead.features->tree.Propose(text, limits);
    if (nodes.empty()) {
      nodes = seen;
    } else if (!seen.empty()) {
      speculation::MergeNodes(nodes, seen, limits, &merged);
      nodes = merged;
    }
  }
  schedule.ProposeSuffixes(speculation::WorthARow(nodes, account, row_price));
}

}  // namespace nacre::target_worker
