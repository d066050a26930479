// How the target engine applies what its streams tell it.

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/sampling_params.h"
#include "common/status_macros.h"
#include "target_worker/engine_session.h"
#include "target_worker/target_engine.h"
#include "worker/engine/token_ids.h"

namespace nacre::target_worker {

using speculation::TargetSession;

namespace {

// A century: added to a time it does not overflow.
constexpr int64_t kNoTimeoutNs = int64_t{100} * 365 * 24 * 3600 * 1'000'000'000;

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
      " of the token_ids are behind the prompt, as many as max_tokens allows"));
}

// What is wrong with a session of this target, but for its ids.
absl::Status CheckRequest(const OpenTarget& open,
                          const model::ModelInfo& info) {
  const int64_t num_ids = static_cast<int64_t>(open.token_ids.size());
  if (open.max_tokens < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_tokens ", open.max_tokens, " is below 1"));
  }
  const int64_t length = int64_t{open.prompt_length} + open.max_tokens;
  if (length > info.context_length) {
    return absl::InvalidArgumentError(
        absl::StrCat("a prompt of ", open.prompt_length,
                     " tokens and max_tokens ", open.max_tokens, " make ",
                     length, ", over the context of ", info.context_length));
  }
  if (num_ids > length) {
    return absl::InvalidArgumentError(
        absl::StrCat(num_ids, " token_ids, over prompt_length and max_tokens, ",
                     "which make ", length));
  }
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
  return absl::OkStatus();
}

}  // namespace

speculation::TargetPlan TargetEngine::Followed(
    speculation::TargetPlan plan) const {
  if (!options_.gate_timeouts) plan.gate_timeout_ns = kNoTimeoutNs;
  return plan;
}

void TargetEngine::ApplyToSessions(TargetCommands& commands) {
  const worker::StreamId stream = commands.stream;
  for (const auto& [id, plan] : commands.plans) {
    if (Session* session = Find(stream, id)) {
      session->schedule.OnPlan(Followed(plan));
      session->gate_after_mismatch = plan.gate_after_mismatch;
    }
  }
  for (const auto& [id, committed_length] : commands.acknowledged) {
    if (Session* session = Find(stream, id)) {
      session->schedule.OnAcknowledged(committed_length);
    }
  }
  for (const uint64_t id : commands.draft_lost) {
    if (Session* session = Find(stream, id)) {
      session->schedule.OnDraftLost();
      session->has_draft = false;
    }
  }
  for (const auto& [id, epoch, opened_length] : commands.draft_attached) {
    Session* session = Find(stream, id);
    if (session == nullptr) continue;
    if (opened_length < 1) {
      ++rejected_messages_;
      continue;
    }
    session->schedule.OnDraftAttached(epoch, opened_length);
    session->has_draft = true;
    session->hidden_epoch = std::max(session->hidden_epoch, epoch);
  }
  for (const auto& [id, tail] : commands.tails) {
    if (Session* session = Find(stream, id)) ApplyTail(*session, tail);
  }
}

absl::StatusOr<std::unique_ptr<model::Sequence>> TargetEngine::NewSequence(
    const OpenTarget& open, int length) {
  if (open.num_slots < 0 || open.num_slots > model::LanguageModel::kMostSlots) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_slots ", open.num_slots, " is outside 0 to ",
                     model::LanguageModel::kMostSlots));
  }
  // The ratio test judges chains, and hidden states are shown of chains.
  if (open.num_slots > 0 &&
      open.verification == speculation::Verification::kExact &&
      open.hidden_channel == 0 && options_.features == nullptr) {
    absl::StatusOr<std::unique_ptr<model::Sequence>> sequence =
        options_.model->NewTreeSequence(length, open.num_slots, open.token_ids);
    // Without room for slots, or slots at all, it verifies chains.
    if (sequence.ok()) return sequence;
  }
  return options_.model->NewSequenceWithPrefix(length, open.token_ids);
}

absl::StatusOr<std::unique_ptr<EngineSession>> TargetEngine::NewSession(
    OpenTarget& open) {
  const model::ModelInfo& info = options_.model->info();
  NACRE_RETURN_IF_ERROR(CheckRequest(open, info));
  const int length = open.prompt_length + open.max_tokens;
  NACRE_ASSIGN_OR_RETURN(std::unique_ptr<model::Sequence> sequence,
                         NewSequence(open, length));

  TargetSession::Options schedule;
  schedule.text.prompt_length = open.prompt_length;
  schedule.text.max_tokens = open.max_tokens;
  if (!open.ignore_eos) schedule.text.eos_ids = info.eos_token_ids;
  schedule.text.stop_ids = std::move(open.stop_token_ids);
  model::EndRule end_rule{open.prompt_length + open.min_tokens,
                          schedule.text.eos_ids};
  end_rule.token_ids.insert(end_rule.token_ids.end(),
                            schedule.text.stop_ids.begin(),
                            schedule.text.stop_ids.end());
  schedule.plan = Followed(open.plan);
  schedule.epoch = open.epoch;
  schedule.has_draft = open.has_draft;
  schedule.verification = open.verification;
  schedule.num_slots = sequence->num_slots();
  // Room for all that will come: steps allocate nothing.
  model::TokenHistory history(open.prompt_length);
  history.Reserve(length + speculation::kMaxWindow);
  for (const int32_t id : open.token_ids) history.Push(id);
  open.token_ids.reserve(static_cast<size_t>(length));
  auto session = std::make_unique<Session>(
      TargetSession(std::move(schedule), std::move(open.token_ids)),
      model::Sampler(open.sampling, info.vocab_size, std::move(end_rule),
                     &scratch_),
      std::move(history));
  session->sequence = std::move(sequence);
  session->has_draft = open.has_draft;
  session->gate_after_mismatch = open.plan.gate_after_mismatch;
  session->num_logprobs = open.logprobs;
  session->seed = open.sampling.seed;
  session->hidden_channel = open.hidden_channel;
  session->hidden_epoch = open.epoch;
  NACRE_RETURN_IF_ERROR(CheckUnfinished(session->schedule));
  return session;
}

void TargetEngine::OnOpened(Session& session, OpenTarget& open) {
  if (!options_.suffixes || !open.suffixes.has_value() ||
      open.verification != speculation::Verification::kExact) {
    return;
  }
  session.suffixes = std::make_unique<speculation::SuffixDraft>(
      *open.suffixes, open.prompt_length + open.max_tokens);
}

void TargetEngine::ApplyTail(Session& session, const speculation::Tail& tail) {
  // What is verified is fed: an id outside the vocabulary must not get there.
  if (!worker::CheckTokenIds("tail", tail.token_ids,
                             options_.model->info().vocab_size)
           .ok()) {
    ++rejected_messages_;
    return;
  }
  switch (session.schedule.OnTail(tail)) {
    case TargetSession::TailOutcome::kApplied:
    case TargetSession::TailOutcome::kMismatch:
      return;
    case TargetSession::TailOutcome::kStale:
    case TargetSession::TailOutcome::kMalformed:
      ++rejected_messages_;
      return;
  }
}

}  // namespace nacre::target_worker
