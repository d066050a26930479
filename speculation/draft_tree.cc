#include "speculation/draft_tree.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"

namespace nacre::speculation {
namespace {

constexpr int kRootIndex = TokenTree::kRoot;
constexpr int kNoIndex = -2;
// The share of a tree's room below which its nodes become dearer. (On the
// bundled pair, at alpha 0.77 and c = 10, an eighth is as good. Where they
// become dearer from the first node on, 2 % are lost.)
constexpr float kScarceRoom = 0.25f;

// Whether any node may be expanded, and get any children.
bool IsOpen(const TreeSpec& shape) {
  return shape.shape == TreeShape::kChain || shape.shape == TreeShape::kBest;
}

}  // namespace

DraftTree::DraftTree(int length, int num_slots) : tree_(length) {
  // The lowest slot is taken first.
  for (int slot = num_slots - 1; slot >= 0; --slot) free_slots_.push_back(slot);
}

int DraftTree::IndexOf(int number) const {
  if (number == root_.number) return kRootIndex;
  const auto it = std::lower_bound(
      drafted_.begin(), drafted_.end(), number,
      [](const Drafted& node, int wanted) { return node.number < wanted; });
  return it != drafted_.end() && it->number == number
             ? static_cast<int>(it - drafted_.begin())
             : kNoIndex;
}

bool DraftTree::MayExpand(int index, const Limits& limits) const {
  const Drafted& node = At(index);
  if (node.is_fed) return false;
  const int depth = index < 0 ? 0 : tree_.nodes()[index].depth;
  if (depth >= limits.lead || tree_.length() + depth >= limits.max_length) {
    return false;
  }
  if (limits.shape != nullptr && !ShapeExpands(index, *limits.shape)) {
    return false;
  }
  return index < 0 ||
         std::find(limits.end_ids.begin(), limits.end_ids.end(),
                   tree_.nodes()[index].token_id) == limits.end_ids.end();
}

bool DraftTree::MayExpandTip(const Limits& limits) const {
  return static_cast<int>(drafted_.size()) < kMaxTailNodes &&
         MayExpand(Tip(), limits);
}

int DraftTree::Room(const Limits& limits) const {
  const int path = static_cast<int>(main_.size());
  return kMaxTailNodes - static_cast<int>(drafted_.size()) -
         std::max(0, limits.lead - path);
}

float DraftTree::Price(const Limits& limits, int step_rows) const {
  // Rows of the step have their first children, whatever is left.
  const int room = Room(limits) - step_rows;
  const int most = kMaxTailNodes - step_rows - limits.lead;
  if (room <= 0 || most <= 0) return 1;  // more than any probability
  const float share = static_cast<float>(room) / static_cast<float>(most);
  return limits.least_score * std::min(1.0f, share / kScarceRoom);
}

bool DraftTree::MayExpandBranch(int index, const Limits& limits,
                                int step_rows) const {
  return !drafted_[index].is_main &&
         (limits.shape != nullptr ||
          tree_.nodes()[index].path_score >= Price(limits, step_rows)) &&
         MayExpand(index, limits);
}

bool DraftTree::WantsStep(const Limits& limits) const {
  if (MayExpandTip(limits)) return true;
  if (free_slots_.empty() || Room(limits) <= 0) return false;
  for (int i = 0; i < static_cast<int>(drafted_.size()); ++i) {
    if (MayExpandBranch(i, limits, /*step_rows=*/0)) return true;
  }
  return false;
}

void DraftTree::BeginStep(const Limits& limits, int most,
                          std::vector<Row>* rows) {
  rows->clear();
  const int tip = Tip();
  int room = std::min(most, kMaxDraftRows);
  if (room > 0 && MayExpandTip(limits)) {
    Drafted& node = At(tip);
    node.is_fed = node.is_in_step = true;
    const int depth = tip < 0 ? 0 : tree_.nodes()[tip].depth;
    rows->push_back({.number = node.number,
                     .token_id = tip < 0 ? 0 : tree_.nodes()[tip].token_id,
                     .position = tree_.length() + depth - 1});
    --room;
  }
  step_rows_ = static_cast<int>(rows->size());
  // Each will need a slot, and its first child a node.
  room = std::min({room, free_slots(), Room(limits)});
  if (room <= 0) return;
  likeliest_.clear();
  for (int i = 0; i < static_cast<int>(drafted_.size()); ++i) {
    if (MayExpandBranch(i, limits, step_rows_)) likeliest_.push_back(i);
  }
  const size_t count = std::min(likeliest_.size(), static_cast<size_t>(room));
  std::partial_sort(likeliest_.begin(), likeliest_.begin() + count,
                    likeliest_.end(), [this](int a, int b) {
                      const float score = tree_.nodes()[a].path_score;
                      const float other = tree_.nodes()[b].path_score;
                      return score != other ? score > other : a < b;
                    });
  for (size_t i = 0; i < count; ++i) {
    const TokenTree::Node& place = tree_.nodes()[likeliest_[i]];
    Drafted& node = drafted_[likeliest_[i]];
    node.is_fed = node.is_in_step = true;
    node.slot = free_slots_.back();
    free_slots_.pop_back();
    rows->push_back({.number = node.number,
                     .token_id = place.token_id,
                     .position = tree_.length() + place.depth - 1,
                     .slot = node.slot,
                     .parent_slot = At(place.parent).slot});
  }
  step_rows_ = static_cast<int>(rows->size());
}

void DraftTree::AbandonStep() {
  const auto abandon = [this](Drafted& node) {
    if (!node.is_in_step) return;
    node.is_in_step = node.is_fed = false;
    if (node.slot >= 0) free_slots_.push_back(node.slot);
    node.slot = -1;
  };
  abandon(root_);
  for (Drafted& node : drafted_) abandon(node);
}

bool DraftTree::KeepsStep(absl::Span<const int32_t> token_ids) const {
  int root = kRootIndex;
  for (const int32_t token_id : token_ids) {
    const absl::optional<int> child = tree_.Child(root, token_id);
    if (!child.has_value()) return false;
    root = *child;
  }
  if (At(root).is_in_step) return true;
  // A node's parent is before it.
  std::vector<bool> is_below(drafted_.size(), false);
  for (size_t i = 0; i < drafted_.size(); ++i) {
    const int parent = tree_.nodes()[i].parent;
    is_below[i] = parent == root || (parent >= 0 && is_below[parent]);
    if (is_below[i] && drafted_[i].is_in_step) return true;
  }
  return false;
}

void DraftTree::AddChild(int parent, int rank, int32_t token_id, float score,
                         absl::Span<const int32_t> text, Tail* tail) {
  TokenTree::Proposal node;
  node.number = ++newest_number_;
  node.parent = parent < 0 ? 0 : drafted_[parent].number;
  node.base_length = tree_.length();
  node.token_id = token_id;
  node.score = std::min(score, 0.0f);
  const TokenTree::Outcome outcome = tree_.Add(node, text);
  NACRE_CHECK(outcome == TokenTree::Outcome::kAdded,
              "children of a node differ, and it has them once");
  drafted_.push_back({.number = node.number, .rank = rank});
  if (tail->token_ids.empty()) tail->first_node = node.number;
  tail->token_ids.push_back(token_id);
  tail->parents.push_back(node.parent);
  tail->scores.push_back(node.score);
}

void DraftTree::OnExpanded(int number, const Children& children,
                           const Limits& limits, absl::Span<const int32_t> text,
                           Tail* tail) {
  const int parent = IndexOf(number);
  if (parent == kNoIndex || !At(parent).is_in_step) return;
  const size_t count =
      std::min(children.token_ids.size(), static_cast<size_t>(kRanks));
  Drafted& node = At(parent);
  node.is_in_step = false;
  node.candidates.count = static_cast<int>(count);
  std::copy_n(children.token_ids.begin(), count,
              node.candidates.token_ids.begin());
  std::copy_n(children.scores.begin(), count, node.candidates.scores.begin());
  const bool is_tip = parent == Tip();
  const float path_score = parent < 0 ? 0 : tree_.nodes()[parent].path_score;
  const size_t most =
      limits.shape == nullptr ? count : children.token_ids.size();
  for (size_t i = 0; i < most; ++i) {
    const float score = children.log2_probabilities[i];
    const int rank = static_cast<int>(i);
    if (i > 0 && limits.shape == nullptr &&
        path_score + score < Price(limits, step_rows_)) {
      continue;
    }
    if (i > 0 && limits.shape != nullptr &&
        (Room(limits) <= kMaxDraftRows ||
         !ShapeMakes(parent, rank, children, *limits.shape))) {
      continue;
    }
    AddChild(parent, rank, children.token_ids[i], score, text, tail);
    if (i == 0 && is_tip) {
      drafted_.back().is_main = true;
      main_.push_back(static_cast<int>(drafted_.size()) - 1);
      main_tokens_.push_back(children.token_ids[0]);
    }
  }
}

bool DraftTree::IsTipOfStep(int number) const {
  const int index = IndexOf(number);
  return index != kNoIndex && index == Tip() && At(index).is_in_step;
}

DraftTree::Walk DraftTree::Follow(absl::Span<const int32_t> token_ids) {
  const int count = static_cast<int>(token_ids.size());
  Walk walk;
  std::vector<int> path;
  int node = kRootIndex;
  while (walk.matched < count) {
    const absl::optional<int> child =
        tree_.Child(node, token_ids[walk.matched]);
    if (!child.has_value()) break;
    node = *child;
    path.push_back(node);
    ++walk.matched;
    if (drafted_[node].is_main) walk.on_main = walk.matched;
  }
  const bool goes_on = walk.matched == count;
  walk.rejected = !goes_on && At(node).candidates.count > 0;
  Judge(token_ids, path, walk.rejected);
  KeepSlots(path, walk, goes_on);
  // What was fed of the last token, if it had a node, the root has.
  root_ = goes_on ? At(node) : Drafted();
  root_.slot = -1;
  root_.is_main = false;
  tree_.Reroot(token_ids);
  tree_.Forget(tree_.length());
  KeepDrafted();
  return walk;
}

void DraftTree::Judge(absl::Span<const int32_t> token_ids,
                      const std::vector<int>& path, bool rejected) {
  judged_.clear();
  const size_t compared = path.size() + (rejected ? 1 : 0);
  for (size_t i = 0; i < compared; ++i) {
    const Candidates& candidates =
        At(i == 0 ? kRootIndex : path[i - 1]).candidates;
    const auto begin = candidates.token_ids.begin();
    const auto end = begin + candidates.count;
    const auto it = std::find(begin, end, token_ids[i]);
    Judged judged;
    judged.scores = candidates.scores;
    judged.count = candidates.count;
    judged.rank = it == end ? kBeyond : static_cast<int>(it - begin) + 1;
    judged.prepared =
        i < path.size() && At(path[i]).is_fed && !At(path[i]).is_in_step;
    judged_.push_back(judged);
    // Beyond it stand the nodes alone that were worth a row of the step.
    if (judged.rank > 1) return;
  }
}

void DraftTree::KeepSlots(const std::vector<int>& path, const Walk& walk,
                          bool goes_on) {
  kept_slots_.clear();
  if (walk.on_main == walk.matched) return;
  const auto keep = [this](int index) {
    Drafted& node = drafted_[index];
    if (!node.is_fed) return;
    kept_slots_.push_back(node.slot);
    free_slots_.push_back(node.slot);
    node.slot = -1;
  };
  for (int i = walk.on_main; i < walk.matched; ++i) keep(path[i]);
  if (!goes_on) return;
  // A first child is before its siblings.
  int node = path.back();
  for (int i = node + 1; i < static_cast<int>(drafted_.size()); ++i) {
    if (tree_.nodes()[i].parent != node) continue;
    keep(i);
    node = i;
  }
}

void DraftTree::KeepDrafted() {
  size_t kept = 0;
  for (Drafted& node : drafted_) {
    const absl::optional<TokenTree::Place> place = tree_.Find(node.number);
    if (place.has_value() && place->index.has_value()) {
      drafted_[kept++] = node;
    } else if (node.slot >= 0) {
      free_slots_.push_back(node.slot);
    }
  }
  drafted_.resize(kept);
  main_.clear();
  main_tokens_.clear();
  int tip = kRootIndex;
  for (int i = 0; i < static_cast<int>(drafted_.size()); ++i) {
    drafted_[i].is_main = tree_.nodes()[i].parent == tip;
    if (!drafted_[i].is_main) continue;
    tip = i;
    main_.push_back(i);
    main_tokens_.push_back(tree_.nodes()[i].token_id);
  }
}

void DraftTree::AppendPath(int number, std::vector<int32_t>* token_ids) const {
  const size_t begin = token_ids->size();
  for (int i = IndexOf(number); i >= 0; i = tree_.nodes()[i].parent) {
    token_ids->push_back(tree_.nodes()[i].token_id);
  }
  std::reverse(token_ids->begin() + static_cast<std::ptrdiff_t>(begin),
               token_ids->end());
}

std::vector<int> DraftTree::RanksTo(int index) const {
  std::vector<int> ranks;
  for (int i = index; i >= 0; i = tree_.nodes()[i].parent) {
    ranks.push_back(drafted_[i].rank);
  }
  std::reverse(ranks.begin(), ranks.end());
  return ranks;
}

bool DraftTree::ShapeExpands(int index, const TreeSpec& shape) const {
  if (IsOpen(shape)) return true;
  if (shape.shape == TreeShape::kCape) return index == Tip();
  if (shape.shape == TreeShape::kStatic) {
    const absl::optional<int> node = FindStaticNode(shape, RanksTo(index));
    return node.has_value() && HasStaticChild(shape, *node);
  }
  NACRE_CHECK(shape.shape == TreeShape::kEagle2, "a shape of these");
  if (index < 0) return true;
  const TokenTree::Node& node = tree_.nodes()[index];
  if (node.depth >= shape.depth) return false;
  int better = 0;
  for (int i = 0; i < static_cast<int>(tree_.nodes().size()); ++i) {
    const TokenTree::Node& other = tree_.nodes()[i];
    if (other.depth != node.depth) continue;
    better += other.path_score > node.path_score ||
              (other.path_score == node.path_score && i < index);
  }
  return better < shape.width;
}

bool DraftTree::ShapeMakes(int parent, int rank, const Children& children,
                           const TreeSpec& shape) const {
  if (IsOpen(shape)) return true;
  if (shape.shape == TreeShape::kCape) {
    return rank < CapeWidth(std::exp2(children.log2_probabilities[0]));
  }
  if (shape.shape == TreeShape::kStatic) {
    const absl::optional<int> node = FindStaticNode(shape, RanksTo(parent));
    return node.has_value() && HasStaticChild(shape, *node, rank);
  }
  NACRE_CHECK(shape.shape == TreeShape::kEagle2, "a shape of these");
  if (rank >= shape.width) return false;
  // It would not be among those that are verified.
  const float score = (parent < 0 ? 0 : tree_.nodes()[parent].path_score) +
                      children.log2_probabilities[static_cast<size_t>(rank)];
  const auto better = std::count_if(tree_.nodes().begin(), tree_.nodes().end(),
                                    [score](const TokenTree::Node& each) {
                                      return each.path_score >= score;
                                    });
  return better < shape.total;
}

}  // namespace nacre::speculation
