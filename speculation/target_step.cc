#include "speculation/target_step.h"

#include <algorithm>
#include <utility>

namespace nacre::speculation {

void TargetStep::Begin(bool degraded) {
  running_ = true;
  degraded_ = degraded;
  token_ids_.clear();
  parents_.clear();
  path_length_ = 0;
  is_own_.clear();
  numbers_.clear();
  distributions_.clear();
}

void TargetStep::Add(const DraftBuffer& buffer, int node, int parent_row) {
  token_ids_.push_back(buffer.tree().nodes()[node].token_id);
  parents_.push_back(parent_row);
  is_own_.push_back(buffer.tree().nodes()[node].is_local);
  if (buffer.speaks_tree()) numbers_.push_back(buffer.tree().NumberOf(node));
  if (buffer.has_distributions()) {
    distributions_.push_back(buffer.distribution(node));
  }
}

void TargetStep::TakeChain(const DraftBuffer& buffer, int count) {
  path_length_ = count;
  for (int row = 0; row < count; ++row) {
    Add(buffer, buffer.best_path()[row], row);
  }
}

void TargetStep::TakeTree(const DraftBuffer& buffer, const StepTree& limits,
                          int count) {
  const TokenTree& nodes = *limits.tree;
  limits.Likeliest(count, &nodes_);
  rows_of_.assign(nodes.nodes().size(), 0);
  // Where some of a node's children are rows, the best of them is one. So the
  // best path of the rows is where the tree's begins.
  for (const int node : buffer.best_path()) {
    if (!std::binary_search(nodes_.begin(), nodes_.end(), node)) break;
    Add(buffer, node, path_length_);
    rows_of_[node] = ++path_length_;
  }
  // A parent comes before its children.
  for (const int node : nodes_) {
    if (rows_of_[node] != 0) continue;
    const int parent = nodes.nodes()[node].parent;
    Add(buffer, node, parent == TokenTree::kRoot ? 0 : rows_of_[parent]);
    rows_of_[node] = size();
  }
}

std::vector<int32_t> TargetStep::TakeTokens() {
  parents_.clear();
  distributions_.clear();
  return std::exchange(token_ids_, {});
}

absl::optional<int> TargetStep::RowBehind(int row, int32_t token_id) const {
  for (int i = row; i < size(); ++i) {
    if (parents_[i] == row && token_ids_[i] == token_id) return i + 1;
  }
  return absl::nullopt;
}

bool TargetStep::HasDraftRow(int row) const {
  for (size_t i = 0; i < parents_.size(); ++i) {
    if (parents_[i] == row && !is_own_[i]) return true;
  }
  return false;
}

int TargetStep::num_own() const {
  return static_cast<int>(std::count(is_own_.begin(), is_own_.end(), true));
}

int TargetStep::SharedWith(const DraftBuffer& buffer) const {
  int shared = 0;
  while (shared < buffer.depth() && shared < size() &&
         buffer.tree().nodes()[buffer.best_path()[shared]].token_id ==
             token_ids_[shared]) {
    ++shared;
  }
  return shared;
}

}  // namespace nacre::speculation
