// The rows of the step that a model queues, as its backend takes them: token
// ids, contexts, angles, and which of them yield logits. Filled in order; what
// it allocated once it keeps.
//
// Thread-compatible, as the model. Names blocks of sequences, which live until
// the step has run.

#ifndef MODEL_STEP_ROWS_H_
#define MODEL_STEP_ROWS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/prompt_products.h"
#include "model/activations.h"
#include "model/block_sequence.h"
#include "model/config.h"
#include "model/rope.h"

namespace nacre::model {

class StepRows {
 public:
  // Rows, one after the other.
  struct Run {
    int first = 0;
    int count = 0;
  };

  explicit StepRows(const ModelConfig& config);

  // Makes room for positions below `length`: here, not in the middle of a step.
  void Reserve(int length);

  void Clear();
  // Of rows that are added after.
  void AddTokenIds(absl::Span<const int32_t> token_ids) {
    token_ids_.insert(token_ids_.end(), token_ids.begin(), token_ids.end());
  }
  void AddRow(const BlockSequence& sequence, int position);
  // Rows of no sequence, with any token, after all others: at the first
  // positions of a table that no sequence has.
  void AddSpareRows(int count, const int32_t* block_table);
  // After the sequence's positions; fills the slot. FinishTails completes these
  // rows.
  void AddNode(const TreeNode& node, BlockSequence* sequence);
  void FinishTails();
  // The last `count` rows yield logits.
  void AddLogits(int count);

  int size() const { return static_cast<int>(contexts_.size()); }
  absl::Span<const int32_t> token_ids() const { return token_ids_; }
  absl::Span<const kernels::RowContext> contexts() const { return contexts_; }
  // Rows that yield logits.
  absl::Span<const Run> head_runs() const { return head_runs_; }
  int num_logit_rows() const { return num_logit_rows_; }
  // Rows at positions that are computed as a prompt's.
  absl::Span<const kernels::PromptRun> prompt_runs() const {
    return prompt_runs_;
  }

  // Sends what the step begins with, `inputs` with these rows' angles, contexts
  // and learned positions, and says where angles and positions are.
  void Send(kernels::StepInputs inputs, kernels::Backend* backend,
            Activations* to);

 private:
  // Of the row that is added next, but for its tail.
  void AddContext(const int32_t* block_table, int position);
  void AddPromptRow(const BlockSequence& sequence, int position);

  // Of one table: host copies of the rows' angles.
  struct RowAngles {
    RopeTable rope;
    std::vector<float> cos;
    std::vector<float> sin;
  };

  std::vector<RowAngles> angles_;  // then those of layers with a window, if any
  const bool has_positions_;
  std::vector<int32_t> positions_;  // learned ones
  std::vector<float> values_;       // of the step's inputs
  std::vector<int32_t> token_ids_;
  std::vector<kernels::RowContext> contexts_;
  std::vector<kernels::KvSlot> tails_;  // of all rows that have one
  std::vector<Run> head_runs_;
  std::vector<kernels::PromptRun> prompt_runs_;
  int num_logit_rows_ = 0;
};

}  // namespace nacre::model

#endif  // MODEL_STEP_ROWS_H_
