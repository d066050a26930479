// How the draft engine applies what its streams tell it.

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/sampling_params.h"
#include "common/status_macros.h"
#include "draft_worker/draft_engine.h"
#include "draft_worker/engine_session.h"
#include "worker/engine/token_ids.h"

namespace nacre::draft_worker {

using speculation::DraftSession;

namespace {

// Of a session whose drafter shows none.
absl::Status CheckNeedsNoLogits(const OpenDraft& open,
                                const PolicyLibrary::Made& made) {
  if (open.verification == speculation::Verification::kRatio) {
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

}  // namespace

void DraftEngine::ApplyToSessions(DraftCommands& commands) {
  const worker::StreamId stream = commands.stream;
  for (const auto& [id, plan] : commands.plans) {
    if (Session* session = Find(stream, id)) {
      session->schedule.OnPlan(plan);
      session->touched = true;
    }
  }
  for (const auto& [id, commit] : commands.commits) {
    if (Session* session = Find(stream, id)) ApplyCommit(*session, commit);
  }
  for (worker::ReceivedTensor& received : commands.hidden) {
    OnHidden(std::move(received));
  }
  for (const uint64_t channel : commands.hidden_lost) OnHiddenLost(channel);
}

absl::StatusOr<PolicyLibrary::Made> DraftEngine::MakeLength(OpenDraft& open) {
  NACRE_ASSIGN_OR_RETURN(const speculation::PolicySpec spec,
                         speculation::ParsePolicySpec(open.policy));
  speculation::PolicyInputs inputs;
  inputs.seed = open.sampling.seed;
  inputs.has_target_hidden = CanReadHidden(open);
  inputs.oracle_ids = std::move(open.oracle_token_ids);
  inputs.hidden_size = drafter_->info().hidden_size;
  PolicyLibrary& policies =
      options_.policies != nullptr ? *options_.policies : no_files_;
  return policies.Make(spec, std::move(inputs), open.target_fingerprint);
}

absl::StatusOr<std::unique_ptr<EngineSession>> DraftEngine::NewSession(
    OpenDraft& open) {
  const model::ModelInfo& info = drafter_->info();
  const int64_t num_ids = static_cast<int64_t>(open.token_ids.size());
  if (open.max_length < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_length ", open.max_length, " is below 1"));
  }
  if (num_ids > info.context_length) {
    return absl::InvalidArgumentError(
        absl::StrCat(num_ids, " token_ids are over the draft's context of ",
                     info.context_length));
  }
  NACRE_RETURN_IF_ERROR(ValidateSamplingParams(open.sampling));
  if (open.min_tokens < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("min_tokens ", open.min_tokens, " is below 0"));
  }
  if (open.num_slots < 0 || open.num_slots > model::LanguageModel::kMostSlots) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_slots ", open.num_slots, " is outside 0 to ",
                     model::LanguageModel::kMostSlots));
  }
  if (open.vocab_limit < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("vocab_limit ", open.vocab_limit, " is below 0"));
  }
  NACRE_ASSIGN_OR_RETURN(PolicyLibrary::Made made, MakeLength(open));
  const bool is_ratio = open.verification == speculation::Verification::kRatio;
  if (is_ratio && open.sampling.temperature > 0.0f && made.length != nullptr &&
      made.length->looks_at_token()) {
    return absl::InvalidArgumentError(
        absl::StrCat("policy ", open.policy, " looks at the tokens drawn, ",
                     "which would bias the ratio test"));
  }
  if (!drafter_->traits().shows_logits) {
    NACRE_RETURN_IF_ERROR(CheckNeedsNoLogits(open, made));
  }
  // A draft may stop short of the target's length: the target then goes on
  // alone.
  const int reserved_length =
      std::min(info.context_length,
               std::max(open.max_length, static_cast<int>(num_ids)));
  NACRE_ASSIGN_OR_RETURN(
      std::unique_ptr<model::Sequence> sequence,
      NewSequence(open, made.length != nullptr, reserved_length));

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
  auto session = std::make_unique<Session>(
      DraftSession(std::move(schedule), std::move(open.token_ids)),
      model::Sampler(open.sampling, vocab_limit, std::move(end_rule),
                     &scratch_),
      std::move(history));
  session->opening_note = std::move(made.note);
  session->sequence = std::move(sequence);
  session->prompt_length = open.prompt_length;
  session->vocab_limit = vocab_limit;
  session->reserved_length = reserved_length;
  session->temperature = open.sampling.temperature;
  if (made.length != nullptr) {
    session->length.emplace(std::move(made.length), open.prompt_length,
                            vocab_limit);
  }
  if (is_ratio) session->ratio.emplace(open.sampling.seed);
  return session;
}

void DraftEngine::OnOpened(Session& session, OpenDraft& open) {
  SubscribeHidden(session, open);
}

void DraftEngine::OnClosing(worker::EngineSession& closing) {
  auto& session = static_cast<Session&>(closing);
  if (tap_ != nullptr) tap_->OnClosed(Tapped(session));
  UnsubscribeHidden(session);
}

void DraftEngine::ApplyCommit(Session& session,
                              const speculation::Commit& commit) {
  const int vocab_size = drafter_->info().vocab_size;
  if (absl::Status status =
          worker::CheckTokenIds("commit", commit.token_ids, vocab_size);
      !status.ok()) {
    // The target's vocabulary has ids that this model cannot be fed.
    table_.Fail(session, std::move(status));
    return;
  }
  const int num_ids = static_cast<int>(commit.token_ids.size());
  const DraftSession& schedule = session.schedule;
  // The first position where the commit and the draft differ; KV behind it is
  // of other tokens.
  int kept = schedule.length();
  if (commit.first_position >= 0) {
    for (int i =
             std::max(0, schedule.committed_length() - commit.first_position);
         i < num_ids && commit.first_position + i < kept; ++i) {
      const int position = commit.first_position + i;
      if (schedule.tokens()[position] != commit.token_ids[i]) kept = position;
    }
  }
  const int length_before = schedule.length();
  switch (session.schedule.OnCommit(commit)) {
    case DraftSession::CommitOutcome::kRepeated:
    case DraftSession::CommitOutcome::kMalformed:
      ++accounts_.counts().rejected_messages;
      return;
    case DraftSession::CommitOutcome::kMatched:
    case DraftSession::CommitOutcome::kMismatch:
      break;
  }
  session.touched = true;
  if (session.length.has_value()) session.length->OnCommit(session.schedule);
  if (session.hidden.has_value()) RenewHidden(session);
  const DraftSession::CommitReport& report = schedule.last_commit();
  session.untold_ranks.insert(session.untold_ranks.end(), report.ranks.begin(),
                              report.ranks.end());
  if (tap_ != nullptr) {
    tap_->OnVerdict(Tapped(session), report.accepted, report.rejected);
  }
  if (session.schedule.tree() != nullptr) {
    KeepTree(session);
    return;
  }
  if (kept < length_before || schedule.length() != length_before) {
    session.cut = true;
  }
  session.history.Truncate(std::min(kept, session.history.length()));
  // The running step may have fed the last token already; it stays for the
  // token that is about to be drawn behind it.
  accounts_.TruncateKv(session, kept);
}

void DraftEngine::SendStopNotices() {
  for (Session& session : sessions_) {
    if (!std::exchange(session.touched, false) || session.closing) continue;
    absl::optional<speculation::Tail> notice =
        session.schedule.TakeStopNotice();
    if (notice.has_value()) {
      events_.For(session.stream)
          .tails.push_back({session.id, *std::move(notice)});
    }
  }
}

}  // namespace nacre::draft_worker
