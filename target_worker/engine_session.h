// One session as the target engine holds it. Only for the engine's own sources.
//
// Owned by the engine, used by its thread.

#ifndef TARGET_WORKER_ENGINE_SESSION_H_
#define TARGET_WORKER_ENGINE_SESSION_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "common/token_draw.h"
#include "common/token_logprobs.h"
#include "model/language_model.h"
#include "model/sampler.h"
#include "speculation/head_draft.h"
#include "speculation/suffix_account.h"
#include "speculation/suffix_draft.h"
#include "speculation/target_session.h"
#include "target_worker/feature_drafts.h"
#include "target_worker/feature_shelf.h"
#include "wire/session_events.h"
#include "worker/engine/engine_session.h"

namespace nacre::target_worker {

// Drafts over what the target computes; null: there is none. Not both.
struct AheadDrafts {
  std::unique_ptr<speculation::HeadDraft> heads;
  std::unique_ptr<FeatureDraft> features;
  // What suffixes said beside them, when it last proposed.
  std::vector<speculation::SuffixNode> suffixes;
  bool any() const { return heads != nullptr || features != nullptr; }
  // To look ahead once more.
  bool is_ready() const {
    return heads != nullptr || (features != nullptr && features->IsReady());
  }
};

struct EngineSession : worker::EngineSession {
  EngineSession(speculation::TargetSession the_schedule,
                model::Sampler the_sampler, model::TokenHistory the_history)
      : schedule(std::move(the_schedule)),
        sampler(std::move(the_sampler)),
        history(std::move(the_history)) {}

  int num_tokens() const override { return schedule.committed_length(); }

  speculation::TargetSession schedule;
  model::Sampler sampler;
  model::TokenHistory history;  // committed tokens between steps
  // What it drafts of its own; null: nothing.
  std::unique_ptr<speculation::SuffixDraft> suffixes;
  AheadDrafts ahead;
  speculation::SuffixAccount own_account;  // of all
  bool has_draft = false;
  int gate_after_mismatch = 0;
  absl::optional<int> num_logprobs;  // absent: none
  // Log-probabilities of its prompt that are to be told.
  struct ScoredPrompt {
    int num_top = 0;  // likeliest tokens beside each
    int next = 0;     // position of the first that is not told
    int end = 0;      // of the last + 1; next: nothing is left
    // Its part of the step being run: rows that say something of tokens from
    // `next` on, and what they say.
    int rows = 0;
    std::vector<TokenLogprobs> logprobs;
  };
  ScoredPrompt prompt;
  uint64_t seed = 0;
  // As what its hidden states are published, and for which draft; channel 0:
  // they are not.
  struct Published {
    uint64_t channel = 0;
    uint32_t epoch = 0;
  };
  Published hidden;
  // As what drafts read its rows, 0: they do not; and positions that there were
  // at the last look.
  struct ReadRows {
    uint64_t channel = 0;
    int shown = 0;
    std::unique_ptr<ShelvedFeatures> features;  // null: it keeps none
  };
  ReadRows read_rows;

  // Its part of the step being run.
  std::vector<int32_t> fed;  // prompt rows, then last committed token and tail
  // Of the last rows fed: those of the tail that do not stand on its path.
  std::vector<model::TreeNode> nodes;
  std::vector<int> row_depths;  // of each verifying row, 0 of the first
  int prefill_rows = 0;
  bool verifies = false;
  int first_logits = 0;  // its row among those of the step that have logits
  // Of its rows with logits, those that the model draws; empty: none.
  std::vector<absl::optional<TokenDraw>> draws;
  std::vector<int32_t> drawn;           // the target's own tokens
  std::vector<int> walked;              // the rows that they were drawn at
  std::vector<TokenLogprobs> logprobs;  // of drawn, if asked for

  // Under the ratio test the row after an accepted tail is judged last. Its
  // logits, while they stay where the forward left them; empty: none.
  absl::Span<const float> last_row;
  // A step that has run and told what it accepted, but waits for the draft's
  // next token.
  struct Hold {
    std::vector<float> logits;  // of its last row
    std::vector<float> hidden;  // likewise, if a draft reads it
    wire::Span verify;          // of the rows before it
  };
  absl::optional<Hold> hold;

  // Prompt rows still to be fed; the last committed token is row 0 of a step.
  int unfed_rows() const { return schedule.kv_length() - sequence->length(); }
  bool TellsPrompt() const { return prompt.next < prompt.end; }
  // Where it tells of its prompt: rows to be fed before the first that says
  // something that is still to be told.
  int RowsBeforeLogits() const { return prompt.next - 1 - sequence->length(); }
  // Whether the first step waits for no draft token.
  bool StepsWithoutTail() const {
    return !has_draft || gate_after_mismatch <= 0;
  }
};

}  // namespace nacre::target_worker

#endif  // TARGET_WORKER_ENGINE_SESSION_H_
