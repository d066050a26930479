// What a model that stands before another one hands on to it: its sequences,
// and how far it is. `Interface` is LanguageModel or Drafter.

#ifndef MODEL_FORWARDED_MODEL_H_
#define MODEL_FORWARDED_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/language_model.h"

namespace nacre::model {

template <typename Interface>
class ForwardedModel : public Interface {
 public:
  explicit ForwardedModel(LanguageModel* model) : model_(model) {}

  const ModelInfo& info() const override { return model_->info(); }
  absl::StatusOr<std::unique_ptr<Sequence>> NewSequenceWithPrefix(
      int max_length, absl::Span<const int32_t> token_ids) override {
    return model_->NewSequenceWithPrefix(max_length, token_ids);
  }
  absl::StatusOr<std::unique_ptr<Sequence>> NewTreeSequence(
      int max_length, int num_slots,
      absl::Span<const int32_t> token_ids) override {
    return model_->NewTreeSequence(max_length, num_slots, token_ids);
  }
  RowReader* row_reader() override { return model_->row_reader(); }
  int shared_block_size() const override { return model_->shared_block_size(); }
  int blocks_brought_at_once() const override {
    return model_->blocks_brought_at_once();
  }
  int64_t kv_free_tokens() const override { return model_->kv_free_tokens(); }
  QueuedSteps queued_steps() const override { return model_->queued_steps(); }
  void SetInterrupt(std::function<bool()> interrupt) override {
    model_->SetInterrupt(std::move(interrupt));
  }
  uint64_t forward_progress() const override {
    return model_->forward_progress();
  }

 protected:
  LanguageModel* const
      model_;  // outlives this, or belongs to the derived class
};

}  // namespace nacre::model

#endif  // MODEL_FORWARDED_MODEL_H_
