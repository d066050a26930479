// How the draft engine applies what its streams tell it.

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/sampling_params.h"
#include "common/status_macros.h"
#include "draft_worker/draft_engine.h"
#include "draft_worker/engine_session.h"
#include "worker/session_log.h"
#include "worker/token_ids.h"

namespace nacre::draft_worker {

using speculation::DraftSession;

void DraftEngine::TakeCommands() {
  const bool held = !held_.empty();
  ApplyAll(&held_);
  inbox_.Take(&commands_);
  if (!held && commands_.empty()) return;
  ApplyAll(&commands_);
  if (!in_step_) SendStopNotices();
}

void DraftEngine::ApplyAll(std::vector<DraftCommands>* commands) {
  for (DraftCommands& each : *commands) {
    Apply(each);
    // What one message closes makes room for what the next one opens.
    if (!in_step_) RemoveClosed();
  }
  commands->clear();
}

void DraftEngine::Apply(DraftCommands& commands) {
  const worker::StreamId stream = commands.stream;
  rejected_messages_ += commands.malformed.size();
  if (commands.kept.has_value()) Reap(stream, *commands.kept);
  for (OpenDraft& open : commands.open) ApplyOpen(stream, open);
  for (const auto& [id, plan] : commands.plans) {
    if (Session* session = Find(stream, id)) {
      session->schedule.OnPlan(plan);
      session->touched = true;
    }
  }
  for (const auto& [id, commit] : commands.commits) {
    if (Session* session = Find(stream, id)) ApplyCommit(*session, commit);
  }
  for (const uint64_t id : commands.close) {
    if (Session* session = Find(stream, id)) {
      worker::LogSession("session closed", session->request_id, id);
      outbox_.For(stream).common.closed.push_back(id);
      Close(*session);
    }
  }
  for (worker::ReceivedTensor& received : commands.hidden) {
    OnHidden(std::move(received));
  }
  for (const uint64_t channel : commands.hidden_lost) OnHiddenLost(channel);
  if (commands.stream_ended) {
    for (const auto& session : sessions_) {
      if (session->stream != stream || session->closing) continue;
      worker::LogSession("session closed", session->request_id, session->id);
      Close(*session);
    }
  }
}

void DraftEngine::Reap(worker::StreamId stream,
                       const std::vector<uint64_t>& kept) {
  ++kept_lists_;
  const absl::flat_hash_set<uint64_t> kept_ids(kept.begin(), kept.end());
  for (const auto& session : sessions_) {
    if (session->stream != stream || session->closing ||
        kept_ids.contains(session->id)) {
      continue;
    }
    ++reaped_sessions_;
    worker::LogSession("session reaped", session->request_id, session->id);
    outbox_.For(stream).common.closed.push_back(session->id);
    Close(*session);
  }
}

void DraftEngine::ApplyOpen(worker::StreamId stream, OpenDraft& open) {
  const size_t num_tokens = open.token_ids.size();
  std::string policy_note;
  absl::StatusOr<std::unique_ptr<Session>> session =
      NewSession(stream, open, &policy_note);
  wire::SessionEvents& events = outbox_.For(stream).common;
  if (!session.ok()) {
    worker::LogSession("session refused", open.request_id, open.session_id,
                       session.status().code());
    events.failures.push_back({open.session_id, session.status(), open.epoch});
    return;
  }
  const int num_cached = (*session)->sequence->length();
  prefix_queries_ += num_tokens;
  prefix_hits_ += static_cast<uint64_t>(num_cached);
  worker::LogSessionOpened((*session)->request_id, open.session_id, num_tokens,
                           num_cached);
  events.opened.push_back(
      {open.session_id, num_cached, std::move(policy_note)});
  by_key_[{stream, open.session_id}] = session->get();
  SubscribeHidden(**session, open);
  sessions_.push_back(*std::move(session));
}

absl::StatusOr<PolicyLibrary::Made> DraftEngine::MakeLength(OpenDraft& open) {
  NACRE_ASSIGN_OR_RETURN(const speculation::PolicySpec spec,
                         speculation::ParsePolicySpec(open.policy));
  speculation::PolicyInputs inputs;
  inputs.seed = open.sampling.seed;
  inputs.has_target_hidden = CanReadHidden(open);
  inputs.oracle_ids = std::move(open.oracle_token_ids);
  inputs.hidden_size = options_.model->info().hidden_size;
  PolicyLibrary& policies =
      options_.policies != nullptr ? *options_.policies : no_files_;
  return policies.Make(spec, std::move(inputs), open.target_fingerprint);
}

absl::StatusOr<std::unique_ptr<DraftEngine::Session>> DraftEngine::NewSession(
    worker::StreamId stream, OpenDraft& open, std::string* policy_note) {
  const model::ModelInfo& info = options_.model->info();
  NACRE_RETURN_IF_ERROR(open.refusal);
  if (by_key_.contains({stream, open.session_id})) {
    return absl::AlreadyExistsError(
        absl::StrCat("session ", open.session_id, " is already open"));
  }
  const int64_t num_ids = static_cast<int64_t>(open.token_ids.size());
  if (open.prompt_length < 1 || open.prompt_length > num_ids) {
    return absl::InvalidArgumentError(
        absl::StrCat("prompt_length ", open.prompt_length, " is outside 1 to ",
                     num_ids, ", the number of token_ids"));
  }
  if (open.max_length < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_length ", open.max_length, " is below 1"));
  }
  if (num_ids > info.context_length) {
    return absl::InvalidArgumentError(
        absl::StrCat(num_ids, " token_ids are over the draft's context of ",
                     info.context_length));
  }
  NACRE_RETURN_IF_ERROR(
      worker::CheckTokenIds("token_ids", open.token_ids, info.vocab_size));
  NACRE_RETURN_IF_ERROR(ValidateSamplingParams(open.sampling));
  if (open.min_tokens < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("min_tokens ", open.min_tokens, " is below 0"));
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
  // A draft may stop short of the target's length: the target then goes on
  // alone.
  const int reserved_length =
      std::min(info.context_length,
               std::max(open.max_length, static_cast<int>(num_ids)));
  NACRE_ASSIGN_OR_RETURN(
      std::unique_ptr<model::Sequence> sequence,
      options_.model->NewSequenceWithPrefix(reserved_length, open.token_ids));

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
  const int vocab_limit = open.vocab_limit == 0
                              ? info.vocab_size
                              : std::min(open.vocab_limit, info.vocab_size);
  // Room for all that will come: steps allocate nothing.
  model::TokenHistory history(open.prompt_length);
  history.Reserve(reserved_length + speculation::kMaxLead);
  open.token_ids.reserve(static_cast<size_t>(reserved_length) +
                         speculation::kMaxLead);
  absl::optional<LengthControl> length;
  if (made.length != nullptr) {
    length.emplace(std::move(made.length), open.prompt_length, vocab_limit);
  }
  *policy_note = std::move(made.note);
  std::unique_ptr<Session> session(
      new Session{stream, open.session_id, std::move(open.request_id),
                  DraftSession(std::move(schedule), std::move(open.token_ids)),
                  std::move(sequence), reserved_length,
                  model::Sampler(open.sampling, vocab_limit,
                                 std::move(end_rule), &scratch_),
                  std::move(length), std::move(history)});
  if (is_ratio) session->ratio.emplace(open.sampling.seed);
  if (options_.features != nullptr) {
    session->features.emplace(
        SessionFeatures::Options{options_.features, session->request_id,
                                 session->id, open.prompt_length, vocab_limit});
  }
  return session;
}

void DraftEngine::ApplyCommit(Session& session,
                              const speculation::Commit& commit) {
  const int vocab_size = options_.model->info().vocab_size;
  if (absl::Status status =
          worker::CheckTokenIds("commit", commit.token_ids, vocab_size);
      !status.ok()) {
    // The target's vocabulary has ids that this model cannot be fed.
    Fail(session, std::move(status));
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
      ++rejected_messages_;
      return;
    case DraftSession::CommitOutcome::kMatched:
    case DraftSession::CommitOutcome::kMismatch:
      break;
  }
  session.touched = true;
  if (session.length.has_value()) session.length->OnCommit(session.schedule);
  if (session.hidden.has_value()) RenewHidden(session);
  if (session.features.has_value()) {
    session.features->OnCommit(session.schedule.last_commit());
  }
  if (kept < length_before || schedule.length() != length_before) {
    session.cut = true;
  }
  session.history.Truncate(std::min(kept, session.history.length()));
  // The running step may have fed the last token already; it stays for the
  // token that is about to be drawn behind it.
  TruncateKv(session, kept);
}

void DraftEngine::TruncateKv(Session& session, int length) {
  const int dropped = session.sequence->length() - length;
  if (dropped <= 0) return;
  session.sequence->Truncate(length);
  rollback_tokens_ += dropped;
  wire::Span span;
  span.kind = wire::Span::Kind::kRollback;
  span.start_ns = now_ns_();
  span.rows = dropped;
  span.length = length;
  AddSpan(session, span);
}

void DraftEngine::SendStopNotices() {
  for (const auto& session : sessions_) {
    if (!std::exchange(session->touched, false) || session->closing) continue;
    absl::optional<speculation::Tail> notice =
        session->schedule.TakeStopNotice();
    if (notice.has_value()) {
      outbox_.For(session->stream)
          .tails.push_back({session->id, *std::move(notice)});
    }
  }
}

DraftEngine::Session* DraftEngine::Find(worker::StreamId stream,
                                        uint64_t session_id) {
  const auto it = by_key_.find({stream, session_id});
  if (it != by_key_.end()) return it->second;
  ++rejected_messages_;
  return nullptr;
}

void DraftEngine::Fail(Session& session, absl::Status status) {
  worker::LogSession("session failed", session.request_id, session.id,
                     status.code());
  outbox_.For(session.stream)
      .common.failures.push_back(
          {session.id, std::move(status), session.schedule.epoch()});
  Close(session);
}

void DraftEngine::Close(Session& session) {
  if (session.features.has_value()) session.features->OnClosed();
  // A session whose step is running is not touched before it ends.
  session.closing = true;
  closing_ = true;
  by_key_.erase({session.stream, session.id});
  UnsubscribeHidden(session);
}

void DraftEngine::RemoveClosed() {
  if (!std::exchange(closing_, false)) return;
  sessions_.erase(std::remove_if(sessions_.begin(), sessions_.end(),
                                 [](const std::unique_ptr<Session>& session) {
                                   return session->closing;
                                 }),
                  sessions_.end());
}

}  // namespace nacre::draft_worker
