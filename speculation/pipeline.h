// The words that the three state machines of speculation share. They are
// methods, plans (how far the draft runs ahead, when the target steps) and the
// messages that travel between them. START HERE, then target_session.h,
// draft_session.h, session_schedule.h.
//
// Terms (docs/source.md, "Words"): a session has COMMITTED tokens (prompt, then
// verified and emitted; committed_length counts them) and a TAIL (drafted, not
// yet verified). Positions are absolute: the first prompt token is position 0.
// Plain values, no threads.

#ifndef SPECULATION_PIPELINE_H_
#define SPECULATION_PIPELINE_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "speculation/tree_spec.h"

namespace nacre::speculation {

enum class Method { kAr, kSd, kPearl, kAsync };

absl::string_view MethodName(Method method);
absl::optional<Method> MethodFromName(absl::string_view name);

// PEARL without one of its halves, to compare with what was published.
enum class Ablation {
  kNone,
  // After a mismatch the target waits for a whole chunk instead of verifying
  // its first token meanwhile. The draft goes on during the verification.
  kNoPreVerify,
  // The first token of a chunk is verified while the chunk is drafted. But the
  // draft does not begin the next one while the others are verified.
  kNoPostVerify,
};

// "" (kNone), "no-pre-verify", "no-post-verify".
absl::string_view AblationName(Ablation ablation);
absl::optional<Ablation> AblationFromName(absl::string_view name);

// How the target judges draft tokens: by equality with the token it draws
// itself (bit-equal output), or by min(1, p/q) (equal in distribution;
// Leviathan et al., "Fast Inference from Transformers via Speculative
// Decoding", ICML 2023, Algorithm 1).
enum class Verification { kExact, kRatio };

// How many tokens the draft may hold beyond the committed length it has
// applied.
struct DraftPlan {
  int lead_after_mismatch = 0;
  int lead_in_flow = 0;
  // Whether it waits for a verdict where a length policy ends a chunk. Else it
  // goes on: its time costs nothing, and the target takes what is there.
  bool waits_at_stop = false;
  // Of a tree: how many nodes one step expands, the likeliest first. 1: a
  // chain.
  int rows = 1;
  // ... and log2 of the probability below which a node is neither expanded nor
  // sent, the likeliest of its siblings excepted. At most 0.
  float least_score = 0;
  // ... and its shape, where that is not the likeliest nodes.
  TreeSpec tree;
  // Whether it drafts nothing at all. The window is then 0: no gate waits.
  bool rests() const { return lead_after_mismatch == 0 && lead_in_flow == 0; }
  bool operator==(const DraftPlan&) const = default;
};

// When the target steps. The gate is how many tail tokens must be there first.
// The window is the most tail tokens that one step verifies (rows - 1).
struct TargetPlan {
  int gate_after_mismatch = 0;
  int gate_in_flow = 0;
  int window = 0;
  // The gate opens this long after it began to wait, whatever is there.
  int64_t gate_timeout_ns = 0;
  // Ratio test: a step whose tail tokens were all accepted reports them at
  // once. It ends only once its last row can judge the draft's next token, or
  // none will come. (PEARL: no last row is spent on a token of the target's
  // own.) False while the draft rests: it does not say again that none will.
  bool holds_last_row = false;
  // Of a tree: the most of its nodes that one step verifies, none deeper than
  // the window; after these the best path goes on, as a chain would. The
  // target chooses how many (step_rows.h). 0: the best path alone, a chain.
  int tree_rows = 0;
  // ... or tree_rows at most, whatever they cost.
  bool takes_all = false;
  // A step that verified tail tokens ends a chunk: the gate of the next is that
  // after a mismatch, be it in flow (Ablation::kNoPostVerify).
  bool ends_chunks = false;
  bool operator==(const TargetPlan&) const = default;
};

struct PipelinePlan {
  // What the method calls its window: gamma of sd and pearl, m* of async.
  int window = 0;
  DraftPlan draft;
  TargetPlan target;
  bool operator==(const PipelinePlan&) const = default;
};

// No window is larger; bounds every buffer of tail tokens.
inline constexpr int kMaxWindow = 64;
inline constexpr int kMaxLead = 2 * kMaxWindow;

// Why the draft does not continue after the last token of a tail message. In
// the order in which it may say several things of one token, one after another.
enum class StopMark {
  kNone,    // it continues
  kChunk,   // it does too, but a length policy ended a chunk with this token
  kLead,    // it holds all it may; the next commit lets it go on
  kPolicy,  // a length policy ended the chunk; the next commit lets it go on
  // End of sequence, length, context or KV limit. Only a text that leaves the
  // draft's main path helps.
  kEnd,
};

// What a draft token was drawn from, for the ratio test. The probability of
// token_ids[i] is weights[i] over the sum of all weights, added left to right
// in double.
struct DraftDistribution {
  std::vector<int32_t> token_ids;  // each once; at most kMaxDistribution
  std::vector<float> weights;      // of each, finite and > 0
  bool operator==(const DraftDistribution&) const = default;
};
inline constexpr int kMaxDistribution = 64;

// Of a token tree: what one message holds, and the largest number of a node.
inline constexpr int kMaxTailNodes = 256;
inline constexpr int kMaxDraftRows = 64;  // that a step of a draft expands
inline constexpr int kMaxNode = 1 << 30;

// Draft to target: a chain of tokens for positions first_position and on, or
// nodes of a tree. A draft sends one of the two for an epoch.
struct Tail {
  uint32_t epoch = 0;  // raised by the coordinator at each re-open of the draft
  int base_length = 0;  // the committed length the draft had applied
  int first_position = 0;
  std::vector<int32_t> token_ids;
  StopMark stop = StopMark::kNone;
  // Of each token where the ratio test verifies them, else empty.
  std::vector<DraftDistribution> distributions = {};
  // Of a tree, of each token: its parent's number (0: the last token of the
  // text of base_length) and log2 of its probability given that. Empty: a
  // chain. The tokens have the numbers first_node and on.
  std::vector<int32_t> parents = {};
  std::vector<float> scores = {};
  int first_node = 0;

