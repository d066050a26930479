#include "speculation/token_tree.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace nacre::speculation {

TokenTree::TokenTree(int length) : length_(length) {
  NACRE_CHECK(length >= 1, "a tree grows from a token");
}

const TokenTree::Name* TokenTree::FindName(int number) const {
  const auto it = std::lower_bound(
      names_.begin(), names_.end(), number,
      [](const Name& name, int wanted) { return name.number < wanted; });
  return it != names_.end() && it->number == number ? &*it : nullptr;
}

absl::optional<TokenTree::Place> TokenTree::Find(int number) const {
  const Name* name = FindName(number);
  if (name == nullptr) return absl::nullopt;
  if (name->index == kRoot) return Place{absl::nullopt, name->text_length};
  return Place{name->index, length_ + nodes_[name->index].depth};
}

absl::optional<TokenTree::Place> TokenTree::ParentOf(
    const Proposal& proposal) const {
  if (proposal.parent != 0) return Find(proposal.parent);
  return Place{absl::nullopt, proposal.base_length};
}

void TokenTree::Reserve(int num_nodes) {
  nodes_.reserve(num_nodes);
  names_.reserve(num_nodes);
  moved_.reserve(num_nodes);
}

TokenTree::Outcome TokenTree::Add(const Proposal& proposal,
                                  absl::Span<const int32_t> text) {
  NACRE_CHECK(static_cast<int>(text.size()) == length_,
              "the text that the tree is rooted in");
  // Written so that a NaN is malformed, too.
  const bool is_log_probability = proposal.score <= 0;
  if (proposal.number < 1 || proposal.number > kMaxNode ||
      proposal.parent < 0 || proposal.parent >= proposal.number ||
      proposal.base_length < 1 || proposal.base_length > length_ ||
      !is_log_probability) {
    return Outcome::kMalformed;
  }
  if (proposal.number <= newest_number_) {
    const Name* name = FindName(proposal.number);
    return name == nullptr ? Outcome::kStale : Repeat(*name, proposal, text);
  }
  const absl::optional<Place> parent = ParentOf(proposal);
  if (!parent.has_value()) return Outcome::kStale;
  if (parent->index.has_value()) return AddBelow(*parent->index, proposal);
  if (parent->text_length == length_) return AddBelow(kRoot, proposal);
  return Compare(parent->text_length, proposal, text);
}

TokenTree::Outcome TokenTree::Repeat(const Name& name, const Proposal& proposal,
                                     absl::Span<const int32_t> text) const {
  const absl::optional<Place> parent = ParentOf(proposal);
  if (!parent.has_value()) return Outcome::kStale;
  if (name.index == kRoot) {
    return parent->text_length == name.text_length - 1 &&
                   !parent->index.has_value() &&
                   text[name.text_length - 1] == proposal.token_id
               ? Outcome::kRepeated
               : Outcome::kMalformed;
  }
  const Node& node = nodes_[name.index];
  const bool is_below_root =
      !parent->index.has_value() && parent->text_length == length_;
  const bool same_parent =
      node.parent == kRoot ? is_below_root : parent->index == node.parent;
  return same_parent && node.token_id == proposal.token_id
             ? Outcome::kRepeated
             : Outcome::kMalformed;
}

TokenTree::Outcome TokenTree::Compare(int text_length, const Proposal& proposal,
                                      absl::Span<const int32_t> text) {
  if (text[text_length] != proposal.token_id) {
    newest_number_ = proposal.number;
    return Outcome::kContradicted;
  }
  if (static_cast<int>(names_.size()) >= kMaxNumbers) {
    return Outcome::kMalformed;
  }
  newest_number_ = proposal.number;
  names_.push_back({proposal.number, kRoot, text_length + 1});
  return Outcome::kCommitted;
}

TokenTree::Outcome TokenTree::AddBelow(int parent, const Proposal& proposal) {
  const absl::optional<int> sibling = Child(parent, proposal.token_id);
  const bool is_new = !sibling.has_value() || nodes_[*sibling].is_local;
  if (static_cast<int>(names_.size()) >= kMaxNumbers ||
      (is_new && static_cast<int>(nodes_.size()) - num_local_ >= kMaxNodes)) {
    return Outcome::kMalformed;
  }
  newest_number_ = proposal.number;
  if (sibling.has_value()) {
    names_.push_back({proposal.number, *sibling, 0});
    if (is_new) --num_local_;
    nodes_[*sibling].is_local = false;
    Raise(*sibling, proposal.score);
    return is_new ? Outcome::kAdded : Outcome::kMerged;
  }
  names_.push_back({proposal.number, static_cast<int>(nodes_.size()), 0});
  Append(parent, proposal.token_id, proposal.score);
  return Outcome::kAdded;
}

absl::optional<int> TokenTree::AddLocal(int parent, int32_t token_id,
                                        float score) {
  const absl::optional<int> sibling = Child(parent, token_id);
  if (sibling.has_value()) {
    Raise(*sibling, score);
    return sibling;
  }
  if (num_local_ >= kMaxLocal) return absl::nullopt;
  ++num_local_;
  Append(parent, token_id, score);
  nodes_.back().is_local = true;
  return static_cast<int>(nodes_.size()) - 1;
}

