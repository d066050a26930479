#include "tests/simulation/protocol/row_watch.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "tests/simulation/protocol/checks.h"

namespace nacre::protocol {

std::string RowWatch::OnForward(const SessionOnWorker& session,
                                const model::SequenceRows& rows,
                                Counts* counts) {
  const auto* const target =
      static_cast<const SimulatedTargetSequence*>(rows.target);
  const auto& sequence = static_cast<const SimulatedSequence&>(*rows.sequence);
  if (target != nullptr) {
    counts->rows += target->length() - target->first();
    std::string wrong = CheckRows(session, *target);
    if (!wrong.empty()) return wrong;
  }
  if (!sequence.model().reads_features()) return "";
  horizon_ = 0;
  const int num_nodes = static_cast<int>(rows.nodes.size());
  const int count = static_cast<int>(rows.token_ids.size()) - num_nodes;
  // Its text may be fed, as long as it says nothing.
  if (target == nullptr) {
    return num_nodes > 0 ? "grows a tree over no features" : "";
  }
  if (target->empty()) return "feeds a text before its features come";
  horizon_ = target->length() + target->reading().max_lag + 1;
  const int known = std::max(0, target->length() + 1 - sequence.length());
  counts->features += target->length() - target->first();
  counts->skipped += target->first() > 0 ? 1 : 0;
  counts->behind += known == 0 ? count : 0;
  if (count > std::max(known, 1)) {
    return absl::StrCat("feeds ", count, " tokens from position ",
                        sequence.length(), " on, over ", target->length(),
                        " features");
  }
  int last = sequence.length() + count - 1;
  for (const model::TreeNode& node : rows.nodes) {
    last = std::max(last, node.position);
  }
  // What it says is of the position after it.
  if (last + 1 >= horizon_) {
    return absl::StrCat("feeds a token at position ", last, " over ",
                        target->length(), " features");
  }
  return CheckOwnText(session, rows, *target);
}

// Of the text that is committed.
std::string RowWatch::CheckRows(const SessionOnWorker& session,
                                const SimulatedTargetSequence& target) const {
  const RequestState& request = *session.request;
  if (request.is_ratio()) {
    // By the ratio test a target in another's place may draw other tokens than
    // those that only the first had committed. Features would be of these.
    return target.reading().shape.is_features() && !target.empty()
               ? "sees features under the ratio test"
               : "";
  }
  uint64_t hash = kEmptyHash;
  for (int i = 0; i < target.length(); ++i) {
    if (i < request.known_length()) {
      hash = ExtendHash(hash, session.token(i));
      if (i < target.first() || target.Is({hash, i})) continue;
    }
    return absl::StrCat("sees a row of its target at ", i,
                        " that is of other tokens than those committed");
  }
  return "";
}

// A row of features stands beside the draft's own token after it.
std::string RowWatch::CheckOwnText(
    const SessionOnWorker& session, const model::SequenceRows& rows,
    const SimulatedTargetSequence& target) const {
  const SimulatedSequence& sequence = *session.sequence;
  const int length = sequence.length();
  const int end = std::min(
      target.length(),
      length + static_cast<int>(rows.token_ids.size() - rows.nodes.size()));
  uint64_t hash = sequence.hash(std::min(target.first(), length));
  for (int i = std::min(target.first(), length); i < end; ++i) {
    hash =
        i < length
            ? sequence.hash(i + 1)
            : ExtendHash(hash, rows.token_ids[static_cast<size_t>(i - length)]);
    if (i < target.first() || target.Is({hash, i})) continue;
    return absl::StrCat("feeds features of position ", i,
                        " that are of another text than its own");
  }
  return "";
}

std::string RowWatch::OnTail(const SessionOnWorker& session,
                             const speculation::Tail& tail) const {
  const SimulatedSequence* const sequence = session.sequence;
  if (sequence == nullptr || !sequence->model().reads_features() ||
      tail.token_ids.empty()) {
    return "";
  }
  // Nodes of trees are below what was fed.
  const bool is_tree = sequence->num_slots() > 0;
  const int end =
      is_tree ? 1
              : tail.first_position + static_cast<int>(tail.token_ids.size());
  if (end <= horizon_) return "";
  return absl::StrCat("says tokens from position ", tail.first_position,
                      " on, it may of those before ", horizon_);
}

}  // namespace nacre::protocol
