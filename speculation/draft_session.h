// One session as its draft worker sees it: committed tokens plus the tree of
// what it drafted after them. Walks down the tree as tokens are committed,
// keeps what stands below the last of them and goes on from there. Can vanish
// at any moment without harm.
//
// Without slots for branches it drafts a chain: each node has the one child
// that was drawn. With slots it grows a tree, step by step (draft_tree.h).
//
// Pure: no I/O, no clock, no threads.

#ifndef SPECULATION_DRAFT_SESSION_H_
#define SPECULATION_DRAFT_SESSION_H_

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "speculation/draft_tree.h"
#include "speculation/pipeline.h"
#include "speculation/ranks.h"
#include "speculation/token_tree.h"

namespace nacre::speculation {

class DraftSession {
 public:
  struct Options {
    uint32_t epoch = 0;
    // The sequence never grows beyond this: prompt + max_tokens - 1 (the last
    // token is the target's own), or the draft's context or KV limit if
    // smaller.
    int max_length = 0;
    // By exact match drafting one of these ends the draft. By the ratio test it
    // drafts on after it: what a token is must not change when it is told
    // (docs/exactness.md, "Losses").
    std::vector<int32_t> end_ids;
    DraftPlan plan;
    Verification verification = Verification::kExact;
    // Of the sequence, for branches. 0: it drafts a chain. Only where exact
    // match verifies.
    int num_slots = 0;
  };

  // `committed` is the prompt and what was emitted; at least one token.
  DraftSession(Options options, std::vector<int32_t> committed);

  enum class CommitOutcome { kMatched, kMismatch, kRepeated, kMalformed };

  // Committed tokens from the target. Already applied ones are skipped; a gap
  // changes nothing (kMalformed). On kMismatch the sequence has been cut: KV
  // beyond kept_length() or kv_limit() must be dropped. Of a tree in either
  // case beyond kept_length(), and then tree()->kept_slots() become positions.
  CommitOutcome OnCommit(const Commit& commit);

  void OnPlan(const DraftPlan& plan);

  // Of positions from `end` on the drafter has nothing to say yet. From the
  // start there is no such end. `is_last`: it will hardly have more.
  void SetHorizon(int end, bool is_last = false) {
    horizon_ = end;
    horizon_is_end_ = horizon_is_end_ || is_last;
  }

  // Whether the draft may produce its next token now.
  bool WantsStep() const;

  // Of one that does not want a step: whether no verdict is expected to let it
  // go on. Its plan rests; or the main path of its tree has come to its end,
  // and no branch is worth a row.
  bool HasNothingToDo() const;

  // Whether it may go on after its next token, too, if nothing arrives
  // meanwhile and that token is no end. `policy_stop` as for OnDrafted.
  bool WantsStepAfterNext(bool policy_stop) const;

  // Appends the token drawn for position length() and returns the message for
  // the target. `policy_stop`: a length policy ends the chunk with it.
  // `candidates`: the best tokens for the position, by rank, that token first;
  // at most kRanks are kept. Empty: their ranks are not known.
  Tail OnDrafted(int32_t token_id, bool policy_stop = false,
                 absl::Span<const int32_t> candidates = {});

  // A length policy ends the chunk before the token drawn for position
  // length(), which is not appended. The draft waits until the target has said
  // what stands there; TakeStopNotice has the message.
  void OnDiscarded() { discarded_ = true; }

  // Of a tree, instead of OnDrafted: the rows of a step and what they gave. All
  // rows of a step are in one message, which is empty at first; OnExpanded adds
  // nodes and FinishStep completes it. One without nodes is not to be sent.
  void BeginStep(int most, std::vector<DraftTree::Row>* rows);
  // Whether something of the step would be of use after this commit. It changes
  // nothing.
  bool KeepsStep(const Commit& commit) const;
  // `policy_stop`: a length policy ends the tree's growth in depth with the
  // first child, until the next commit. It is asked where
  // DraftTree::IsTipOfStep. No children there: it ends before that, as
  // OnDiscarded.
  void OnExpanded(int number, const DraftTree::Children& children, Tail* tail,
                  bool policy_stop = false);
  void FinishStep(Tail* tail);
  // Null of a chain. A step that did not end is to be abandoned there.
  DraftTree* tree() { return tree_.has_value() ? &*tree_ : nullptr; }
  const DraftTree* tree() const {
    return tree_.has_value() ? &*tree_ : nullptr;
  }

  // When the draft is blocked and its last message did not say so: an empty
  // tail that does. The target's gate must not wait for tokens that will not
  // come.
  absl::optional<Tail> TakeStopNotice();

  // Committed tokens and drafted ones, of a tree those of its main path; the
  // next token is for position length().
  const std::vector<int32_t>& tokens() const { return tokens_; }
  int length() const { return static_cast<int>(tokens_.size()); }
  int committed_length() const { return committed_length_; }
  uint32_t epoch() const { return options_.epoch; }
  // KV positions that may be kept: the last token has not been fed.
  int kv_limit() const { return length() - 1; }
  // Positions that the last commit left as they were. Where the verdict was on
  // another draft's tail, a mismatch may come in the middle of a commit. The
  // tokens after it are new then, although they are below kv_limit().
  int kept_length() const { return kept_length_; }

  // What the last commit that was applied says of this draft's own tokens.
  struct CommitReport {
    int accepted = 0;        // that matched, after those of earlier commits
    bool rejected = false;   // the next one did not match
    bool overtaken = false;  // all matched, and the commit has more tokens
                             // than were drafted
    // Of the tokens committed there, up to the rejected one: their ranks among
    // the candidates, 1 to kBeyond, where those are known.
    std::vector<int> ranks = {};
    // How many of them are above 1 and of tokens with children of a tree.
    int prepared = 0;
    // Of the accepted ones those, after all others, of a tree's branches.
    int of_branches = 0;
    bool operator==(const CommitReport&) const = default;
  };
  const CommitReport& last_commit() const { return last_commit_; }

 private:
  StopMark Blocked() const;
  DraftTree::Limits TreeLimits() const;
  void FollowTree(absl::Span<const int32_t> token_ids);
  // These were committed after committed_length_, and `walked` of them, one
  // below the other, had a node.
  void Follow(absl::Span<const int32_t> token_ids, int walked);
  void ReportRanks(absl::Span<const int32_t> token_ids);
  int Lead() const;
  Tail MakeTail(int first_position) const;

  Options options_;
  std::vector<int32_t> tokens_;     // committed, then the path from the root
  TokenTree chain_;                 // rooted at the last committed token
  int newest_number_ = 0;           // of its nodes
  absl::optional<DraftTree> tree_;  // instead of chain_
  // The best tokens for each position after the committed ones.
  struct Candidates {
    std::array<int32_t, kRanks> token_ids;
    int count = 0;
  };
  std::vector<Candidates> candidates_;
  int committed_length_;
  int kept_length_;
  bool after_mismatch_ = true;
  bool policy_stop_ = false;
  bool discarded_ = false;
  CommitReport last_commit_;
  int horizon_ = std::numeric_limits<int>::max();
  bool horizon_is_end_ = false;
  // What the last message told the target.
  StopMark announced_ = StopMark::kNone;
  int announced_base_ = -1;
};

}  // namespace nacre::speculation

#endif  // SPECULATION_DRAFT_SESSION_H_
