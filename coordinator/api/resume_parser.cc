#include "coordinator/api/resume_parser.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/quoted.h"
#include "common/refusal.h"
#include "common/status_macros.h"
#include "coordinator/dispatch/text_stream.h"
#include "speculation/pipeline.h"

namespace nacre::coordinator {
namespace {

using speculation::FinishReason;

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return WithField(
      absl::InvalidArgumentError(absl::StrCat("resume: ", parts...)), "resume");
}

absl::Status CheckIdentity(const GenerateFields& fields) {
  const GenerateFields::Resume& resume = *fields.resume;
  if (resume.model_fingerprint.empty()) {
    return Invalid("model_fingerprint is empty, must be the answer's");
  }
  if (resume.numerics_id.empty()) {
    return Invalid("numerics_id is empty, must be the answer's");
  }
  if (resume.numerics_id.size() > kMaxNumericsIdBytes) {
    return Invalid("numerics_id has ", resume.numerics_id.size(),
                   " bytes, at most ", kMaxNumericsIdBytes);
  }
  if (!fields.numerics_id.empty() && fields.numerics_id != resume.numerics_id) {
    return Invalid("numerics_id is ", Quoted(resume.numerics_id),
                   ", the request's is ", Quoted(fields.numerics_id));
  }
  return absl::OkStatus();
}

// Whether the rest of the request says again what the answer was.
absl::Status CheckRepeatable(const GenerateFields& fields,
                             const RequestSpec& spec) {
  if (fields.text.has_value()) {
    return Invalid(
        "the prompt is text, must be the token_ids of the first response");
  }
  if (spec.sampling.temperature > 0.0f && !fields.sampling.seed.has_value()) {
    return Invalid("no seed, must be the answer's at temperature ",
                   spec.sampling.temperature);
  }
  if (spec.verification == speculation::Verification::kRatio) {
    return Invalid("verification is ratio, must be exact at temperature ",
                   spec.sampling.temperature);
  }
  if (spec.policy.kind() == speculation::PolicyKind::kOracle) {
    return Invalid("policy oracle cannot be resumed");
  }
  return absl::OkStatus();
}

absl::Status CheckChoices(const GenerateFields::Resume& resume,
                          int num_choices) {
  if (resume.choices.size() != static_cast<size_t>(num_choices)) {
    return Invalid(resume.choices.size(), " choices, must be n, ", num_choices);
  }
  if (std::all_of(resume.choices.begin(), resume.choices.end(),
                  [](const auto& choice) { return choice.done; })) {
    return Invalid("all ", num_choices, " choices are done, nothing is left");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> IdsOf(absl::Span<const uint32_t> fields,
                                           size_t index, int vocab_size,
                                           int max_tokens) {
  if (fields.size() > static_cast<size_t>(max_tokens)) {
    return Invalid("choice ", index, " has ", fields.size(),
                   " token ids, at most max_tokens, ", max_tokens);
  }
  std::vector<int32_t> ids;
  ids.reserve(fields.size());
  for (const uint32_t id : fields) {
    if (id >= static_cast<uint32_t>(vocab_size)) {
      return Invalid("token id ", id, " at index ", ids.size(), " of choice ",
                     index, " is outside the vocabulary of ", vocab_size);
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

// Why the target would have ended with this token.
FinishReason EndsWith(int32_t id, const RequestSpec& spec,
                      const WorkerInfo& model) {
  const auto contains = [id](const std::vector<int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  if (!spec.ignore_eos && contains(model.eos_token_ids)) {
    return FinishReason::kEos;
  }
  return contains(spec.stop_token_ids) ? FinishReason::kStop
                                       : FinishReason::kNone;
}

// What the ids end, null if they do not. `spec` resumes nothing.
absl::StatusOr<std::shared_ptr<const Completion>> EndOf(
    const std::vector<int32_t>& ids, size_t index,
    const std::shared_ptr<const RequestSpec>& spec,
    const tokenizer::Tokenizer& tokenizer, const WorkerInfo& model) {
  if (ids.empty()) return nullptr;
  const auto end = std::find_if(ids.begin(), ids.end(), [&](int32_t id) {
    return EndsWith(id, *spec, model) != FinishReason::kNone;
  });
  const bool has_end = end != ids.end();
  const size_t length = has_end ? end + 1 - ids.begin() : ids.size();
  FinishReason finish =
      has_end ? EndsWith(*end, *spec, model) : FinishReason::kNone;
  if (!has_end && static_cast<int>(length) == spec->max_tokens) {
    finish = FinishReason::kLength;
  }
  TextStream text(spec, &tokenizer);
  text.Append({ids.begin(), ids.begin() + length}, finish);
  const size_t ended_at = text.token_ids().size();
  if (ended_at < ids.size()) {
    return Invalid("choice ", index, " has ", ids.size(),
                   " token ids, but ends with its id at index ", ended_at - 1);
  }
  if (!text.finish().has_value()) return nullptr;
  auto completion = std::make_shared<Completion>();
  completion->finish = *text.finish();
  completion->stop_match = text.stop_match();
  completion->text = text.text();
  completion->token_ids = text.token_ids();
  completion->numerics_id = spec->numerics_id;
  return completion;
}

}  // namespace

absl::Status ParseResume(const GenerateFields& fields,
                         const tokenizer::Tokenizer& tokenizer,
                         const WorkerInfo& model, RequestSpec* spec) {
  const GenerateFields::Resume& resume = *fields.resume;
  NACRE_RETURN_IF_ERROR(CheckIdentity(fields));
  NACRE_RETURN_IF_ERROR(CheckRepeatable(fields, *spec));
  NACRE_RETURN_IF_ERROR(CheckChoices(resume, spec->num_choices));
  std::vector<ResumedChoice> choices;
  for (const auto& choice : resume.choices) {
    choices.push_back({.token_ids = {}, .done = choice.done});
    if (choice.done) continue;
    NACRE_ASSIGN_OR_RETURN(choices.back().token_ids,
                           IdsOf(choice.token_ids, choices.size() - 1,
                                 model.model_vocab_size, spec->max_tokens));
  }
  // Their ends are those of its own model only.
  if (resume.model_fingerprint != model.fingerprint) {
    return WithField(absl::FailedPreconditionError(absl::StrCat(
                         "resume: the answer is of a model with fingerprint ",
                         Quoted(resume.model_fingerprint),
                         ", the served one has ", Quoted(model.fingerprint))),
                     "resume.model_fingerprint");
  }
  spec->numerics_id = std::string(resume.numerics_id);
  const auto uncut = std::make_shared<const RequestSpec>(*spec);
  spec->first_choice = spec->num_choices;
  for (size_t i = 0; i < choices.size(); ++i) {
    ResumedChoice& choice = choices[i];
    NACRE_ASSIGN_OR_RETURN(choice.ended,
                           EndOf(choice.token_ids, i, uncut, tokenizer, model));
    if (choice.done || choice.ended != nullptr) continue;
    spec->first_choice = std::min(spec->first_choice, static_cast<int>(i));
  }
  spec->resume =
      std::make_shared<const std::vector<ResumedChoice>>(std::move(choices));
  return absl::OkStatus();
}

}  // namespace nacre::coordinator
