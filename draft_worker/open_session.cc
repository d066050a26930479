#include "draft_worker/open_session.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/sampling_params.h"
#include "common/status_macros.h"
#include "draft_worker/engine_session.h"
#include "worker/engine/token_ids.h"

namespace nacre::draft_worker {

using speculation::DraftSession;
using speculation::Verification;

namespace {

absl::Status CheckOpen(const OpenDraft& open, int context_length) {
  const int64_t num_ids = static_cast<int64_t>(open.token_ids.size());
  if (open.max_length < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_length ", open.max_length, " is below 1"));
  }
  if (num_ids > context_length) {
    return absl::InvalidArgumentError(
        absl::StrCat(num_ids, " token_ids are over the draft's context of ",
                     context_length));
  }
  NACRE_RETURN_IF_ERROR(ValidateSamplingParams(open.sampling));
  if (open.min_tokens < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("min_tokens ", open.min_tokens, " is below 0"));
  }
  NACRE_RETURN_IF_ERROR(worker::CheckNumSlots(open.num_slots));
  if (open.vocab_limit < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("vocab_limit ", open.vocab_limit, " is below 0"));
  }
  return absl::OkStatus();
}

// INVALID_ARGUMENT, FAILED_PRECONDITION.
absl::StatusOr<PolicyLibrary::Made> MakeLength(OpenDraft& open,
                                               const SessionParts& parts) {
  NACRE_ASSIGN_OR_RETURN(const speculation::PolicySpec spec,
                         speculation::ParsePolicySpec(open.policy));
  speculation::PolicyInputs inputs;
  inputs.seed = open.sampling.seed;
  inputs.has_target_hidden = parts.can_read_hidden;
  inputs.oracle_ids = std::move(open.oracle_token_ids);
  inputs.hidden_size = parts.drafter->info().hidden_size;
  return parts.policies->Make(spec, std::move(inputs), open.target_fingerprint);
}

// Of a session whose drafter shows none.
absl::Status CheckNeedsNoLogits(const OpenDraft& open,
                                const PolicyLibrary::Made& made) {
  if (open.verification == Verification::kRatio) {
    return absl::FailedPreconditionError(
        "the ratio test needs the distribution that a draft token is drawn "
        "from, which this drafter does not show");
  }
  if (made.length != nullptr && NeedsLogits(made.length->needs())) {
    return absl::FailedPreconditionError(
        absl::StrCat("policy ", open.policy, " reads the draft's logits, ",
                     "which this drafter does not show"));
  }
  return absl::OkStatus();
}

absl::Status CheckLength(const OpenDraft& open, const PolicyLibrary::Made& made,
                         const model::DrafterTraits& traits) {
  if (open.verification == Verification::kRatio &&
      open.sampling.temperature > 0.0f && made.length != nullptr &&
      made.length->looks_at_token()) {
    return absl::InvalidArgumentError(
        absl::StrCat("policy ", open.policy, " looks at the tokens drawn, ",
                     "which would bias the ratio test"));
  }
  if (!traits.shows_logits) return CheckNeedsNoLogits(open, made);
  return absl::OkStatus();
}

// Whether the length policy, if it is one, can end the depth of a tree. The
// target's hidden states are of positions, which a branch changes.
bool MayEndDepth(const OpenDraft& open,
                 const speculation::DraftLength* length) {
  return length == nullptr || (open.plan.tree.may_have_policy() &&
                               length->target_hidden_size() == 0);
}

// With slots where it may have branches.
absl::StatusOr<std::unique_ptr<model::Sequence>> NewSequence(
    const OpenDraft& open, const speculation::DraftLength* length,
    int reserved_length, const SessionParts& parts) {
  // The ratio test judges chains, and recordings are of them.
  if (open.num_slots > 0 && MayEndDepth(open, length) && !parts.is_recorded &&
      open.verification == Verification::kExact &&
      (open.plan.tree.ranks_by_q() ? parts.drafter->traits().shows_logits
                                   : parts.drafter->traits().ranks_children)) {
    absl::StatusOr<std::unique_ptr<model::Sequence>> sequence =
        parts.drafter->NewTreeSequence(reserved_length, open.num_slots,
                                       open.token_ids);
    // Without room for branches, or slots at all, it drafts a chain.
    if (sequence.ok()) return sequence;
  }
  return parts.drafter->NewSequenceWithPrefix(reserved_length, open.token_ids);
}

}  // namespace

absl::StatusOr<std::unique_ptr<EngineSession>> OpenSession(
    OpenDraft& open, const SessionParts& parts) {
  const model::ModelInfo& info = parts.drafter->info();
  NACRE_RETURN_IF_ERROR(CheckOpen(open, info.context_length));
  NACRE_ASSIGN_OR_RETURN(PolicyLibrary::Made made, MakeLength(open, parts));
  NACRE_RETURN_IF_ERROR(CheckLength(open, made, parts.drafter->traits()));
  // A draft may stop short of the target's length: the target then goes on
  // alone.
  const int reserved_length = std::min(
      info.context_length,
      std::max(open.max_length, static_cast<int>(open.token_ids.size())));
  NACRE_ASSIGN_OR_RETURN(
      std::unique_ptr<model::Sequence> sequence,
      NewSequence(open, made.length.get(), reserved_length, parts));

  DraftSession::Options schedule;
  schedule.epoch = open.epoch;
  schedule.max_length = std::min(open.max_length, reserved_length);
  // No position is past 2^30: the sum cannot overflow.
  model::EndRule end_rule{
      open.prompt_length + std::min(open.min_tokens, 1 << 30),
      open.end_token_ids};
  schedule.end_ids = std::move(open.end_token_ids);
  schedule.plan = open.plan;
  schedule.verification = open.verification;
  schedule.num_slots = sequence->num_slots();
  const int vocab_limit = open.vocab_limit == 0
                              ? info.vocab_size
                              : std::min(open.vocab_limit, info.vocab_size);
  // Room for all that will come: steps allocate nothing.
  model::TokenHistory history(open.prompt_length);
  history.Reserve(reserved_length + speculation::kMaxLead);
  open.token_ids.reserve(static_cast<size_t>(reserved_length) +
                         speculation::kMaxLead);
  auto session = std::make_unique<EngineSession>(
      DraftSession(std::move(schedule), std::move(open.token_ids)),
      model::Sampler(open.sampling, vocab_limit, std::move(end_rule),
                     parts.scratch),
      std::move(history));
  session->opening_note = std::move(made.note);
  session->sequence = std::move(sequence);
  session->prompt_length = open.prompt_length;
  session->ranks_by_q = open.plan.tree.ranks_by_q();
  session->vocab_limit = vocab_limit;
  session->reserved_length = reserved_length;
  session->temperature = open.sampling.temperature;
  session->tells_candidates = open.tells_candidates;
  if (made.length != nullptr) {
    session->length.emplace(std::move(made.length), open.prompt_length,
                            vocab_limit);
  }
  if (open.verification == Verification::kRatio) {
    session->ratio.emplace(open.sampling.seed);
  }
  return session;
}

}  // namespace nacre::draft_worker
