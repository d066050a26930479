#include "model/step_rows.h"

#include <cstddef>
#include <cstring>

namespace nacre::model {

StepRows::StepRows(const ModelConfig& config)
    : has_positions_(config.embedding.has_positions) {
  angles_.push_back({RopeTable(config), {}, {}});
  if (config.windows.rope_theta > 0) {
    angles_.push_back({RopeTable(config, /*local=*/true), {}, {}});
  }
}

void StepRows::Reserve(int length) {
  for (RowAngles& angles : angles_) angles.rope.Reserve(length);
}

void StepRows::Clear() {
  token_ids_.clear();
  positions_.clear();
  contexts_.clear();
  tails_.clear();
  for (RowAngles& angles : angles_) {
    angles.cos.clear();
    angles.sin.clear();
  }
  head_runs_.clear();
  prompt_runs_.clear();
  num_logit_rows_ = 0;
}

void StepRows::AddPromptRow(const BlockSequence& sequence, int position) {
  if (position >= sequence.prompt_positions()) return;
  const int row = size();
  if (!prompt_runs_.empty()) {
    kernels::PromptRun& last = prompt_runs_.back();
    if (last.first_row + last.count == row &&
        last.position + last.count == position &&
        contexts_.back().block_table == sequence.block_table()) {
      ++last.count;
      return;
    }
  }
  prompt_runs_.push_back({row, position, 1});
}

void StepRows::AddRow(const BlockSequence& sequence, int position) {
  AddPromptRow(sequence, position);
  AddContext(sequence.block_table(), position);
}

void StepRows::AddSpareRows(int count, const int32_t* block_table) {
  token_ids_.insert(token_ids_.end(), static_cast<size_t>(count), 0);
  for (int i = 0; i < count; ++i) AddContext(block_table, i);
}

void StepRows::AddContext(const int32_t* block_table, int position) {
  contexts_.push_back({block_table, position});
  if (has_positions_) positions_.push_back(position);
  for (RowAngles& angles : angles_) {
    angles.rope.Extend(position);
    const absl::Span<const float> cos = angles.rope.Cos(position);
    const absl::Span<const float> sin = angles.rope.Sin(position);
    angles.cos.insert(angles.cos.end(), cos.begin(), cos.end());
    angles.sin.insert(angles.sin.end(), sin.begin(), sin.end());
  }
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

void StepRows::Send(kernels::StepInputs inputs, kernels::Backend* backend,
                    Activations* to) {
  values_.clear();
  for (const RowAngles& angles : angles_) {
    values_.insert(values_.end(), angles.cos.begin(), angles.cos.end());
    values_.insert(values_.end(), angles.sin.begin(), angles.sin.end());
  }
  const size_t num_angles = values_.size();
  static_assert(sizeof(int32_t) == sizeof(float));
  values_.resize(num_angles + positions_.size());
  if (!positions_.empty()) {
    std::memcpy(values_.data() + num_angles, positions_.data(),
                positions_.size() * sizeof(int32_t));
  }
  inputs.values = values_;
  inputs.contexts = contexts_;
  const float* sent = backend->SendInputs(inputs);
  if (sent == nullptr) return;  // the backend keeps the error
  Angles* const targets[] = {&to->angles, &to->local_angles};
  for (size_t i = 0; i < angles_.size(); ++i) {
    const size_t size = angles_[i].cos.size();
    *targets[i] = {sent, sent + size};
    sent += 2 * size;
  }
  to->positions = reinterpret_cast<const int32_t*>(sent);
}

}  // namespace nacre::model
