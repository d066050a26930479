// What workers tell the coordinator.

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "speculation/ranks.h"
#include "wire/codec_parts.h"
#include "wire/session_codec.h"

namespace nacre::wire {
namespace {

using speculation::FinishReason;

struct SpanKinds {
  Span::Kind ours;
  v1::Span::Kind proto;
};
constexpr SpanKinds kSpanKinds[] = {
    {Span::Kind::kPrefill, v1::Span::KIND_PREFILL},
    {Span::Kind::kDraft, v1::Span::KIND_DRAFT},
    {Span::Kind::kVerify, v1::Span::KIND_VERIFY},
    {Span::Kind::kWaitDraftTokens, v1::Span::KIND_WAIT_DRAFT_TOKENS},
    {Span::Kind::kWaitVerdict, v1::Span::KIND_WAIT_VERDICT},
    {Span::Kind::kWaitAcknowledge, v1::Span::KIND_WAIT_ACKNOWLEDGE},
    {Span::Kind::kRollback, v1::Span::KIND_ROLLBACK},
    {Span::Kind::kHidden, v1::Span::KIND_HIDDEN},
};

struct FinishReasons {
  FinishReason ours;
  v1::FinishReason proto;
};
constexpr FinishReasons kFinishReasons[] = {
    {FinishReason::kNone, v1::FINISH_REASON_UNSPECIFIED},
    {FinishReason::kEos, v1::FINISH_REASON_EOS},
    {FinishReason::kStop, v1::FINISH_REASON_STOP},
    {FinishReason::kLength, v1::FINISH_REASON_LENGTH},
};

// The beginning of a text, of whole characters: half of one is no string.
std::string Cut(const std::string& text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  size_t end = max_bytes;
  while (end > 0 && (text[end] & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

int64_t ToBytes(uint64_t value) {
  return static_cast<int64_t>(std::min(value, uint64_t{1} << 40));
}

void EncodeLogprobs(
    const std::vector<TokenLogprobs>& from,
    google::protobuf::RepeatedPtrField<v1::TokenLogprobs>* proto) {
  for (const TokenLogprobs& token : from) {
    v1::TokenLogprobs* out = proto->Add();
    out->set_token_id(static_cast<uint32_t>(token.token_id));
    out->set_logprob(token.logprob);
    for (const auto& [id, logprob] : token.top) {
      out->add_top_ids(static_cast<uint32_t>(id));
      out->add_top_logprobs(logprob);
    }
  }
}

void EncodeVerdict(const SessionVerdict& from, v1::Verdict* proto) {
  const speculation::Verdict& verdict = from.verdict;
  proto->set_session_id(from.session_id);
  proto->set_base_length(static_cast<uint32_t>(verdict.base_length));
  FillIds(verdict.token_ids, proto->mutable_token_ids());
  proto->set_window(static_cast<uint32_t>(verdict.window));
  proto->set_matched(static_cast<uint32_t>(verdict.matched));
  proto->set_verified(static_cast<uint32_t>(verdict.verified));
  proto->set_accepted(static_cast<uint32_t>(verdict.accepted));
  proto->set_degraded(verdict.degraded);
  proto->set_finish(EncodeEnum(kFinishReasons, verdict.finish));
  FillIds(verdict.path, proto->mutable_path());
  proto->set_suffix_proposed(static_cast<uint32_t>(verdict.suffix_proposed));
  proto->set_suffix_accepted(static_cast<uint32_t>(verdict.suffix_accepted));
  proto->set_branch_accepted(static_cast<uint32_t>(verdict.branch_accepted));
  EncodeLogprobs(from.logprobs, proto->mutable_logprobs());
}

absl::Status CheckPath(const v1::Verdict& proto) {
  if (proto.path_size() == 0) return absl::OkStatus();
  NACRE_RETURN_IF_ERROR(CheckSameCount("Verdict.path", proto.path_size(),
                                       "Verdict.matched",
                                       ToInt(proto.matched())));
  NACRE_RETURN_IF_ERROR(
      CheckCount("Verdict.path", proto.path_size(), speculation::kMaxWindow));
  uint32_t last = 0;
  for (const uint32_t node : proto.path()) {
    if (node <= last || node > uint32_t{speculation::kMaxNode}) {
      return absl::InvalidArgumentError(
          absl::StrCat("Verdict.path has node ", node, " after ", last,
                       ", must rise to at most ", speculation::kMaxNode));
    }
    last = node;
  }
  return absl::OkStatus();
}

TokenLogprobs DecodeLogprobs(const v1::TokenLogprobs& proto) {
  TokenLogprobs token;
  token.token_id = ToInt(proto.token_id());
  token.logprob = proto.logprob();
  const int count = std::min(
      {proto.top_ids_size(), proto.top_logprobs_size(), kMaxTopLogprobs});
  for (int i = 0; i < count; ++i) {
    token.top.emplace_back(ToInt(proto.top_ids(i)), proto.top_logprobs(i));
  }
  return token;
}

absl::Status DecodeVerdict(const v1::Verdict& proto, SessionVerdict* to) {
  NACRE_RETURN_IF_ERROR(
      CheckCount("Verdict.token_ids", proto.token_ids_size(), kMaxStepTokens));
  NACRE_RETURN_IF_ERROR(CheckPath(proto));
  speculation::Verdict& verdict = to->verdict;
  NACRE_RETURN_IF_ERROR(DecodeEnum("Verdict.finish", kFinishReasons,
                                   proto.finish(), &verdict.finish));
  to->session_id = proto.session_id();
  verdict.base_length = ToInt(proto.base_length());
  verdict.token_ids = ToIds(proto.token_ids());
  verdict.window = ToInt(proto.window());
  verdict.matched = ToInt(proto.matched());
  verdict.verified = ToInt(proto.verified());
  verdict.accepted = ToInt(proto.accepted());
  verdict.degraded = proto.degraded();
  verdict.path = ToIds(proto.path());
  verdict.suffix_proposed = ToInt(proto.suffix_proposed());
  verdict.suffix_accepted = ToInt(proto.suffix_accepted());
  verdict.branch_accepted = ToInt(proto.branch_accepted());
  const int count = std::min(proto.logprobs_size(), proto.token_ids_size());
  for (int i = 0; i < count; ++i) {
    to->logprobs.push_back(DecodeLogprobs(proto.logprobs(i)));
  }
  return absl::OkStatus();
}

absl::Status DecodePromptLogprobs(const v1::PromptLogprobs& proto,
                                  PromptLogprobs* to) {
  NACRE_RETURN_IF_ERROR(CheckCount("PromptLogprobs.logprobs",
                                   proto.logprobs_size(), kMaxPromptLogprobs));
  to->session_id = proto.session_id();
  to->first_position = ToInt(proto.first_position());
  for (const v1::TokenLogprobs& token : proto.logprobs()) {
    to->logprobs.push_back(DecodeLogprobs(token));
  }
  return absl::OkStatus();
}

template <typename Event>
void EncodeCommon(const SessionEvents& events, Event* proto) {
  for (const SessionOpening& opening : events.opened) {
    v1::SessionOpened* opened = proto->add_opened();
    opened->set_session_id(opening.session_id);
    opened->set_cached_tokens(static_cast<uint32_t>(opening.cached_tokens));
    opened->set_policy_note(opening.policy_note);
  }
  for (const SessionCached& cached : events.cached) {
    v1::SessionCached* more = proto->add_cached();
    more->set_session_id(cached.session_id);
    more->set_tokens(static_cast<uint32_t>(cached.tokens));
  }
  for (const SessionFailure& failure : events.failures) {
    v1::SessionError* error = proto->add_errors();
    error->set_session_id(failure.session_id);
    error->set_code(static_cast<uint32_t>(failure.status.code()));
    error->set_message(std::string(failure.status.message()));
    error->set_epoch(failure.epoch);
  }
  for (const uint64_t id : events.closed) {
    proto->add_closed()->set_session_id(id);
  }
  for (const Span& span : events.spans) *proto->add_spans() = Encode(span);
  if (events.pong.has_value()) {
    v1::Pong* pong = proto->mutable_pong();
    pong->set_coordinator_ns(events.pong->coordinator_ns);
    pong->set_worker_ns(static_cast<uint64_t>(events.pong->worker_ns));
    pong->set_attachment(events.pong->attachment);
  }
}

// A failure is never OK, whatever its worker calls it.
absl::Status FailureStatus(const v1::SessionError& proto) {
  constexpr auto kLast =
      static_cast<uint32_t>(absl::StatusCode::kUnauthenticated);
  absl::StatusCode code = absl::StatusCode::kUnknown;
  if (proto.code() == 0) {
    code = absl::StatusCode::kInternal;
  } else if (proto.code() <= kLast) {
    code = static_cast<absl::StatusCode>(proto.code());
  }
  return absl::Status(code, Cut(proto.message(), kMaxErrorBytes));
}

absl::Status DecodeSpan(const v1::Span& proto, Span* span) {
  NACRE_RETURN_IF_ERROR(
      DecodeEnum("Span.kind", kSpanKinds, proto.kind(), &span->kind));
  span->session_id = proto.session_id();
  span->start_ns = ToTime(proto.start_ns());
  span->duration_ns = ToDuration(proto.duration_ns());
  span->rows = ToRows(proto.rows());
  // Its share of the step is never more than all of it.
  span->batch_rows = proto.batch_rows() == 0
                         ? 0
                         : std::max(span->rows, ToRows(proto.batch_rows()));
  span->matched = ToRows(proto.matched());
  span->accepted = ToRows(proto.accepted());
  span->length = ToInt(proto.length());
  span->batch_sessions = ToRows(proto.batch_sessions());
  span->bytes = ToBytes(proto.bytes());
  span->abandoned = proto.abandoned();
  span->after_miss = proto.after_miss();
  NACRE_RETURN_IF_ERROR(CheckCount("Span.candidates", proto.candidates_size(),
                                   speculation::kRanks));
  for (const v1::Candidate& candidate : proto.candidates()) {
    span->candidates.push_back(
        {ToInt(candidate.token_id()), candidate.score()});
  }
  return absl::OkStatus();
}

template <typename Event>
void DecodeCommon(const Event& proto, SessionEvents* events) {
  for (const v1::SessionOpened& opened : proto.opened()) {
    events->opened.push_back({opened.session_id(),
                              ToInt(opened.cached_tokens()),
                              Cut(opened.policy_note(), kMaxNoteBytes)});
  }
  for (const v1::SessionCached& cached : proto.cached()) {
    events->cached.push_back({cached.session_id(), ToInt(cached.tokens())});
  }
  for (const v1::SessionError& error : proto.errors()) {
    events->failures.push_back(
        {error.session_id(), FailureStatus(error), error.epoch()});
  }
  for (const v1::SessionClosed& closed : proto.closed()) {
    events->closed.push_back(closed.session_id());
  }
  DecodeParts(proto.spans(), DecodeSpan, &events->spans, &events->malformed);
  if (proto.has_pong()) {
    events->pong = {proto.pong().coordinator_ns(),
                    ToTime(proto.pong().worker_ns()),
                    proto.pong().attachment()};
  }
}

absl::Status DecodeRanks(const v1::SessionRanks& proto, SessionRanks* to) {
  NACRE_RETURN_IF_ERROR(CheckCount("SessionRanks.ranks", proto.ranks_size(),
                                   speculation::kMaxRankReport));
  to->session_id = proto.session_id();
  to->epoch = proto.epoch();
  for (const uint32_t rank : proto.ranks()) {
    if (rank < 1 || rank > speculation::kBeyond) {
      return absl::InvalidArgumentError(
          absl::StrCat("SessionRanks.ranks has ", rank, ", must be in [1, ",
                       speculation::kBeyond, "]"));
    }
    to->ranks.push_back(static_cast<int>(rank));
  }
  to->prepared = ToInt(proto.prepared());
  return absl::OkStatus();
}

}  // namespace

v1::Span Encode(const Span& span) {
  v1::Span proto;
  proto.set_session_id(span.session_id);
  proto.set_kind(EncodeEnum(kSpanKinds, span.kind));
  proto.set_start_ns(static_cast<uint64_t>(span.start_ns));
  proto.set_duration_ns(static_cast<uint64_t>(span.duration_ns));
  proto.set_rows(static_cast<uint32_t>(span.rows));
  proto.set_batch_rows(static_cast<uint32_t>(span.batch_rows));
  proto.set_matched(static_cast<uint32_t>(span.matched));
  proto.set_accepted(static_cast<uint32_t>(span.accepted));
  proto.set_length(static_cast<uint32_t>(span.length));
  proto.set_batch_sessions(static_cast<uint32_t>(span.batch_sessions));
  proto.set_bytes(static_cast<uint64_t>(span.bytes));
  proto.set_abandoned(span.abandoned);
  proto.set_after_miss(span.after_miss);
  for (const Candidate& candidate : span.candidates) {
    v1::Candidate* out = proto.add_candidates();
    out->set_token_id(static_cast<uint32_t>(candidate.token_id));
    out->set_score(candidate.score);
  }
  return proto;
}

v1::TargetEvent Encode(const TargetEvents& events) {
  v1::TargetEvent proto;
  EncodeCommon(events.common, &proto);
  for (const PromptLogprobs& prompt : events.prompt_logprobs) {
    v1::PromptLogprobs* out = proto.add_prompt_logprobs();
    out->set_session_id(prompt.session_id);
    out->set_first_position(static_cast<uint32_t>(prompt.first_position));
    EncodeLogprobs(prompt.logprobs, out->mutable_logprobs());
  }
  for (const SessionVerdict& verdict : events.verdicts) {
    EncodeVerdict(verdict, proto.add_verdicts());
  }
  return proto;
}

TargetEvents Decode(const v1::TargetEvent& proto) {
  TargetEvents events;
  DecodeCommon(proto, &events.common);
  DecodeParts(proto.prompt_logprobs(), DecodePromptLogprobs,
              &events.prompt_logprobs, &events.common.malformed);
  DecodeParts(proto.verdicts(), DecodeVerdict, &events.verdicts,
              &events.common.malformed);
  return events;
}

v1::DraftEvent Encode(const DraftEvents& events) {
  v1::DraftEvent proto;
  EncodeCommon(events.common, &proto);
  for (const SessionTail& tail : events.tails) {
    EncodeTail(tail, proto.add_tails());
  }
  for (const PolicyNote& note : events.policy_notes) {
    v1::PolicyNote* out = proto.add_policy_notes();
    out->set_session_id(note.session_id);
    out->set_note(note.note);
  }
  for (const SessionRanks& each : events.ranks) {
    v1::SessionRanks* out = proto.add_ranks();
    out->set_session_id(each.session_id);
    out->set_epoch(each.epoch);
    FillIds(each.ranks, out->mutable_ranks());
    out->set_prepared(static_cast<uint32_t>(each.prepared));
  }
  return proto;
}

DraftEvents Decode(const v1::DraftEvent& proto) {
  DraftEvents events;
  DecodeCommon(proto, &events.common);
  DecodeParts(proto.tails(), DecodeTail, &events.tails,
              &events.common.malformed);
  for (const v1::PolicyNote& note : proto.policy_notes()) {
    events.policy_notes.push_back(
        {note.session_id(), Cut(note.note(), kMaxNoteBytes)});
  }
  DecodeParts(proto.ranks(), DecodeRanks, &events.ranks,
              &events.common.malformed);
  return events;
}

}  // namespace nacre::wire
