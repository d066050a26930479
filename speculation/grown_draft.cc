#include "speculation/grown_draft.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "common/check.h"

namespace nacre::speculation {

void GrownDraft::Begin(absl::Span<const int32_t> text,
                       const SuffixLimits& limits) {
  Learn(text);
  limits_ = limits;
  limits_.max_depth =
      std::min(limits.max_depth, static_cast<int>(calibrations_->size()));
  length_ = learned_length_ = static_cast<int>(text.size());
  learned_node_ = kRoot;
  learns_ = true;
  nodes_.clear();
  expansion_of_.clear();
  expansions_.clear();
}

int GrownDraft::depth(int node) const {
  int depth = 0;
  for (; node != kRoot; node = this->node(node).parent) ++depth;
  return depth;
}

std::vector<int32_t> GrownDraft::Path(int node) const {
  std::vector<int32_t> path;
  for (; node != kRoot; node = this->node(node).parent) {
    path.push_back(this->node(node).token_id);
  }
  std::reverse(path.begin(), path.end());
  return path;
}

void GrownDraft::NextToExpand(int count, std::vector<int>* nodes) const {
  nodes->clear();
  if (limits_.max_depth < 1) return;
  if (expansions_.empty()) {
    nodes->push_back(kRoot);
    return;
  }
  for (int i = 0; i < static_cast<int>(nodes_.size()); ++i) {
    if (ExpansionOf(i) == kNone && depth(i) < limits_.max_depth &&
        node(i).probability >= limits_.least_probability) {
      nodes->push_back(i);
    }
  }
  std::stable_sort(nodes->begin(), nodes->end(), [this](int a, int b) {
    return node(a).probability > node(b).probability;
  });
  if (static_cast<int>(nodes->size()) > count) {
    nodes->resize(static_cast<size_t>(count));
  }
}

void GrownDraft::Expand(int node, const HeadCandidates& said) {
  NACRE_CHECK(ExpansionOf(node) == kNone, "a node is expanded once");
  const int depth = this->depth(node);
  if (node != kRoot) {
    expansion_of_[static_cast<size_t>(node)] =
        static_cast<int>(expansions_.size());
  }
  expansions_.push_back({depth, said});
  const size_t count = static_cast<size_t>(said.count);
  if (count == 0) return;
  std::array<float, kRanks> log2s;
  (*calibrations_)[static_cast<size_t>(depth)].Apply(
      {said.scores.data(), count}, {log2s.data(), count});
  const double probability = node == kRoot ? 1 : this->node(node).probability;
  for (size_t i = 0; i < (limits_.is_chain ? 1 : count); ++i) {
    SuffixNode child;
    child.token_id = said.token_ids[i];
    child.parent = node;
    child.given_parent = std::exp2(double{log2s[i]});
    child.probability = probability * child.given_parent;
    nodes_.push_back(child);
    expansion_of_.push_back(kNone);
  }
}

absl::Span<const SuffixNode> GrownDraft::Propose(absl::Span<const int32_t> text,
                                                 const SuffixLimits& limits) {
  Learn(text);
  proposed_.clear();
  if (length_ == static_cast<int>(text.size())) {
    proposed_ = nodes_;
    KeepLikeliest(limits, &proposed_);
  }
  return proposed_;
}

void GrownDraft::Learn(absl::Span<const int32_t> text) {
  while (learns_ && static_cast<size_t>(learned_length_) < text.size()) {
    const int expansion = ExpansionOf(learned_node_);
    learns_ = expansion != kNone;
    if (!learns_) return;
    const Expansion& at = expansions_[static_cast<size_t>(expansion)];
    learns_ = at.said.count > 0;
    if (!learns_) return;
    const int32_t token = text[static_cast<size_t>(learned_length_++)];
    at.said.Teach(token, &(*calibrations_)[static_cast<size_t>(at.depth)]);
    const int parent = learned_node_;
    learns_ = false;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].parent != parent || nodes_[i].token_id != token) continue;
      learned_node_ = static_cast<int>(i);
      learns_ = true;
    }
  }
}

}  // namespace nacre::speculation
