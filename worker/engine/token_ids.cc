#include "worker/engine/token_ids.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "model/language_model.h"

namespace nacre::worker {

absl::Status CheckTokenIds(absl::string_view field,
                           absl::Span<const int32_t> ids, int vocab_size) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, "[", i, "] is ", ids[i],
                       ", outside the vocabulary of ", vocab_size));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPrompt(int prompt_length, absl::Span<const int32_t> token_ids,
                         int vocab_size) {
  const int64_t num_ids = static_cast<int64_t>(token_ids.size());
  if (prompt_length < 1 || prompt_length > num_ids) {
    return absl::InvalidArgumentError(
        absl::StrCat("prompt_length ", prompt_length, " is outside 1 to ",
                     num_ids, ", the number of token_ids"));
  }
  return CheckTokenIds("token_ids", token_ids, vocab_size);
}

absl::Status CheckNumSlots(int num_slots) {
  if (num_slots >= 0 && num_slots <= model::LanguageModel::kMostSlots) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("num_slots ", num_slots, " is outside 0 to ",
                   model::LanguageModel::kMostSlots));
}

absl::Status CheckSampling(const SamplingParams& params, int vocab_size) {
  NACRE_RETURN_IF_ERROR(ValidateSamplingParams(params));
  for (const auto& [id, bias] : params.logit_bias) {
    NACRE_RETURN_IF_ERROR(CheckTokenIds("logit_bias", {&id, 1}, vocab_size));
  }
  return absl::OkStatus();
}

}  // namespace nacre::worker
