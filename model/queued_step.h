// The step that a model has queued before a call asked for it, after the one
// that was asked for. It is each sequence with a next_draw, fed with the token
// that is being drawn for it. Notes what was queued, and knows whether it is
// what a Forward asks for.
//
// Thread-compatible, as the model. Sequences may die before it is asked for.

#ifndef MODEL_QUEUED_STEP_H_
#define MODEL_QUEUED_STEP_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/token_draw.h"
#include "model/block_sequence.h"
#include "model/language_model.h"

namespace nacre::model {

class QueuedStep {
 public:
  // One a sequence.
  struct Row {
    const BlockSequence* sequence = nullptr;  // while the step is being queued
    uint64_t version = 0;                     // of the sequence
    int position = 0;                         // that its token is fed at
    size_t drawn = 0;  // which draw of the step before gives it
    TokenDraw draw;    // of its successor
  };

  // The step after `batch`, whose rows no sequence has appended yet. Its
  // sequences are BlockSequences of one pool.
  void Plan(absl::Span<const SequenceRows> batch);
  void Clear() { rows_.clear(); }

  bool empty() const { return rows_.empty(); }
  absl::Span<const Row> rows() const { return rows_; }

  // Whether `batch` is this step. `drawn`: the tokens of the step before.
  bool IsAskedFor(absl::Span<const SequenceRows> batch,
                  absl::Span<const int32_t> drawn) const;

 private:
  std::vector<Row> rows_;
};

}  // namespace nacre::model

#endif  // MODEL_QUEUED_STEP_H_
