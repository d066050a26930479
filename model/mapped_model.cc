#include "model/mapped_model.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace nacre::model {
namespace {

absl::Status CheckIds(const char* what, absl::Span<const int32_t> ids,
                      int32_t least, int vocab_size) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= least && ids[i] < vocab_size) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("id ", i, " is ", what, " as ", ids[i], ", the model has ",
                     vocab_size, " ids"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<MappedModel>> MappedModel::Create(
    std::unique_ptr<LanguageModel> model, std::vector<int32_t> fed,
    std::vector<int32_t> drawn) {
  if (fed.empty() || fed.size() != drawn.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a vocabulary of ", fed.size(), " ids that are fed and ",
                     drawn.size(), " that are drawn"));
  }
  const int vocab_size = model->info().vocab_size;
  NACRE_RETURN_IF_ERROR(CheckIds("fed", fed, 0, vocab_size));
  NACRE_RETURN_IF_ERROR(CheckIds("drawn", drawn, -1, vocab_size));
  return std::unique_ptr<MappedModel>(
      new MappedModel(std::move(model), std::move(fed), std::move(drawn)));
}

MappedModel::MappedModel(std::unique_ptr<LanguageModel> model,
                         std::vector<int32_t> fed, std::vector<int32_t> drawn)
    : ForwardedModel(model.get()),
      owned_(std::move(model)),
      fed_(std::move(fed)),
      drawn_(std::move(drawn)),
      info_(model_->info()) {
  info_.vocab_size = static_cast<int>(fed_.size());
  info_.num_layers = 0;  // it has no taps
  std::vector<int32_t> eos;
  for (size_t id = 0; id < drawn_.size(); ++id) {
    if (std::find(info_.eos_token_ids.begin(), info_.eos_token_ids.end(),
                  drawn_[id]) != info_.eos_token_ids.end()) {
      eos.push_back(static_cast<int32_t>(id));
    }
  }
  info_.eos_token_ids = std::move(eos);
  absl::StrAppend(&info_.description, ", in the ", info_.vocab_size,
                  " ids of another vocabulary");
}

absl::StatusOr<absl::Span<const float>> MappedModel::Forward(
    absl::Span<const SequenceRows> batch) {
  token_ids_.clear();
  for (const SequenceRows& rows : batch) {
    for (const int32_t id : rows.token_ids) {
      if (id < 0 || id >= info_.vocab_size) {
        return absl::InvalidArgumentError(
            absl::StrCat("token id ", id, " is outside the vocabulary of ",
                         info_.vocab_size));
      }
      token_ids_.push_back(fed_[static_cast<size_t>(id)]);
    }
  }
  batch_.assign(batch.begin(), batch.end());
  absl::Span<const int32_t> rest = token_ids_;
  for (SequenceRows& rows : batch_) {
    rows.token_ids = rest.first(rows.token_ids.size());
    rest.remove_prefix(rows.token_ids.size());
  }
  NACRE_ASSIGN_OR_RETURN(const absl::Span<const float> logits,
                         model_->Forward(batch_));
  const auto vocab_size = static_cast<size_t>(model_->info().vocab_size);
  const size_t num_rows = logits.size() / vocab_size;
  logits_.resize(num_rows * drawn_.size());
  float* out = logits_.data();
  for (size_t row = 0; row < num_rows; ++row) {
    const float* in = logits.data() + row * vocab_size;
    for (const int32_t id : drawn_) {
      *out++ = id < 0 ? kLeastLogit : in[id];
    }
  }
  return absl::MakeConstSpan(logits_);
}

}  // namespace nacre::model
