// One session as its target worker sees it. It buffers the draft's tree,
// decides when the gate is open, and turns the target's own tokens into a
// verdict. The only judge of what is emitted.
//
// Exact match: a step feeds the last committed token and m nodes of the tree.
// The target walks. It draws its own token at the last committed token and goes
// to the node of the step with that token. It draws there, and so on until no
// node has its token. matched + 1 tokens are committed. So the committed stream
// is the seeded autoregressive stream whatever arrives here.
//
// What the last committed token has in the tree (draft_buffer.h) is then kept:
// FLOW it has a node, and what stands below it stays; MISMATCH it has none;
// OPEN its node may still come, and is compared when it does. A session starts
// in MISMATCH. A tail is a tree in which each node has one child.
//
// With the ratio test (speculation/ratio_test.h) the caller's token for a row
// is the tail token where that is accepted, so the comparison is the same. The
// row after an accepted tail judges e1 if e1 is there when the step ends. Where
// the plan holds the last row, the step ends only then. The accepted tail is
// reported before: a decision must not become easier to lose because of its
// outcome (docs/exactness.md, "Losses").
//
// Its parts: the text (target_text.h), what the draft sent (draft_buffer.h),
// whether to wait for more (draft_wait.h), the rows of a step (target_step.h).
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
#include "speculation/draft_wait.h"
#include "speculation/pipeline.h"
#include "speculation/step_rows.h"
#include "speculation/target_step.h"
#include "speculation/target_text.h"

namespace nacre::speculation {

class TargetSession {
 public:
  struct Options {
    TargetText::Limits text;
    int max_unacknowledged = 64;  // tokens ahead of the coordinator's ack
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

  // A tail message. It changes nothing if it is
  // - stale: an old epoch, or a base that does not yet cover the last mismatch;
  // - malformed: a gap, a base or epoch ahead of this session, too many tokens.
  //   With the ratio test also a tree, or a token without its distribution;
  // - repeated: kApplied. Repeated positions of others are skipped.
  // Of a malformed tree the nodes before the malformed one stay. May be called
  // while a step runs. `fates`: what became of its nodes, where they are this
  // draft's.
  TailOutcome OnTail(const Tail& tail, DraftBuffer::Fates* fates = nullptr);

  void OnPlan(const TargetPlan& plan) {
    options_.plan = plan;
    wait_.OnTimeout(plan.gate_timeout_ns);
  }
  // A new draft, opened with the first `opened_length` committed tokens, will
  // send tails of `epoch`. Older ones are stale, and the tail of the old draft
  // is dropped. Lengths beyond committed_length() are ours to clamp. An epoch
  // that is not new changes nothing. May be called while a step runs: what the
  // step verifies of the old draft is committed, but not counted.
  void OnDraftAttached(uint32_t epoch, int opened_length);
  // Steps go on without a draft.
  void OnDraftLost() { wait_.OnLost(); }
  void OnAcknowledged(int committed_length);

  enum class Readiness {
    kReady,
    kWaitDraft,        // the gate is closed
    kWaitAcknowledge,  // too far ahead of the coordinator
    kFinished,
  };
  Readiness CheckReady(int64_t now_ns);
  // When a closed gate opens by itself, nullopt unless CheckReady said
  // kWaitDraft. And when the target lets go of its last row by itself, nullopt
  // unless HoldsLastRow said so.
  const DraftWait& wait() const { return wait_; }

  // Whether to ask for nodes of the target's own for the next step: the draft
  // has none, and they were not asked for.
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

  // Starts a step and returns the drafted tokens it verifies. The rows are the
  // last committed token (row 0, position committed_length - 1) and these (row
  // 1 and on). Valid until FinishStep. The chain; or the likeliest `num_nodes`
  // of NextTree, those on their best path first.
  absl::Span<const int32_t> BeginStep();
  absl::Span<const int32_t> BeginTreeStep(int num_nodes);
  // The rows of the step: where the target goes when it draws a token.
  const TargetStep& step() const { return step_; }

  // For the ratio test, while a step runs all of whose rows before `row` were
  // accepted. The draft token that row judges, and what it was drawn from.
  // Absent where row is m and e1 is not there. Valid until the next call.
  struct Drafted {
    int32_t token_id = 0;
    const DraftDistribution* distribution = nullptr;
  };
  absl::optional<Drafted> DraftedAt(int row) const;
  // Asked while a step runs whose rows 0..m-1 were all accepted. Whether it
  // must not end yet: its plan holds the last row, and e1 may still come.
  bool HoldsLastRow(int64_t now_ns);
  // When HoldsLastRow has said so: commits rows 0..m-1. The step goes on with
  // its last row, which is row 0 now, as one that verifies nothing. nullopt
  // where it is such a one already.
  absl::optional<Verdict> CommitAccepted();

  // Ends the step with the target's tokens along its walk. The first is of row
  // 0, each next one of the row after that. What follows a token that no row
  // has is not looked at and may be left out.
  Verdict FinishStep(absl::Span<const int32_t> target_token_ids);

  const TargetText& text() const { return text_; }
  const std::vector<int32_t>& committed() const { return text_.committed(); }
  int committed_length() const { return text_.length(); }
  // The KV length that must remain between steps: later positions are dropped.
  // (One that holds its last row has fed the last committed token, too.)
  int kv_length() const { return committed_length() - 1; }
  bool finished() const { return text_.finished(); }
  Verification verification() const { return options_.verification; }

 private:
  // Most tail tokens the next step may verify, one after the other, and how
  // many it waits for.
  int StepLimit() const;
  // ... whatever the plan says.
  int RowLimit() const;
  void StartStep();
  // A step committed the tokens from its base_length on, and has a comparison
  // for the first `count` of them, which it accounts for.
  void CompareCommitted(int count, Verdict* verdict);

  Options options_;
  TargetText text_;
  DraftBuffer buffer_;
  DraftWait wait_;
  TargetStep step_;
  int acknowledged_;
  int proposed_length_ = 0;  // of the text, when ProposeSuffixes was called
};

}  // namespace nacre::speculation

#endif  // SPECULATION_TARGET_SESSION_H_
