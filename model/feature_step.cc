#include "model/feature_step.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "common/check.h"
#include "common/status_macros.h"

namespace nacre::model {
namespace {

KvSequence* OwnKv(const FeatureRows& rows) {
  return static_cast<OwnKvSequence*>(rows.sequence)->kv();
}

void EmptySlots(absl::Span<const FeatureRows> batch) {
  for (const FeatureRows& rows : batch) {
    for (const TreeNode& node : rows.nodes) OwnKv(rows)->EmptySlot(node.slot);
  }
}

}  // namespace

absl::Status CheckKeepsFeatures(const LanguageModel& model, const char* kind) {
  const absl::optional<VocabularyHead> head = model.vocabulary_head();
  if (head.has_value() && model.info().num_layers > 0) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat(kind, " of a model that keeps no features"));
}

absl::Status FeatureStep::MakeKvCache(int64_t tokens) {
  const KvPool::Shape shape = {config_.num_hidden_layers,
                               config_.num_key_value_heads, config_.head_dim,
                               backend_->kv_type()};
  NACRE_ASSIGN_OR_RETURN(
      kv_pool_, KvPool::Create(backend_, shape,
                               std::max<int64_t>(tokens, KvPool::kBlockSize) *
                                   KvPool::BytesPerToken(shape)));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<KvSequence>> FeatureStep::Reserve(
    int max_length, int num_slots) {
  NACRE_ASSIGN_OR_RETURN(std::unique_ptr<KvSequence> kv,
                         kv_pool_->Reserve(max_length, {}, num_slots));
  rows_.Reserve(max_length + num_slots);
  return kv;
}

absl::Status FeatureStep::Begin(absl::Span<const FeatureRows> batch,
                                int feature_size,
                                absl::FunctionRef<absl::Status()> more) {
  kv_pool_->FinishMoves();
  rows_.Clear();
  for (const FeatureRows& rows : batch) {
    KvSequence* const kv = OwnKv(rows);
    const int first = FirstRow(rows);
    const int end = first + static_cast<int>(NumPositions(rows));
    NACRE_CHECK(rows.features.size() <=
                    NumPositions(rows) * static_cast<size_t>(feature_size),
                "features of rows that are no nodes");
    NACRE_CHECK(first >= 0 && first <= kv->length() && end <= kv->max_length(),
                "rows outside of what a sequence has reserved");
    NACRE_CHECK(kv->CheckNodes(rows.nodes, std::max(end, kv->length())).ok(),
                "nodes of the sequence");
    rows_.AddTokenIds(rows.token_ids);
    for (int row = first; row < end; ++row) rows_.AddRow(*kv, row);
    for (const TreeNode& node : rows.nodes) rows_.AddNode(node, kv);
    rows_.AddLogits(rows.num_logits);
  }
  rows_.FinishTails();
  if (absl::Status status = MakeRoom(more); !status.ok()) {
    EmptySlots(batch);
    return status;
  }
  kernels::StepInputs inputs;
  inputs.token_ids = rows_.token_ids();
  inputs.num_heads = config_.num_attention_heads;
  inputs.layer = &kv(0);
  rows_.Send(inputs, backend_, &activations_);
  return absl::OkStatus();
}

absl::Status FeatureStep::MakeRoom(absl::FunctionRef<absl::Status()> more) {
  NACRE_RETURN_IF_ERROR(activations_.Grow(config_, backend_, rows_.size(),
                                          rows_.num_logit_rows()));
  NACRE_RETURN_IF_ERROR(
      out_.Reserve(static_cast<size_t>(rows_.num_logit_rows()) *
                   static_cast<size_t>(config_.hidden_size)));
  NACRE_RETURN_IF_ERROR(logits_.Reserve(NumLogits()));
  return more();
}

float* FeatureStep::GatherLogitRows() {
  logit_rows_.clear();
  for (const StepRows::Run& run : rows_.head_runs()) {
    for (int i = 0; i < run.count; ++i) logit_rows_.push_back(run.first + i);
  }
  backend_->GatherRows(activations_.hidden->f32(), logit_rows_,
                       config_.hidden_size, out_.data());
  return out_.data();
}

absl::Status FeatureStep::Wait(absl::Span<const FeatureRows> batch) {
  absl::Status status = backend_->Synchronize();
  if (!status.ok()) EmptySlots(batch);
  return status;
}

void FeatureStep::End(absl::Span<const FeatureRows> batch) {
  for (const FeatureRows& rows : batch) {
    const int end = FirstRow(rows) + static_cast<int>(NumPositions(rows));
    OwnKv(rows)->Append(std::max(0, end - OwnKv(rows)->length()));
  }
}

}  // namespace nacre::model
