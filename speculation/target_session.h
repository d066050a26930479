// One session as its target worker sees it: buffers the draft's tree, decides
// when the gate is open, turns the target's own tokens into a verdict. The only
// judge of what is emitted.
//
// Exact match: a step feeds the last committed token and m nodes of the tree.
// The target walks: it draws its own token at the last committed token, goes to
// the node of the step with that token, draws there, and so on until there is
// no such node. matched + 1 tokens are committed. So the committed stream is
// the seeded autoregressive stream whatever arrives here.
//
// What the last committed token has in the tree (draft_buffer.h) is then kept:
// FLOW it has a node, and what stands below it stays; MISMATCH it has none;
// OPEN its node may still come, and is compared when it does. A session starts
// in MISMATCH. A tail is a tree in which each node has one child.
//
// With the ratio test (speculation/ratio_test.h) the caller's token for a row
// is the tail token where that is accepted: what is compared here stays the
// same. The row behind an accepted tail judges e1 where it is there when the
// step ends, and where the plan holds the last row the step ends only then. The
// accepted tail is committed and told before: what is decided must not be lost
// the more easily for what it is (docs/exactness.md, "Losses").
//
// Pure: no I/O, no clock (times are passed in, nanoseconds of one monotonic
// clock), no threads.

#ifndef SPECULATION_TARGET_SESSION_H_
#define SPECULATION_TARGET_SESSION_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "speculation/draft_buffer.h"
#include "speculation/pipeline.h"
#include "speculation/step_rows.h"

namespace nacre::speculation {

class TargetSession {
 public:
  struct Options {
    int prompt_length = 0;          // >= 1
    int max_tokens = 0;             // >= 1, counted from the prompt
    std::vector<int32_t> eos_ids;   // end with kEos; empty with ignore_eos
    std::vector<int32_t> stop_ids;  // end with kStop
    int max_unacknowledged = 64;    // tokens ahead of the coordinator's ack
    TargetPlan plan;
    uint32_t epoch = 0;
    bool has_draft = false;
    Verification verification = Verification::kExact;
    // Most nodes of a step beside its best path. 0: a step verifies that alone.
    int num_slots = 0;
  };

  // `committed` is the prompt and, after a re-open, what was emitted before.
  TargetSession(Options options, std::vector<int32_t> committed);

  enum class TailOutcome { kApplied, kMismatch, kStale, kMalformed };

  // A tail message. Stale (old epoch, or a base that does not yet cover the
  // last mismatch) and malformed ones (a gap, a base or epoch ahead of this
  // session, too many tokens, with the ratio test a token without the
  // distribution that it was drawn from) change nothing, nor do repeated ones,
  // which are kApplied. Repeated positions are skipped. Of a tree the nodes
  // before a malformed one stay. With the ratio test a tree is malformed.
  // May be called while a step runs.
  TailOutcome OnTail(const Tail& tail);

  void OnPlan(const TargetPlan& plan) { options_.plan = plan; }
  // A new draft, opened with the first `opened_length` committed tokens, will
  // send tails of `epoch`; older ones are stale and the tail of the old draft
  // is dropped. Lengths beyond committed_length() are ours to clamp. An epoch
  // that is not new changes nothing. May be called while a step runs: what the
  // step verifies of the old draft is committed, but not counted.
  void OnDraftAttached(uint32_t epoch, int opened_length);
  // Steps go on without a draft.
  void OnDraftLost();
  void OnAcknowledged(int committed_length);

  enum class Readiness {
    kReady,
    kWaitDraft,        // the gate is closed
    kWaitAcknowledge,  // too far ahead of the coordinator
    kFinished,
  };
  Readiness CheckReady(int64_t now_ns);
  // When a closed gate opens by itself; nullopt unless CheckReady said
  // kWaitDraft.
  absl::optional<int64_t> gate_deadline_ns() const;

  // Whether to ask for nodes of the target's own for the next step: the draft
  // has none for it, and they have not been asked for.
  bool WantsSuffixes() const;
  // What they may be. Without slots they are a chain.
  SuffixLimits suffix_limits() const;
  // They are verified like the draft's, where the price of a row says so
  // (step_rows.h), and counted apart. The draft's next node replaces them.
  void ProposeSuffixes(absl::Span<const SuffixNode> nodes);

  // What the next step may verify of a tree; nullopt: it verifies a chain.
  absl::optional<StepTree> NextTree() const;
  // Of a chain: how many of its tokens.
  int NextChain() const {
    return buffer_.tree().has_local() ? 0
                                      : std::min(buffer_.depth(), StepLimit());
  }

