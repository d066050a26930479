// How the rows of a target's step become tokens. Which of them the model draws
// by itself, and what is drawn or judged from the others' logits.
//
// Owned by the engine, used by its thread.

#ifndef TARGET_WORKER_ROW_SAMPLER_H_
#define TARGET_WORKER_ROW_SAMPLER_H_

#include <cstdint>

#include "absl/types/span.h"
#include "model/language_model.h"
#include "model/sampler.h"
#include "model/sampling_scratch.h"
#include "target_worker/step.h"
#include "worker/engine/soundness.h"

namespace nacre::target_worker {

class RowSampler {
 public:
  using Session = EngineSession;

  // All outlive it.
  RowSampler(model::LanguageModel* model, worker::Soundness* soundness,
             model::SamplingScratch* scratch)
      : model_(model), soundness_(soundness), scratch_(scratch) {}

  // Leaves to the model what it can draw of the session's `rows` verifying rows
  // where only the token is wanted. A chunk of a prompt has one row with
  // logits, which is only looked at: it depends on all KV of the chunk.
  void PlanDraws(Session& session, int rows) const;
  // SampleRows for all sessions of the step; for those that only feed a chunk
  // of their prompt, a look at its row.
  void SampleAll(const Step& step, absl::Span<const float> logits);
  // Under the ratio test: of the row after an accepted tail.
  void JudgeLastRow(Session& session, absl::Span<const float> logits);

 private:
  // What a forward gave of one session's rows, in their order: tokens of those
  // that the model drew, logits of the others.
  struct RowOutputs {
    absl::Span<const int32_t> drawn;
    absl::Span<const float> logits;  // [others, vocab_size]
  };
  // Takes or draws the target's tokens of one session along its walk. Stops at
  // the first that no row stands for, or whose row is unsound. Under the ratio
  // test it leaves the row after an accepted tail to JudgeLastRow.
  //                                        outputs: of 1 + tail tokens rows
  void SampleRows(Session& session, const RowOutputs& outputs);
  // Of a chunk of a prompt: what its rows say of the tokens after them.
  void ScorePrompt(Session& session, absl::Span<const float> logits);
  void JudgeRows(Session& session, absl::Span<const float> logits);
  // Adds a token to session.drawn, which `row` is for.
  void AddDrawn(Session& session, int32_t token_id,
                absl::Span<const float> row);

  model::LanguageModel* const model_;
  worker::Soundness* const soundness_;
  model::SamplingScratch* const scratch_;
  model::TokenWeights weights_;  // scratch of the ratio test
};

}  // namespace nacre::target_worker

#endif  // TARGET_WORKER_ROW_SAMPLER_H_
