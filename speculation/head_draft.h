// A draft from heads over the target's own hidden state (Medusa). After the
// text head 0 guesses the next token, head 1 the one after, and so on, whatever
// came between. So a node's children are the candidates of the head at its
// depth, the same below all its siblings. Candidates are ranked by the score
// that the target will draw with, as a draft worker's are (ranks.h). The noise
// of each head's position is known.
//
// What a candidate's score is worth is learned by head, from what was committed
// there, whether a step verified it or not.
//
// Pure: no I/O, no clock, no threads.

#ifndef SPECULATION_HEAD_DRAFT_H_
#define SPECULATION_HEAD_DRAFT_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "speculation/ranks.h"
#include "speculation/suffix_draft.h"
#include "speculation/tree_spec.h"

namespace nacre::speculation {

// What one head says: scores fall, the first is finite.
struct HeadCandidates {
  int count = 0;  // 0: nothing sound
  std::array<int32_t, kRanks> token_ids = {};
  std::array<float, kRanks> scores = {};

  // 1 to count, or kBeyond.
  int RankOf(int32_t token_id) const;
  // The target's token was this one, and what was said sound.
  void Teach(int32_t token_id, ScoreCalibration* calibration) const;
};

// By head. Of all sessions of a kind of temperature.
using HeadCalibrations = std::vector<ScoreCalibration>;

// The likeliest nodes of the tree of all heads' candidates, the likeliest
// first. Of a static list those that it names. log2 of a candidate's
// probability, given that the tokens before are right, is that of its head.
void GrowHeadTree(absl::Span<const HeadCandidates> heads,
                  const HeadCalibrations& calibrations, const TreeSpec& tree,
                  const SuffixLimits& limits, std::vector<SuffixNode>* nodes);

// Sorts nodes, each below its parent and no likelier, and keeps what the
// limits allow: the likeliest first, each below its parent still.
void KeepLikeliest(const SuffixLimits& limits, std::vector<SuffixNode>* nodes);

// The nodes of both, the likeliest first; where both have one, as the likelier
// has it.
void MergeNodes(absl::Span<const SuffixNode> a, absl::Span<const SuffixNode> b,
                const SuffixLimits& limits, std::vector<SuffixNode>* merged);

// Of one session.
class HeadDraft {
 public:
  // `tree`: best, or a static list. Both outlive it; `calibrations` has as many
  // as there are heads.
  HeadDraft(const TreeSpec* tree, HeadCalibrations* calibrations)
      : tree_(tree), calibrations_(calibrations) {}

  // What the heads say after `text`: all tokens so far, as of the last call
  // and on.
  void Look(absl::Span<const int32_t> text,
            absl::Span<const HeadCandidates> heads);
  // The nodes after the end of `text`, none unless Look was called with it.
  // Valid until the next call.
  absl::Span<const SuffixNode> Propose(absl::Span<const int32_t> text,
                                       const SuffixLimits& limits);

 private:
  // What was said after a text of `length` tokens; the first `learned` heads
  // have been compared with what came.
  struct Said {
    int length = 0;
    size_t learned = 0;
    std::vector<HeadCandidates> heads;
  };
  // Compares what has been said with what came.
  void Learn(absl::Span<const int32_t> text);
  // Below a wrong token nothing is learned. Returns whether more may come.
  bool LearnFrom(absl::Span<const int32_t> text, Said* said);

  const TreeSpec* const tree_;
  HeadCalibrations* const calibrations_;
  std::vector<Said> said_;  // the newest last
  std::vector<SuffixNode> nodes_;
};

}  // namespace nacre::speculation

#endif  // SPECULATION_HEAD_DRAFT_H_
