#include "model/step_rows.h"

#include <cstddef>

namespace nacre::model {

void StepRows::Clear() {
  token_ids_.clear();
  contexts_.clear();
  tails_.clear();
  cos_.clear();
  sin_.clear();
  head_runs_.clear();
  num_logit_rows_ = 0;
}

void StepRows::AddRow(const BlockSequence& sequence, int position) {
  rope_.Extend(position);
  contexts_.push_back({sequence.block_table(), position});
  const absl::Span<const float> cos = rope_.Cos(position);
  const absl::Span<const float> sin = rope_.Sin(position);
  cos_.insert(cos_.end(), cos.begin(), cos.end());
  sin_.insert(sin_.end(), sin.begin(), sin.end());
}

void StepRows::AddNode(const TreeNode& node, BlockSequence* sequence) {
  sequence->FillSlot(node);
  AddRow(*sequence, node.position);
  const size_t begin = tails_.size();
  sequence->AppendPath(node.slot, &tails_);
  contexts_.back().tail_begin =
      node.position + 1 - static_cast<int>(tails_.size() - begin);
}

void StepRows::FinishTails() {
  const kernels::KvSlot* tail = tails_.data();
  for (kernels::RowContext& row : contexts_) {
    if (!row.has_tail()) continue;
    row.tail_slots = tail;
    tail += row.position + 1 - row.tail_begin;
  }
}

void StepRows::AddLogits(int count) {
  if (count == 0) return;
  num_logit_rows_ += count;
  const int first = size() - count;
  if (head_runs_.empty() ||
      head_runs_.back().first + head_runs_.back().count != first) {
    head_runs_.push_back({first, 0});
  }
  head_runs_.back().count += count;
}

void StepRows::SendAngles(kernels::MemoryOps* memory, kernels::Buffer* cos,
                          kernels::Buffer* sin) const {
  memory->CopyFromHost(cos_.data(), cos_.size() * sizeof(float), cos->data());
  memory->CopyFromHost(sin_.data(), sin_.size() * sizeof(float), sin->data());
}

}  // namespace nacre::model
