#include "speculation/draft_buffer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "speculation/ratio_test.h"

namespace nacre::speculation {
namespace {

// Whether a node is on the draft's main path where its parent is. That goes
// always to the first child, which the draft numbers before its siblings.
bool IsFirstChild(const TokenTree& tree, int index) {
  const absl::Span<const TokenTree::Node> nodes = tree.nodes();
  for (int i = 0; i < static_cast<int>(nodes.size()); ++i) {
    if (i != index && nodes[i].parent == nodes[index].parent &&
        tree.NumberOf(i) < tree.NumberOf(index)) {
      return false;
    }
  }
  return true;
}

}  // namespace

DraftBuffer::DraftBuffer(Verification verification, int length)
    : verification_(verification), tree_(length) {
  Attach(length);
}

void DraftBuffer::Attach(int opened_length) {
  tree_.Clear();
  best_path_.clear();
  distributions_.clear();
  standing_ = Standing::kMismatch;
  speaks_ = Speaks::kNothing;
  newest_ = Order();
  number_ = 0;
  mismatch_place_ = -1;
  left_main_length_ = 0;
  end_length_ = known_length_ = verified_length_ = accepted_length_ =
      std::min(opened_length, tree_.length());
}

DraftBuffer::Account DraftBuffer::TakeAccount() {
  // What was told cannot be taken back.
  accepted_length_ = std::max(accepted_length_, verified_length_);
  return std::exchange(account_, Account());
}

void DraftBuffer::Count(int place, bool equal) {
  if (place >= verified_length_) {
    ++account_.verified;
    verified_length_ = place + 1;
    accepted_length_ = std::max(accepted_length_, place);
  }
  if (equal && place >= accepted_length_) {
    ++account_.accepted;
    accepted_length_ = place + 1;
  }
}

void DraftBuffer::Know(int length) {
  known_length_ = std::max(known_length_, length);
}

TokenTree::Outcome DraftBuffer::AddNode(const TokenTree::Proposal& proposal,
                                        absl::Span<const int32_t> text) {
  absl::optional<TokenTree::Place> parent;
  if (proposal.parent != 0) parent = tree_.Find(proposal.parent);
  const int place =
      parent.has_value() ? parent->text_length : proposal.base_length;
  const TokenTree::Outcome outcome = tree_.Add(proposal, text);
  switch (outcome) {
    case TokenTree::Outcome::kAdded:
    case TokenTree::Outcome::kMerged:
      ++fates_.placed;
      Know(tree_.length());
      break;
    case TokenTree::Outcome::kCommitted:
      ++fates_.committed;
      Count(place, /*equal=*/true);
      Know(place + 1);
      // A sibling of the token that differed.
      if (standing_ == Standing::kMismatch && place == mismatch_place_) {
        standing_ = Standing::kOpen;
      }
      break;
    case TokenTree::Outcome::kContradicted:
      ++fates_.contradicted;
      Count(place, /*equal=*/false);
      if (place < known_length_) break;  // the right sibling is known
      standing_ = Standing::kMismatch;
      mismatch_place_ = place;
      left_main_length_ = std::max(left_main_length_, place + 1);
      break;
    case TokenTree::Outcome::kStale:
      ++fates_.stale;
      break;
    case TokenTree::Outcome::kRepeated:
    case TokenTree::Outcome::kMalformed:
      break;
  }
  return outcome;
}

DraftBuffer::Outcome DraftBuffer::Add(const Tail& tail,
                                      absl::Span<const int32_t> text) {
  if (tail.base_length < 1) return Outcome::kMalformed;
  if (tail.base_length < newest_.base_length) {
    fates_.stale += static_cast<int64_t>(tail.token_ids.size());
    return Outcome::kStale;
  }
  const bool is_tree =
      tail.is_tree() || (speaks_tree() && tail.token_ids.empty());
  const Outcome outcome = is_tree ? AddNodes(tail, text) : AddChain(tail, text);
  if (!is_tree && outcome == Outcome::kStale) {
    fates_.stale += static_cast<int64_t>(tail.token_ids.size());
  }
  if (standing_ == Standing::kOpen && known_length_ >= tree_.length()) {
    standing_ = Standing::kFlow;
  }
  tree_.BestPath(&best_path_);
  return outcome;
}

bool DraftBuffer::HasDistributions(const Tail& tail) const {
  if (verification_ == Verification::kExact) return true;
  if (tail.distributions.size() != tail.token_ids.size()) return false;
  for (size_t i = 0; i < tail.token_ids.size(); ++i) {
    if (!IsValid(tail.distributions[i], tail.token_ids[i])) return false;
  }
  return true;
}

DraftBuffer::Outcome DraftBuffer::AddChain(const Tail& tail,
                                           absl::Span<const int32_t> text) {
  // Tokens below its base came to the draft from us: nothing to compare there.
  if (speaks_tree()) return Outcome::kMalformed;
  const int base = tail.base_length;
  const int next = std::max(end_length_, base);
  if (next > base && !tree_.Find(number_).has_value()) return Outcome::kStale;
  const int count = static_cast<int>(tail.token_ids.size());
  if (!HasDistributions(tail) || tail.first_position < 0 ||
      tail.first_position > next ||
      tail.first_position + count > tree_.length() + kMaxLead + 1) {
    return Outcome::kMalformed;
  }
  const Order order = {base, tail.first_position + count, tail.stop};
  if (order <= newest_) return Outcome::kRepeated;
  newest_ = order;
  end_length_ = next;
  if (count > 0) speaks_ = Speaks::kChain;
  tree_.Forget(base);
  Know(base);
  for (int i = next - tail.first_position; i < count; ++i) {
    TokenTree::Proposal proposal;
    proposal.number = number_ + 1;
    proposal.parent = end_length_ == base ? 0 : number_;
    proposal.base_length = base;
    proposal.token_id = tail.token_ids[i];
    const TokenTree::Outcome outcome = AddNode(proposal, text);
    if (outcome == TokenTree::Outcome::kMalformed) return Outcome::kMalformed;
    if (outcome == TokenTree::Outcome::kAdded &&
        verification_ == Verification::kRatio) {
      distributions_.push_back(tail.distributions[i]);
    }
    ++number_;
    ++end_length_;
    if (outcome == TokenTree::Outcome::kContradicted) return Outcome::kMismatch;
  }
  return Outcome::kApplied;
}

bool DraftBuffer::IsWellFormedTree(const Tail& tail) const {
  const size_t count = tail.token_ids.size();
  if (verification_ == Verification::kRatio || speaks_ == Speaks::kChain ||
      !tail.distributions.empty() || tail.parents.size() != count ||
      tail.scores.size() != count) {
    return false;
  }
  if (count == 0) {
    return tail.first_position >= 0 &&
           tail.first_position <= tree_.length() + kMaxLead + 1;
  }
  if (count > kMaxTailNodes || tail.first_position != tail.base_length ||
      tail.first_node < 1 ||
      tail.first_node > kMaxNode - static_cast<int>(count) + 1) {
    return false;
  }
  for (size_t i = 0; i < count; ++i) {
    const int number = tail.first_node + static_cast<int>(i);
    if (tail.parents[i] < 0 || tail.parents[i] >= number ||
        !std::isfinite(tail.scores[i]) || tail.scores[i] > 0) {
      return false;
    }
  }
  return true;
}

DraftBuffer::Outcome DraftBuffer::AddNodes(const Tail& tail,
                                           absl::Span<const int32_t> text) {
  if (!IsWellFormedTree(tail)) return Outcome::kMalformed;
  const int count = static_cast<int>(tail.token_ids.size());
  const Standing had_standing = standing_;
  // What an empty message left there is a position, not a number.
  if (speaks_ == Speaks::kNothing) newest_.end = 0;
  const Order order = {tail.base_length,
                       count == 0 ? newest_.end : tail.first_node + count - 1,
                       tail.stop};
  if (order <= newest_) return Outcome::kRepeated;
  speaks_ = Speaks::kTree;
  int applied = 0;
  for (int i = 0; i < count; ++i) {
    TokenTree::Proposal proposal;
    proposal.number = tail.first_node + i;
    proposal.parent = tail.parents[i];
    proposal.base_length = tail.base_length;
    proposal.token_id = tail.token_ids[i];
    proposal.score = tail.scores[i];
    const TokenTree::Outcome outcome = AddNode(proposal, text);
    if (outcome == TokenTree::Outcome::kMalformed) return Outcome::kMalformed;
    if (outcome != TokenTree::Outcome::kStale &&
        outcome != TokenTree::Outcome::kRepeated) {
      ++applied;
    }
  }
  if (applied == 0 && count > 0) return Outcome::kStale;
  newest_ = order;
  tree_.Forget(tail.base_length);
  Know(tail.base_length);
  if (count > 0) {
    // Its last node, where that still stands.
    const absl::optional<TokenTree::Place> last =
        tree_.Find(tail.first_node + count - 1);
    end_length_ = last.has_value() ? last->text_length : tree_.length();
  }
  return standing_ != had_standing && standing_ == Standing::kMismatch
             ? Outcome::kMismatch
             : Outcome::kApplied;
}

void DraftBuffer::SetLocal(absl::Span<const SuffixNode> nodes) {
  tree_.DropLocal();
  local_.clear();
  for (const SuffixNode& node : nodes) {
    const absl::optional<int> parent =
        node.parent < 0 ? TokenTree::kRoot : local_[node.parent];
    local_.push_back(
        parent.has_value()
            ? tree_.AddLocal(*parent, node.token_id,
                             static_cast<float>(std::log2(node.given_parent)))
            : absl::nullopt);
  }
  tree_.BestPath(&best_path_);
}

bool DraftBuffer::has_draft_tail() const {
  return std::any_of(tree_.nodes().begin(), tree_.nodes().end(),
                     [](const TokenTree::Node& node) {
                       return node.parent == TokenTree::kRoot && !node.is_local;
                     });
}

int DraftBuffer::worth() const {
  if (!tree_.has_local()) return depth();
  double worth = 0;
  for (const int node : best_path_) {
    const TokenTree::Node& of = tree_.nodes()[node];
    worth += of.is_local ? std::exp2(of.path_score) : 1;
  }
  return static_cast<int>(worth);
}

bool DraftBuffer::OnCommitted(int base_length, int count,
                              absl::Span<const int32_t> text) {
  tree_.DropLocal();
  const absl::Span<const int32_t> added = text.subspan(base_length);
  const int num_added = static_cast<int>(added.size());
  int node = TokenTree::kRoot;
  int walked = 0;
  bool differs = false;
  while (walked < num_added && tree_.HasChild(node)) {
    const absl::optional<int> child = tree_.Child(node, added[walked]);
    if (walked < count) Count(base_length + walked, child.has_value());
    differs = !child.has_value();
    if (differs || !IsFirstChild(tree_, *child)) {
      left_main_length_ = base_length + walked + 1;
    }
    if (differs) break;
    node = *child;
    ++walked;
  }
  tree_.Reroot(added);
  tree_.BestPath(&best_path_);
  const size_t gone =
      walked == num_added ? static_cast<size_t>(walked) : distributions_.size();
  distributions_.erase(
      distributions_.begin(),
      distributions_.begin() + std::min(gone, distributions_.size()));
  if (walked > 0) Know(base_length + walked);
  if (differs) {
    standing_ = Standing::kMismatch;
    mismatch_place_ = base_length + walked;
    end_length_ = mismatch_place_ + 1;
  } else {
    standing_ = walked == num_added ? Standing::kFlow : Standing::kOpen;
  }
  return differs;
}

}  // namespace nacre::speculation
