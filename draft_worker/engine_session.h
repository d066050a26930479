// One session as the draft engine holds it. Only for the engine's own sources.
//
// Owned by the engine, used by its thread.

#ifndef DRAFT_WORKER_ENGINE_SESSION_H_
#define DRAFT_WORKER_ENGINE_SESSION_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "draft_worker/hidden_states.h"
#include "draft_worker/length_control.h"
#include "draft_worker/ratio_draw.h"
#include "draft_worker/row_receiver.h"
#include "model/language_model.h"
#include "model/sampler.h"
#include "speculation/draft_session.h"
#include "speculation/draft_tree.h"
#include "wire/session_events.h"
#include "worker/engine/engine_session.h"
#include "worker/engine/step_tap.h"

namespace nacre::draft_worker {

struct EngineSession : worker::EngineSession {
  EngineSession(speculation::DraftSession the_schedule,
                model::Sampler the_sampler, model::TokenHistory the_history)
      : schedule(std::move(the_schedule)),
        sampler(std::move(the_sampler)),
        history(std::move(the_history)) {}

  int num_tokens() const override { return schedule.length(); }

  speculation::DraftSession schedule;
  int prompt_length = 0;
  int vocab_limit = 0;      // only ids below are drawn
  int reserved_length = 0;  // of the sequence's KV
  float temperature = 0;
  // Its tree is of a shape that ranks by probability. No plan changes that.
  bool ranks_by_q = false;
  model::Sampler sampler;
  absl::optional<LengthControl> length;  // of its policy, if any
  model::TokenHistory history;  // follows schedule.tokens() when it drafts
  // Its KV was once complete. A session drafts only from then on, so that a
  // kDraft span never holds a prompt.
  bool prefilled = false;
  // Of the target's tokens: they go with the next tail, in its message. Those
  // of the last commits of a session go nowhere.
  std::vector<int> untold_ranks;
  int untold_prepared = 0;  // of them
  // Spans of its steps show what its tokens were drawn from.
  bool tells_candidates = false;
  bool touched = true;              // by a command, since its last stop notice
  absl::optional<RatioDraw> ratio;  // where the ratio test verifies
  absl::optional<HiddenStates> hidden;  // while its policy gets them
  absl::optional<SeenTarget> seen;      // of a drafter that reads its target

  // Its part of the step being run.
  bool drafts = false;
  bool cut = false;        // a commit changed the tokens that the step fed
  bool drew = false;       // a token
  bool pointless = false;  // a command that is held says so
  int fed_rows = 0;
  std::vector<wire::Candidate> candidates;  // if told, of the token drawn
  // ... of its tree: the nodes, and the paths to them, one after another.
  std::vector<speculation::DraftTree::Row> tree_rows;
  std::vector<int32_t> tree_paths;

  worker::TapSession tapped() const {
    return {.key = {stream, id},
            .request_id = request_id,
            .prompt_length = prompt_length,
            .vocab_limit = vocab_limit};
  }
  // Tokens whose KV is missing, the last one left out: that is fed to draft.
  int unfed_rows() const { return schedule.kv_limit() - sequence->length(); }
  // Of those how many may be fed now.
  int feedable_rows() const {
    const int rows = unfed_rows();
    return seen.has_value() ? std::min(rows, seen->MayFeed(sequence->length()))
                            : rows;
  }
  bool MustWait() const { return unfed_rows() > 0 && feedable_rows() <= 0; }
  // Of its settled tokens those whose keys may serve other sessions: of a
  // drafter that reads its target, what saw all of that.
  absl::Span<const int32_t> shareable(bool reads_target) const {
    if (!reads_target) return settled();
    const int whole = seen.has_value() ? seen->whole_length : 0;
    return settled().first(
        static_cast<size_t>(std::min(whole, schedule.committed_length())));
  }
  model::TargetSequence* seen_rows() const {
    return seen.has_value() ? seen->rows.get() : nullptr;
  }
  // How many nodes the step expands of it: proposals it gets.
  size_t num_nodes() const {
    return drafts && schedule.tree() != nullptr ? tree_rows.size() : 1;
  }
  // Whether the session itself reads the logits besides the sampler.
  bool reads_logits() const {
    return ratio.has_value() || (length.has_value() && length->needs_logits());
  }
  bool reads_hidden() const {
    return length.has_value() && length->needs_hidden();
  }
  // Its committed tokens: what is drafted after them may be cut again.
  absl::Span<const int32_t> settled() const {
    return absl::MakeConstSpan(schedule.tokens())
        .subspan(0, static_cast<size_t>(schedule.committed_length()));
  }
  // Rows of its prompt are to be fed. Commits may go beyond what this draft can
  // hold: it then stands still.
  bool prefills() const {
    return !prefilled && schedule.length() <= reserved_length;
  }
};

}  // namespace nacre::draft_worker

#endif  // DRAFT_WORKER_ENGINE_SESSION_H_
