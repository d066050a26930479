#include "speculation/head_draft.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>

#include "common/check.h"

namespace nacre::speculation {
namespace {

using Probabilities = std::array<double, kRanks>;

// Of each head's candidates.
std::vector<Probabilities> ProbabilitiesOf(
    absl::Span<const HeadCandidates> heads,
    const HeadCalibrations& calibrations) {
  NACRE_CHECK(heads.size() <= calibrations.size(), "a calibration for each");
  std::vector<Probabilities> result(heads.size());
  for (size_t k = 0; k < heads.size(); ++k) {
    const size_t count = static_cast<size_t>(heads[k].count);
    if (count == 0) continue;
    std::array<float, kRanks> log2s;
    calibrations[k].Apply({heads[k].scores.data(), count},
                          {log2s.data(), count});
    for (size_t i = 0; i < count; ++i) {
      result[k][i] = std::exp2(double{log2s[i]});
    }
  }
  return result;
}

// The candidate of this rank at this depth, from 1, below `parent`; false:
// there is none.
bool PlaceCandidate(absl::Span<const HeadCandidates> heads,
                    absl::Span<const Probabilities> probabilities, int depth,
                    int rank, int parent, double parent_probability,
                    SuffixNode* node) {
  const size_t k = static_cast<size_t>(depth - 1);
  if (k >= heads.size() || rank >= heads[k].count) return false;
  const size_t i = static_cast<size_t>(rank);
  node->token_id = heads[k].token_ids[i];
  node->parent = parent;
  node->given_parent = probabilities[k][i];
  node->probability = parent_probability * node->given_parent;
  return true;
}

void GrowStatic(absl::Span<const HeadCandidates> heads,
                absl::Span<const Probabilities> probabilities,
                const TreeSpec& tree, std::vector<SuffixNode>* nodes) {
  std::vector<int> index(tree.nodes.size(), -1);  // in *nodes; -1: left out
  std::vector<int> depths(tree.nodes.size(), 1);
  for (size_t i = 0; i < tree.nodes.size(); ++i) {
    const auto& [parent, rank] = tree.nodes[i];
    if (parent >= 0) {
      if (index[parent] < 0) continue;
      depths[i] = depths[parent] + 1;
    }
    const int at = parent < 0 ? -1 : index[parent];
    SuffixNode node;
    if (!PlaceCandidate(heads, probabilities, depths[i], rank, at,
                        at < 0 ? 1 : (*nodes)[at].probability, &node)) {
      continue;
    }
    index[i] = static_cast<int>(nodes->size());
    nodes->push_back(node);
  }
}

// The candidates that may come next: of each node the next sibling and the
// first child.
class BestGrowth {
 public:
  BestGrowth(absl::Span<const HeadCandidates> heads,
             absl::Span<const Probabilities> probabilities)
      : heads_(heads), probabilities_(probabilities) {}

  void Grow(const SuffixLimits& limits, std::vector<SuffixNode>* nodes) {
    Add(1, 0, -1, 1);
    while (static_cast<int>(nodes->size()) < limits.max_nodes &&
           !next_.empty()) {
      const auto best = std::max_element(
          next_.begin(), next_.end(), [](const Next& a, const Next& b) {
            return a.node.probability < b.node.probability;
          });
      const Next taken = *best;
      next_.erase(best);
      if (taken.node.probability < limits.least_probability) break;
      nodes->push_back(taken.node);
      const int index = static_cast<int>(nodes->size()) - 1;
      const int parent = taken.node.parent;
      if (!limits.is_chain) {
        Add(taken.depth, taken.rank + 1, parent,
            parent < 0 ? 1 : (*nodes)[parent].probability);
      }
      if (taken.depth < limits.max_depth) {
        Add(taken.depth + 1, 0, index, taken.node.probability);
      }
    }
  }

 private:
  struct Next {
    SuffixNode node;
    int depth = 1;
    int rank = 0;
  };

  void Add(int depth, int rank, int parent, double parent_probability) {
    Next next{{}, depth, rank};
    if (PlaceCandidate(heads_, probabilities_, depth, rank, parent,
                       parent_probability, &next.node)) {
      next_.push_back(next);
    }
  }

