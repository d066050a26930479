// A draft that grows its tree level by level (EAGLE): its candidates below a
// node depend on the whole path to that node. They are ranked by the score that
// the target will draw with, as a draft worker's are (ranks.h). The likeliest
// nodes that are not expanded come next.
//
// GrownDraft learns by depth what a candidate's score is worth. It learns from
// the tokens that were committed there, whether a step verified them or not.
//
// Pure: no I/O, no clock, no threads.

#ifndef SPECULATION_GROWN_DRAFT_H_
#define SPECULATION_GROWN_DRAFT_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "speculation/head_draft.h"
#include "speculation/suffix_draft.h"

namespace nacre::speculation {

// Of one session.
class GrownDraft {
 public:
  static constexpr int kRoot = -1;

  // By depth, beginning with the root's children: no node is deeper.
  // They outlive this draft.
  explicit GrownDraft(HeadCalibrations* calibrations)
      : calibrations_(calibrations) {}

  // A new tree after `text`: all tokens so far, as of the last call and on.
  void Begin(absl::Span<const int32_t> text, const SuffixLimits& limits);
  // What to expand next: at first kRoot, then at most `count` nodes that are
  // not expanded, the likeliest first. None: it has grown.
  void NextToExpand(int count, std::vector<int>* nodes) const;
  // What the draft says below a node that was next.
  void Expand(int node, const HeadCandidates& said);

  const SuffixNode& node(int index) const {
    return nodes_[static_cast<size_t>(index)];
  }
  // Of the root 0.
  int depth(int node) const;
  // The tokens from the text to a node, it included.
  std::vector<int32_t> Path(int node) const;

  // The nodes after the end of `text`, the likeliest first; none unless Begin
  // was called with it. Valid until the next call.
  absl::Span<const SuffixNode> Propose(absl::Span<const int32_t> text,
                                       const SuffixLimits& limits);

 private:
  static constexpr int kNone = -1;
  struct Expansion {
    int depth = 0;  // of the node
    HeadCandidates said;
  };
  // Compares what was said with what came.
  void Learn(absl::Span<const int32_t> text);
  // Of a node, in expansions_; kNone: it is not expanded.
  int ExpansionOf(int node) const {
    return node == kRoot ? (expansions_.empty() ? kNone : 0)
                         : expansion_of_[static_cast<size_t>(node)];
  }

  HeadCalibrations* const calibrations_;
  SuffixLimits limits_;
  int length_ = 0;  // of the text that the tree is after; 0: there is none
  std::vector<SuffixNode> nodes_;      // a parent comes before its children
  std::vector<int> expansion_of_;      // of each
  std::vector<Expansion> expansions_;  // the root's first
  // The text has been compared up to here, where it stands at this node. False:
  // nothing is left to compare.
  bool learns_ = false;
  int learned_node_ = kRoot;
  int learned_length_ = 0;
  std::vector<SuffixNode> proposed_;
};

}  // namespace nacre::speculation

#endif  // SPECULATION_GROWN_DRAFT_H_