  // Starts a step and returns the drafted tokens it verifies: the rows are the
  // last committed token (row 0, position committed_length - 1) and these (row
  // 1 and on). Valid until FinishStep. The chain; or the likeliest `num_nodes`
  // of NextTree, those on their best path first.
  absl::Span<const int32_t> BeginStep();
  absl::Span<const int32_t> BeginTreeStep(int num_nodes);
  // Of each of these tokens the row that it stands behind, an earlier one. A
  // chain: 0, 1, 2, ...
  absl::Span<const int> step_parents() const { return step_parents_; }
  // So many of the first of these tokens are a chain.
  int step_path_length() const { return step_path_length_; }
  // The row of the running step behind `row` with this token, if any: where the
  // target goes from `row` when it draws the token there.
  absl::optional<int> RowBehind(int row, int32_t token_id) const;

  // For the ratio test, while a step runs all of whose rows before `row` were
  // accepted: the draft token that row judges, and what it was drawn from.
  // Absent where row is m and e1 is not there. Valid until the next call.
  struct Drafted {
    int32_t token_id = 0;
    const DraftDistribution* distribution = nullptr;
  };
  absl::optional<Drafted> DraftedAt(int row) const;
  // While a step runs whose rows 0..m-1 were all accepted: whether it is not to
  // end yet, because its plan holds the last row and e1 may still come.
  bool HoldsLastRow(int64_t now_ns);
  // When it lets go of it by itself; nullopt unless HoldsLastRow said so.
  absl::optional<int64_t> hold_deadline_ns() const;
  // When HoldsLastRow has said so: commits rows 0..m-1. The step goes on with
  // its last row, which is row 0 now, as one that verifies nothing. nullopt
  // where it is such a one already.
  absl::optional<Verdict> CommitAccepted();

  // Whether the session ends with this token.
  bool IsEnd(int32_t token_id) const {
    return EndsWith(token_id) != FinishReason::kNone;
  }

  // Ends the step with the target's tokens along its walk: the first is of row
  // 0, each next one of RowBehind the one before. What follows a token that no
  // row has is not looked at and may be left out.
  Verdict FinishStep(absl::Span<const int32_t> target_token_ids);

  const std::vector<int32_t>& committed() const { return committed_; }
  int committed_length() const { return static_cast<int>(committed_.size()); }
  // The KV length that must remain between steps: later positions are dropped.
  // (One that holds its last row has fed the last committed token, too.)
  int kv_length() const { return committed_length() - 1; }
  int generated() const { return committed_length() - options_.prompt_length; }
  bool stepping() const { return stepping_; }
  bool finished() const { return finish_ != FinishReason::kNone; }
  Verification verification() const { return options_.verification; }

 private:
  Verdict BeginVerdict() const;
  int remaining() const { return options_.max_tokens - generated(); }
  // Most tail tokens the next step may verify, one behind the other, and how
  // many it waits for.
  int StepLimit() const;
  // ... whatever the plan says.
  int RowLimit() const;
  void StartStep();
  void AddStepRow(int node, int parent_row);
  // How many of the running step's rows the draft's best path still begins
  // with.
  int SharedWithStep() const;
  // Whether rows of the draft stand behind a row of the running step.
  bool HasDraftRow(int row) const;
  int Gate() const;
  void OnMismatch();
  // A step committed the tokens from base_length on, and has a comparison for
  // the first `count` of them.
  void CompareCommitted(int base_length, int count);
  void TakeAccount(Verdict* verdict);
  FinishReason EndsWith(int32_t token_id) const;

  Options options_;
  std::vector<int32_t> committed_;
  DraftBuffer buffer_;
  StopMark stop_ = StopMark::kNone;
  // Behind the last token of the tail that a length policy ended a chunk with;
  // at most committed_length() where there is none.
  int chunk_end_ = 0;
  int acknowledged_;
  bool has_draft_;
  int proposed_length_ = 0;    // of the text, when ProposeSuffixes was called
  bool draft_silent_ = false;  // a gate timed out and nothing has arrived since
  bool stepping_ = false;
  // The nodes that the running step verifies: row i + 1 is i. Copies: the tree
  // grows, and is dropped when another draft is attached, while the step runs.
  std::vector<int32_t> step_rows_;
  std::vector<int> step_parents_;
  int step_path_length_ = 0;
  std::vector<bool> step_is_own_;      // proposed by the target itself
  std::vector<int32_t> step_numbers_;  // empty: a chain without numbers
  std::vector<DraftDistribution> step_distributions_;  // ratio test
  std::vector<int> step_nodes_;  // scratch of BeginTreeStep
  std::vector<int> rows_of_;     // likewise: of each node, 0: none
  bool step_degraded_ = false;
  absl::optional<int64_t> waiting_since_ns_;
  absl::optional<int64_t> holding_since_ns_;
  FinishReason finish_ = FinishReason::kNone;
};

}  // namespace nacre::speculation

#endif  // SPECULATION_TARGET_SESSION_H_