  const absl::Span<const HeadCandidates> heads_;
  const absl::Span<const Probabilities> probabilities_;
  std::vector<Next> next_;
};

}  // namespace

int HeadCandidates::RankOf(int32_t token_id) const {
  const auto begin = token_ids.begin();
  const auto end = begin + count;
  const auto found = std::find(begin, end, token_id);
  return found == end ? kBeyond : static_cast<int>(found - begin) + 1;
}

void HeadCandidates::Teach(int32_t token_id,
                           ScoreCalibration* calibration) const {
  calibration->Add({scores.data(), static_cast<size_t>(count)},
                   RankOf(token_id));
}

void KeepLikeliest(const SuffixLimits& limits, std::vector<SuffixNode>* nodes) {
  std::vector<int> order(nodes->size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return (*nodes)[a].probability > (*nodes)[b].probability;
  });
  std::vector<SuffixNode> kept;
  std::vector<int> index(nodes->size(), -1);  // of each in `kept`
  std::vector<int> depths;                    // of each of `kept`
  for (const int from : order) {
    if (static_cast<int>(kept.size()) == limits.max_nodes) break;
    SuffixNode node = (*nodes)[from];
    if (node.probability < limits.least_probability) break;
    int depth = 1;
    if (node.parent >= 0) {
      node.parent = index[node.parent];
      if (node.parent < 0) continue;
      depth = depths[node.parent] + 1;
    }
    if (depth > limits.max_depth ||
        (limits.is_chain && node.parent != static_cast<int>(kept.size()) - 1)) {
      continue;
    }
    index[from] = static_cast<int>(kept.size());
    kept.push_back(node);
    depths.push_back(depth);
  }
  nodes->swap(kept);
}

void GrowHeadTree(absl::Span<const HeadCandidates> heads,
                  const HeadCalibrations& calibrations, const TreeSpec& tree,
                  const SuffixLimits& limits, std::vector<SuffixNode>* nodes) {
  nodes->clear();
  if (limits.max_depth < 1) return;
  const std::vector<Probabilities> probabilities =
      ProbabilitiesOf(heads, calibrations);
  if (tree.shape == TreeShape::kStatic) {
    GrowStatic(heads, probabilities, tree, nodes);
    KeepLikeliest(limits, nodes);
  } else {
    BestGrowth(heads, probabilities).Grow(limits, nodes);
  }
}

void MergeNodes(absl::Span<const SuffixNode> a, absl::Span<const SuffixNode> b,
                const SuffixLimits& limits, std::vector<SuffixNode>* merged) {
  merged->assign(a.begin(), a.end());
  std::vector<int> index;  // of each of b in *merged
  for (SuffixNode node : b) {
    if (node.parent >= 0) node.parent = index[node.parent];
    const auto same = std::find_if(
        merged->begin(), merged->end(), [&node](const SuffixNode& other) {
          return other.parent == node.parent && other.token_id == node.token_id;
        });
    index.push_back(static_cast<int>(same - merged->begin()));
    if (same == merged->end()) {
      merged->push_back(node);
    } else {
      same->probability = std::max(same->probability, node.probability);
    }
  }
  KeepLikeliest(limits, merged);
  for (SuffixNode& node : *merged) {
    node.given_parent =
        node.parent < 0 ? node.probability
                        : std::min(1.0, node.probability /
                                            (*merged)[node.parent].probability);
  }
}

void HeadDraft::Look(absl::Span<const int32_t> text,
                     absl::Span<const HeadCandidates> heads) {
  Learn(text);
  said_.push_back(
      {static_cast<int>(text.size()), 0, {heads.begin(), heads.end()}});
}

absl::Span<const SuffixNode> HeadDraft::Propose(absl::Span<const int32_t> text,
                                                const SuffixLimits& limits) {
  Learn(text);
  nodes_.clear();
  if (!said_.empty() && said_.back().length == static_cast<int>(text.size())) {
    GrowHeadTree(said_.back().heads, *calibrations_, *tree_, limits, &nodes_);
  }
  return nodes_;
}

bool HeadDraft::LearnFrom(absl::Span<const int32_t> text, Said* said) {
  while (said->learned < said->heads.size()) {
    const HeadCandidates& head = said->heads[said->learned];
    const size_t at = static_cast<size_t>(said->length) + said->learned;
    if (at >= text.size()) return true;
    if (head.count == 0) return false;
    head.Teach(text[at], &(*calibrations_)[said->learned]);
    if (head.RankOf(text[at]) == kBeyond) return false;
    ++said->learned;
  }
  return false;
}

void HeadDraft::Learn(absl::Span<const int32_t> text) {
  size_t kept = 0;
  for (Said& said : said_) {
    if (LearnFrom(text, &said)) std::swap(said_[kept++], said);
  }
  said_.resize(kept);
}

}  // namespace nacre::speculation