  bool is_tree() const { return !parents.empty(); }
  bool operator==(const Tail&) const = default;
};

// Committed tokens for positions first_position and on, target to draft.
struct Commit {
  int first_position = 0;
  std::vector<int32_t> token_ids;
  bool operator==(const Commit&) const = default;
};

enum class FinishReason { kNone, kEos, kStop, kLength };

// What one target step decided. A step that holds its last row sends two. First
// the accepted tokens, then, like a step that verified nothing, the result of
// the last row.
struct Verdict {
  int base_length = 0;  // committed length before the step
  std::vector<int32_t>
      token_ids;    // committed by it: matched + 1, cut at the end
  int window = 0;   // tail tokens it verified (rows - 1)
  int matched = 0;  // of these, the matching prefix, or path
  // Draft tokens compared with all before them matching, and those that
  // matched, since the previous verdict. The token after the last row is
  // included when it has been compared.
  int verified = 0;
  int accepted = 0;
  bool degraded = false;  // stepped without a draft
  FinishReason finish = FinishReason::kNone;
  // Of a tree: the numbers of the nodes that matched, from the root. Empty: a
  // chain, or one of them has none.
  std::vector<int32_t> path = {};
  // Of the window those tokens that the target itself proposed, from suffixes
  // or heads, and of the matched ones. They are in no count of the draft's.
  int suffix_proposed = 0;
  int suffix_accepted = 0;
  // Of the matched tokens those that the draft proposed beside its best path.
  // They come after those on it and before the target's own.
  int branch_accepted = 0;

  bool operator==(const Verdict&) const = default;
  // Of the window those that the draft proposed.
  int drafted() const { return window - suffix_proposed; }
  // Whether the part on the last row is still to come.
  bool holds_last_row() const {
    return finish == FinishReason::kNone &&
           matched == static_cast<int>(token_ids.size());
  }
};

}  // namespace nacre::speculation

#endif  // SPECULATION_PIPELINE_H_
