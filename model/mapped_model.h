// A model that is fed and asked in the ids of another vocabulary: a draft whose
// target has one of its own. Ids are exchanged on their way in and logits on
// their way out, so that nothing above knows.
//
// KV is shared by the ids that callers name: equal ones are fed as equal ones.
// Tokens are not drawn where the logits are, so a device's rows cross the bus.
//
// Thread-compatible, as LanguageModel.

#ifndef MODEL_MAPPED_MODEL_H_
#define MODEL_MAPPED_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "model/forwarded_model.h"
#include "model/language_model.h"

namespace nacre::model {

// So little that the id is never drawn, and yet a number. An infinite one tells
// of damaged weights, and spoils sums of p log p.
inline constexpr float kLeastLogit = -1e30f;

class MappedModel final : public ForwardedModel<LanguageModel> {
 public:
  // Of each id of the other vocabulary: the model's id that is fed for it, and
  // that of whose logit it has. An id without one, which is -1 there, has the
  // logit kLeastLogit. Both [size of that vocabulary], not empty;
  // INVALID_ARGUMENT where they are not, or name an id that the model has not.
  static absl::StatusOr<std::unique_ptr<MappedModel>> Create(
      std::unique_ptr<LanguageModel> model, std::vector<int32_t> fed,
      std::vector<int32_t> drawn);

  // Its vocabulary, and its EOS ids in it.
  const ModelInfo& info() const override { return info_; }
  void BindComputeThread() override { model_->BindComputeThread(); }
  absl::StatusOr<std::unique_ptr<Sequence>> NewSequence(
      int max_length) override {
    return model_->NewSequence(max_length);
  }
  absl::StatusOr<std::unique_ptr<Sequence>> NewPromptSequence(
      int prompt_positions, int max_length, int num_slots,
      absl::Span<const int32_t> token_ids) override {
    return model_->NewPromptSequence(prompt_positions, max_length, num_slots,
                                     token_ids);
  }
  absl::StatusOr<absl::Span<const float>> Forward(
      absl::Span<const SequenceRows> batch) override;
  kernels::FloatView final_hidden() override { return model_->final_hidden(); }

 private:
  MappedModel(std::unique_ptr<LanguageModel> model, std::vector<int32_t> fed,
              std::vector<int32_t> drawn);

  const std::unique_ptr<LanguageModel> owned_;  // model_
  const std::vector<int32_t> fed_;
  const std::vector<int32_t> drawn_;
  ModelInfo info_;
  // Of the last Forward.
  std::vector<int32_t> token_ids_;  // of all rows
  std::vector<SequenceRows> batch_;
  std::vector<float> logits_;
};

}  // namespace nacre::model

#endif  // MODEL_MAPPED_MODEL_H_
