#include "coordinator/observe/branch_account.h"

#include <algorithm>
#include <utility>

namespace nacre::coordinator {
namespace {

// A node that comes later than so many tokens is not followed, and of a peer
// that names too many the first ones are forgotten.
constexpr size_t kMostPlaces = 64;
constexpr size_t kMostNodes = size_t{4} * speculation::kMaxTailNodes;

}  // namespace

const BranchAccount::Node* BranchAccount::Find(const std::vector<Node>& nodes,
                                               int number) {
  const auto it = std::lower_bound(
      nodes.begin(), nodes.end(), number,
      [](const Node& node, int wanted) { return node.number < wanted; });
  return it != nodes.end() && it->number == number ? &*it : nullptr;
}

absl::optional<int> BranchAccount::FindPlace(int number) const {
  for (size_t i = places_.size(); i-- > 0;) {
    if (places_[i].number == number) {
      return length_ - static_cast<int>(places_.size() - i);
    }
  }
  return absl::nullopt;
}

BranchAccount::Place* BranchAccount::At(int position) {
  const int behind = length_ - position;
  if (behind < 1 || behind > static_cast<int>(places_.size())) return nullptr;
  return &places_[places_.size() - static_cast<size_t>(behind)];
}

bool BranchAccount::Takes(const Node& node) {
  Place* const place = At(node.position);
  if (place == nullptr || place->token_id != node.token_id) return false;
  if (node.parent != 0) {
    const Place* const before = At(node.position - 1);
    if (before == nullptr || before->number != node.parent) return false;
  }
  place->number = node.number;
  return true;
}

void BranchAccount::OnTail(const speculation::Tail& tail) {
  for (size_t i = 0; i < tail.parents.size(); ++i) {
    Node node;
    node.number = tail.first_node + static_cast<int>(i);
    node.parent = tail.parents[i];
    node.token_id = tail.token_ids[i];
    const Node* const parent = Find(nodes_, node.parent);
    // All children of a node come together.
    node.is_branch = (i > 0 && tail.parents[i - 1] == node.parent) ||
                     (parent != nullptr && parent->is_branch);
    sent_ += node.is_branch ? 1 : 0;
    if (node.parent == 0) {
      node.position = tail.base_length;
    } else if (parent != nullptr) {
      node.position = parent->position + 1;
    } else if (const absl::optional<int> place = FindPlace(node.parent)) {
      node.position = *place + 1;
    } else {
      continue;
    }
    if (node.position < length_) {
      if (Takes(node)) used_ += node.is_branch ? 1 : 0;
    } else if (nodes_.empty() || nodes_.back().number < node.number) {
      nodes_.push_back(node);
    }
  }
  if (nodes_.size() > kMostNodes) {
    nodes_.erase(nodes_.begin(), nodes_.end() - kMostNodes);
  }
}

void BranchAccount::OnCommitted(int base_length,
                                absl::Span<const int32_t> token_ids) {
  if (base_length != length_) places_.clear();
  length_ = base_length + static_cast<int>(token_ids.size());
  for (const int32_t id : token_ids) places_.push_back({id, 0});
  if (places_.size() > kMostPlaces) {
    places_.erase(places_.begin(), places_.end() - kMostPlaces);
  }
  // A parent is before its children.
  for (const Node& node : nodes_) {
    if (node.position < length_ && Takes(node) && node.is_branch) ++used_;
  }
  Prune();
}

void BranchAccount::Prune() {
  std::vector<Node> kept;
  // The main path goes on from the text, from first child to first child.
  int tip = places_.empty() ? 0 : places_.back().number;
  const int root = tip;
  int tip_position = length_ - 1;
  for (Node node : nodes_) {
    const bool is_below =
        node.position == length_
            ? node.parent == 0 || node.parent == root
            : node.position > length_ && Find(kept, node.parent) != nullptr;
    if (!is_below) continue;
    if (node.position == tip_position + 1 &&
        (node.parent == tip || node.position == length_)) {
      // A branch that the text has taken is none any more.
      used_ += node.is_branch ? 1 : 0;
      node.is_branch = false;
      tip = node.number;
      tip_position = node.position;
    }
    kept.push_back(node);
  }
  nodes_ = std::move(kept);
}

int64_t BranchAccount::num_branches() const {
  return std::count_if(nodes_.begin(), nodes_.end(),
                       [](const Node& node) { return node.is_branch; });
}

void BranchAccount::OnDraftLeft() {
  sent_ -= num_branches();
  nodes_.clear();
  for (Place& place : places_) place.number = 0;
}

}  // namespace nacre::coordinator
