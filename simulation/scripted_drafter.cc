#include "simulation/scripted_drafter.h"

#include <algorithm>
#include <cstddef>

#include "common/check.h"
#include "common/status_macros.h"

namespace nacre::simulation {

absl::Status ScriptedDrafter::Forward(
    absl::Span<const model::DraftRows> nodes) {
  size_t num_rows = 0;
  for (const model::DraftRows& node : nodes) num_rows += node.token_ids.size();
  token_ids_.clear();
  tree_nodes_.clear();
  // What has been given to the batch stays where it is.
  token_ids_.reserve(num_rows);
  tree_nodes_.reserve(nodes.size());
  std::vector<model::SequenceRows> batch;
  for (size_t begin = 0, end = 0; begin < nodes.size(); begin = end) {
    const size_t first_id = token_ids_.size();
    const size_t first_node = tree_nodes_.size();
    for (; end < nodes.size() && nodes[end].sequence == nodes[begin].sequence;
         ++end) {
      token_ids_.insert(token_ids_.end(), nodes[end].token_ids.begin(),
                        nodes[end].token_ids.end());
      if (nodes[end].node.has_value()) tree_nodes_.push_back(*nodes[end].node);
    }
    model::SequenceRows rows;
    rows.sequence = nodes[begin].sequence;
    rows.token_ids = absl::MakeConstSpan(token_ids_).subspan(first_id);
    rows.nodes = absl::MakeConstSpan(tree_nodes_).subspan(first_node);
    batch.push_back(rows);
  }
  return model_->Forward(batch).status();
}

size_t ScriptedDrafter::Rank(const model::DraftRows& node,
                             absl::Span<model::ScoredToken> room) {
  // The rows are fed by now.
  const int position =
      node.node.has_value() ? node.node->position + 1 : node.sequence->length();
  const auto draw = node.sampler->DeviceDraw(position);
  NACRE_CHECK(draw.has_value(), "a scripted request is drawn from its seed");
  const uint64_t number = draw->seed;
  const int first = position - static_cast<int>(node.path.size());
  bool is_true = true;
  for (size_t i = 0; i < node.path.size(); ++i) {
    is_true =
        is_true && node.path[i] ==
                       Script::TargetToken(number, first + static_cast<int>(i));
  }
  static const Guess kEnded;
  const Guess* guess = is_true ? script_->GuessAt(number, position)
                               : script_->GuessBehind(number, node.path);
  if (guess == nullptr) guess = &kEnded;
  const size_t count =
      std::min(room.size(), std::max<size_t>(1, guess->scores.size()));
  for (size_t place = 0; place < count; ++place) {
    room[place] = {Script::DraftToken(number, position, static_cast<int>(place),
                                      guess->rank),
                   guess->scores.empty() ? 0 : guess->scores[place]};
  }
  return count;
}

absl::StatusOr<absl::Span<const model::Proposal>> ScriptedDrafter::Propose(
    absl::Span<const model::DraftRows> nodes) {
  NACRE_RETURN_IF_ERROR(Forward(nodes));
  size_t num_children = 0;
  for (const model::DraftRows& node : nodes) {
    num_children += static_cast<size_t>(node.max_children);
  }
  children_.resize(num_children);
  absl::Span<model::ScoredToken> rest = absl::MakeSpan(children_);
  proposals_.clear();
  for (const model::DraftRows& node : nodes) {
    const auto room = rest.first(static_cast<size_t>(node.max_children));
    rest.remove_prefix(room.size());
    model::Proposal& proposal = proposals_.emplace_back();
    if (!room.empty()) proposal.children = room.first(Rank(node, room));
  }
  return absl::MakeConstSpan(proposals_);
}

}  // namespace nacre::simulation
