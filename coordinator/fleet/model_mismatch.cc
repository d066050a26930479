#include "coordinator/fleet/model_mismatch.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/quoted.h"

namespace nacre::coordinator {
namespace {

std::string Listed(const std::vector<int32_t>& ids) {
  return absl::StrCat("[", absl::StrJoin(ids, ", "), "]");
}

}  // namespace

absl::Status CheckSameModel(const WorkerInfo& target, const WorkerInfo& other) {
  if (target.fingerprint != other.fingerprint) {
    return absl::FailedPreconditionError(absl::StrCat(
        "MODEL_MISMATCH: the config.json or the weights of target ",
        target.address, " differ from those of target ", other.address,
        ", which is attached: its checkpoint is ", target.fingerprint,
        ", the other ", other.fingerprint));
  }
  if (target.eos_token_ids != other.eos_token_ids) {
    return absl::FailedPreconditionError(absl::StrCat(
        "MODEL_MISMATCH: the end tokens of target ", target.address,
        " differ from those of target ", other.address, ", which is attached: ",
        Listed(target.eos_token_ids), ", not ", Listed(other.eos_token_ids),
        " (eos_token_id of generation_config.json or config.json)"));
  }
  return absl::OkStatus();
}

std::string LackedIdsWarning(const WorkerInfo& draft, int vocab_size) {
  if (draft.model_vocab_size >= vocab_size) return "";
  return absl::StrCat(
      "the model of draft ", draft.address, " has ", draft.model_vocab_size,
      " token ids, the tokenizer ", vocab_size,
      ": once a text has one of the others, this draft drafts nothing more for "
      "it. --target-tokenizer lets it");
}

std::string ShortContextWarning(const WorkerInfo& draft,
                                const WorkerInfo& target) {
  if (draft.context_length >= target.context_length) return "";
  return absl::StrCat("draft ", draft.address, " has a context of ",
                      draft.context_length, " tokens, target ", target.address,
                      " of ", target.context_length,
                      ": behind the first it drafts nothing");
}

std::string EndTokenWarning(const WorkerInfo& target,
                            std::optional<int32_t> end_id,
                            absl::string_view end_piece) {
  const std::vector<int32_t>& ids = target.eos_token_ids;
  if (!end_id.has_value() ||
      std::find(ids.begin(), ids.end(), *end_id) != ids.end())
    return "";
  return absl::StrCat(
      "the tokenizer's end token ", Quoted(end_piece), ", id ", *end_id,
      ", ends no answer of target ", target.address,
      ": eos_token_id of its generation_config.json or config.json has ",
      Listed(ids));
}

}  // namespace nacre::coordinator