void TokenTree::DropLocal() {
  if (num_local_ == 0) return;
  moved_.assign(nodes_.size(), kDropped);
  int kept = 0;
  for (int i = 0; i < static_cast<int>(nodes_.size()); ++i) {
    // The parent of a node with a number has one, too.
    if (nodes_[i].is_local) continue;
    Node node = nodes_[i];
    if (node.parent != kRoot) node.parent = moved_[node.parent];
    moved_[i] = kept;
    nodes_[kept++] = node;
  }
  nodes_.resize(static_cast<size_t>(kept));
  num_local_ = 0;
  MoveNames();
}

void TokenTree::Raise(int index, float score) {
  if (score <= nodes_[index].score) return;
  nodes_[index].score = score;
  SumScores();
}

void TokenTree::Append(int parent, int32_t token_id, float score) {
  Node node;
  node.token_id = token_id;
  node.parent = parent;
  node.score = node.path_score = score;
  if (parent != kRoot) {
    node.depth = nodes_[parent].depth + 1;
    node.path_score += nodes_[parent].path_score;
  }
  nodes_.push_back(node);
}

void TokenTree::SumScores() {
  for (Node& node : nodes_) {
    const bool is_child = node.parent != kRoot;
    node.path_score =
        (is_child ? nodes_[node.parent].path_score : 0) + node.score;
  }
}

int TokenTree::Reroot(absl::Span<const int32_t> token_ids) {
  const int count = static_cast<int>(token_ids.size());
  if (count == 0) return 0;
  int walked = 0;
  int root = kRoot;
  while (walked < count) {
    const absl::optional<int> child = Child(root, token_ids[walked]);
    if (!child.has_value()) break;
    root = *child;
    ++walked;
    for (Name& name : names_) {
      if (name.index == root) name = {name.number, kRoot, length_ + walked};
    }
  }
  KeepBelow(walked == count ? root : kDropped);
  length_ += count;
  return walked;
}

void TokenTree::KeepBelow(int root) {
  moved_.assign(nodes_.size(), kDropped);
  num_local_ = 0;
  int kept = 0;
  for (int i = 0; i < static_cast<int>(nodes_.size()); ++i) {
    Node node = nodes_[i];
    if (node.parent == root) {
      node.parent = kRoot;
      node.depth = 1;
    } else if (node.parent != kRoot && moved_[node.parent] != kDropped) {
      node.parent = moved_[node.parent];
      node.depth = nodes_[node.parent].depth + 1;
    } else {
      continue;
    }
    moved_[i] = kept;
    nodes_[kept++] = node;
    if (node.is_local) ++num_local_;
  }
  nodes_.resize(static_cast<size_t>(kept));
  SumScores();
  MoveNames();
}

void TokenTree::MoveNames() {
  const auto is_dropped = [this](const Name& name) {
    return name.index != kRoot && moved_[name.index] == kDropped;
  };
  names_.erase(std::remove_if(names_.begin(), names_.end(), is_dropped),
               names_.end());
  for (Name& name : names_) {
    if (name.index != kRoot) name.index = moved_[name.index];
  }
}

void TokenTree::Forget(int base_length) {
  const auto is_below = [base_length](const Name& name) {
    return name.index == kRoot && name.text_length < base_length;
  };
  names_.erase(std::remove_if(names_.begin(), names_.end(), is_below),
               names_.end());
}

void TokenTree::Clear() {
  nodes_.clear();
  names_.clear();
  newest_number_ = num_local_ = 0;
}

absl::optional<int> TokenTree::Child(int parent, int32_t token_id) const {
  for (int i = parent + 1; i < static_cast<int>(nodes_.size()); ++i) {
    if (nodes_[i].parent == parent && nodes_[i].token_id == token_id) return i;
  }
  return absl::nullopt;
}

bool TokenTree::HasChild(int parent) const {
  for (int i = parent + 1; i < static_cast<int>(nodes_.size()); ++i) {
    if (nodes_[i].parent == parent) return true;
  }
  return false;
}

int TokenTree::NumberOf(int index) const {
  for (const Name& name : names_) {
    if (name.index == index) return name.number;
  }
  return 0;
}

void TokenTree::BestPath(std::vector<int>* indices) const {
  // The best child of the root, then of each node; then the path over it: a
  // node is never above its depth.
  std::vector<int>& best = *indices;
  best.assign(nodes_.size() + 1, kRoot);
  for (int i = 0; i < static_cast<int>(nodes_.size()); ++i) {
    int& child = best[nodes_[i].parent + 1];
    if (child == kRoot || nodes_[i].score > nodes_[child].score) child = i;
  }
  size_t depth = 0;
  for (int node = best[0]; node != kRoot;) {
    const int child = best[node + 1];
    best[depth++] = node;
    node = child;
  }
  best.resize(depth);
}

int TokenTree::BestDepth() const {
  std::vector<int> path;
  BestPath(&path);
  return static_cast<int>(path.size());
}

void TokenTree::Best(int count, int max_depth,
                     std::vector<int>* indices) const {
  indices->clear();
  for (int i = 0; i < static_cast<int>(nodes_.size()); ++i) {
    if (nodes_[i].depth <= max_depth) indices->push_back(i);
  }
  if (count >= static_cast<int>(indices->size())) return;
  // A parent is never after its child: its score is not below, its index is.
  std::nth_element(indices->begin(), indices->begin() + std::max(0, count),
                   indices->end(), [this](int a, int b) {
                     const float score = nodes_[a].path_score;
                     const float other = nodes_[b].path_score;
                     return score != other ? score > other : a < b;
                   });
  indices->resize(static_cast<size_t>(std::max(0, count)));
  std::sort(indices->begin(), indices->end());
}

}  // namespace nacre::speculation
