#include "target_worker/open_session.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/token_logprobs.h"
#include "target_worker/engine_session.h"
#include "worker/engine/token_ids.h"

namespace nacre::target_worker {

using speculation::TargetSession;

namespace {

absl::Status CheckLengths(const OpenTarget& open, int context_length) {
  if (open.max_tokens < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_tokens ", open.max_tokens, " is below 1"));
  }
  const int64_t length = int64_t{open.prompt_length} + open.max_tokens;
  if (length > context_length) {
    return absl::InvalidArgumentError(
        absl::StrCat("a prompt of ", open.prompt_length,
                     " tokens and max_tokens ", open.max_tokens, " make ",
                     length, ", over the context of ", context_length));
  }
  const int64_t num_ids = static_cast<int64_t>(open.token_ids.size());
  if (num_ids > length) {
    return absl::InvalidArgumentError(
        absl::StrCat(num_ids, " token_ids, over prompt_length and max_tokens, ",
                     "which make ", length));
  }
  return absl::OkStatus();
}

absl::Status CheckPromptLogprobs(const OpenTarget& open) {
  if (!open.prompt_logprobs.has_value()) return absl::OkStatus();
  if (*open.prompt_logprobs < 0 || *open.prompt_logprobs > kMaxTopLogprobs) {
    return absl::InvalidArgumentError(
        absl::StrCat("prompt_logprobs ", *open.prompt_logprobs,
                     " is outside 0 to ", kMaxTopLogprobs));
  }
  if (open.first_prompt_logprob < 1 ||
      open.first_prompt_logprob > open.prompt_length) {
    return absl::InvalidArgumentError(absl::StrCat(
        "first_prompt_logprob ", open.first_prompt_logprob, " is outside 1 to ",
        open.prompt_length, ", prompt_length"));
  }
  return absl::OkStatus();
}

absl::Status CheckOpen(const OpenTarget& open, const model::ModelInfo& info) {
  NACRE_RETURN_IF_ERROR(CheckLengths(open, info.context_length));
  NACRE_RETURN_IF_ERROR(worker::CheckTokenIds(
      "stop_token_ids", open.stop_token_ids, info.vocab_size));
  NACRE_RETURN_IF_ERROR(worker::CheckSampling(open.sampling, info.vocab_size));
  if (open.min_tokens < 0 || open.min_tokens > open.max_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("min_tokens ", open.min_tokens, " is outside 0 to ",
                     open.max_tokens, ", max_tokens"));
  }
  if (open.logprobs.has_value() &&
      (*open.logprobs < 0 || *open.logprobs > kMaxTopLogprobs)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "logprobs ", *open.logprobs, " is outside 0 to ", kMaxTopLogprobs));
  }
  NACRE_RETURN_IF_ERROR(CheckPromptLogprobs(open));
  return worker::CheckNumSlots(open.num_slots);
}

// A session that had ended before it was opened would never step.
absl::Status CheckUnfinished(const TargetSession& schedule) {
  if (!schedule.finished()) return absl::OkStatus();
  const int32_t last = schedule.committed().back();
  if (schedule.text().IsEnd(last)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "nothing is left to generate: the last of ",
        schedule.committed_length(), " token_ids, ", last, ", ends it"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "nothing is left to generate: ", schedule.text().generated(),
      " of the token_ids are after the prompt, as many as max_tokens allows"));
}

bool TellsPrompt(const OpenTarget& open) {
  return open.prompt_logprobs.has_value() &&
         open.first_prompt_logprob < open.prompt_length;
}

// With its slots, if it can have them.
absl::StatusOr<std::unique_ptr<model::Sequence>> NewSequence(
    const OpenTarget& open, int length, const SessionParts& parts) {
  // A row that is not computed says nothing of the token after it.
  absl::Span<const int32_t> shareable = open.token_ids;
  if (TellsPrompt(open)) {
    shareable = shareable.first(static_cast<size_t>(open.first_prompt_logprob));
  }
  // The prompt's last token is the first row of a step. An opening after a
  // failover says the same.
  const int prompt = open.prompt_length - 1;
  // The ratio test judges chains, and hidden states are shown of chains.
  if (open.num_slots > 0 &&
      open.verification == speculation::Verification::kExact &&
      open.hidden_channel == 0 && !parts.is_recorded) {
    absl::StatusOr<std::unique_ptr<model::Sequence>> sequence =
        parts.model->NewPromptSequence(prompt, length, open.num_slots,
                                       shareable);
    // Without room for slots, or slots at all, it verifies chains.
    if (sequence.ok()) return sequence;
  }
  return parts.model->NewPromptSequence(prompt, length, 0, shareable);
}

}  // namespace

absl::StatusOr<std::unique_ptr<EngineSession>> OpenSession(
    OpenTarget& open, const speculation::TargetPlan& plan,
    const SessionParts& parts) {
  const model::ModelInfo& info = parts.model->info();
  NACRE_RETURN_IF_ERROR(CheckOpen(open, info));
  const int length = open.prompt_length + open.max_tokens;
  NACRE_ASSIGN_OR_RETURN(std::unique_ptr<model::Sequence> sequence,
                         NewSequence(open, length, parts));

  TargetSession::Options schedule;
  speculation::TargetText::Limits& text = schedule.text;
  text.prompt_length = open.prompt_length;
  text.max_tokens = open.max_tokens;
  if (!open.ignore_eos) text.eos_ids = info.eos_token_ids;
  text.stop_ids = std::move(open.stop_token_ids);
  model::EndRule end_rule{open.prompt_length + open.min_tokens, text.eos_ids};
  end_rule.token_ids.insert(end_rule.token_ids.end(), text.stop_ids.begin(),
                            text.stop_ids.end());
  schedule.plan = plan;
  schedule.epoch = open.epoch;
  schedule.has_draft = open.has_draft;
  schedule.verification = open.verification;
  schedule.num_slots = sequence->num_slots();
  // Room for all that will come: steps allocate nothing.
  model::TokenHistory history(open.prompt_length);
  history.Reserve(length + speculation::kMaxWindow);
  for (const int32_t id : open.token_ids) history.Push(id);
  open.token_ids.reserve(static_cast<size_t>(length));
  auto session = std::make_unique<EngineSession>(
      TargetSession(std::move(schedule), std::move(open.token_ids)),
      model::Sampler(open.sampling, info.vocab_size, std::move(end_rule),
                     parts.scratch),
      std::move(history));
  session->sequence = std::move(sequence);
  session->has_draft = open.has_draft;
  session->gate_after_mismatch = open.plan.gate_after_mismatch;
  session->num_logprobs = open.logprobs;
  if (TellsPrompt(open)) {
    session->prompt.num_top = *open.prompt_logprobs;
    session->prompt.next = open.first_prompt_logprob;
    session->prompt.end = open.prompt_length;
  }
  session->seed = open.sampling.seed;
  session->hidden.channel = open.hidden_channel;
  session->hidden.epoch = open.epoch;
  session->read_rows.channel = open.kv_channel;
  NACRE_RETURN_IF_ERROR(CheckUnfinished(session->schedule));
  return session;
}

}  // namespace nacre::target_worker
