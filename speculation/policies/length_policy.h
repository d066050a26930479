// What a draft-length policy is. It looks at each row that the draft draws a
// token from and says whether the chunk goes on after it. START HERE in
// policies/; draft_length.h runs one for a session, docs/policies.md has the
// rules and what the papers got wrong.
//
// A stop is the end of a chunk, not a command to idle. In `sd` the chunk is
// submitted and the draft waits. Under overlap it is submitted if the target is
// free, and the draft goes on.
//
// Decisions come in the order of the sequence. Feedback comes in token order,
// for verified tokens only, and under overlap late: rows after the ones that it
// tells of have been decided already. Tokens that a rejection drops unverified
// are never told of.
//
// Pure: one instance a session, no I/O, no clock, no threads.

#ifndef SPECULATION_POLICIES_LENGTH_POLICY_H_
#define SPECULATION_POLICIES_LENGTH_POLICY_H_

#include <cstdint>

#include "absl/types/optional.h"
#include "absl/types/span.h"

namespace nacre::speculation {

inline constexpr int kTopProbabilities = 10;

struct DrawnToken {
  int32_t token_id = 0;
  float probability = 0.0f;  // of the draft, at temperature 1
};

// What a policy reads of a row besides its place. The worker computes nothing
// else: each of them costs time.
struct RowNeeds {
  bool token_probability = false;
  bool entropy = false;
  bool top_probabilities = false;
  bool draft_hidden = false;
  bool operator==(const RowNeeds&) const = default;
};

// The row that a token of the draft is drawn from. Probabilities are those of
// the draft's own logits at temperature 1 over all ids that it may draw,
// whatever the temperature of the request.
struct DraftRow {
  int generated = 0;     // tokens of the answer before this one
  int unverified = 0;    // of them, drafted ones that no verdict has reached
  int chunk_length = 0;  // of them, in the chunk that this token belongs to
  // As RowNeeds asks; else 0 and empty.
  float entropy = 0.0f;                       // nats
  absl::Span<const float> top_probabilities;  // [kTopProbabilities], descending
  absl::Span<const float> draft_hidden;       // [hidden_size], after final norm
  // Only for a policy that looks at it: all others decide before it is drawn.
  absl::optional<DrawnToken> token;
};

enum class LengthDecision {
  kContinue,
  kStop,  // the chunk ends after the token
  // It ends before the token, which is not sent. Only of policies that look at
  // tokens.
  kDiscard,
};

// A chunk all of whose tokens have been verified, or one of them rejected.
struct ChunkOutcome {
  int drafted = 0;
  int accepted = 0;
  bool operator==(const ChunkOutcome&) const = default;
};

// What a commit says of drafted tokens.
struct VerifiedTokens {
  int accepted = 0;       // in order, after those told before
  bool rejected = false;  // the one after them; all further ones are dropped
  // All that were there are verified, and others follow them that the draft
  // has not drawn.
  bool overtaken = false;
  absl::Span<const ChunkOutcome> chunks;  // that this settles, in order
};

class LengthPolicy {
 public:
  virtual ~LengthPolicy() = default;

  virtual RowNeeds needs() const { return {}; }

  // Whether Decide depends on which token was drawn, and not only on the
  // distribution that it is drawn from and on what came before. Tokens that are
  // thrown away for what they are would bias a draft that is verified by the
  // ratio test. There only policies that do not look may be used. Their Decide
  // is called before the draw, without the token.
  virtual bool looks_at_token() const { return false; }

  // Whether a chunk of `chunk_length` tokens ends with the next one, whatever
  // the row says. False: Decide will tell.
  virtual bool EndsAfter(int chunk_length) const {
    static_cast<void>(chunk_length);
    return false;
  }

  // Called once for each row, in the order of the sequence. `row.token` is set
  // exactly if looks_at_token().
  virtual LengthDecision Decide(const DraftRow& row) = 0;

  virtual void OnVerified(const VerifiedTokens& verified) {
    static_cast<void>(verified);
  }

  // Values of the states that OnTargetHidden takes; 0: it reads none.
  virtual int target_hidden_size() const { return 0; }

  // The target's hidden state (last layer, after the final norm) at the last
  // position that it has processed of the committed tokens. It comes after the
  // OnVerified of these, or not at all. Empty: the last one is of the past, and
  // that of now has not come.
  virtual void OnTargetHidden(absl::Span<const float> hidden) {
    static_cast<void>(hidden);
  }
};

}  // namespace nacre::speculation

#endif  // SPECULATION_POLICIES_LENGTH_POLICY_H_
