#include "coordinator/worker_events_convert.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace nacre::coordinator {
namespace {

using speculation::FinishReason;
using speculation::StopMark;

constexpr size_t kMaxNoteBytes = 256;
constexpr size_t kMaxErrorBytes = 1024;

// Fails softly: what does not fit becomes -1 and is refused as malformed.
int ToInt(uint32_t value) { return value > 0x7FFFFFFFu ? -1 : value; }

// Sizes, durations and times of a peer: sums of a few do not overflow.
int64_t ToCount(uint64_t value) {
  return static_cast<int64_t>(std::min(value, uint64_t{1} << 40));
}
int64_t ToDuration(uint64_t value) {
  return static_cast<int64_t>(std::min<uint64_t>(value, kMaxDurationNs));
}

// Of a span: what does not fit says nothing.
int ToRows(uint32_t value) {
  return static_cast<int>(std::min<uint32_t>(value, kMaxRows));
}

StopMark FromProto(v1::StopMark mark) {
  switch (mark) {
    case v1::STOP_MARK_LEAD:
      return StopMark::kLead;
    case v1::STOP_MARK_POLICY:
      return StopMark::kPolicy;
    case v1::STOP_MARK_END:
      return StopMark::kEnd;
    case v1::STOP_MARK_CHUNK:
      return StopMark::kChunk;
    default:
      return StopMark::kNone;
  }
}

FinishReason FromProto(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_EOS:
      return FinishReason::kEos;
    case v1::FINISH_REASON_STOP:
      return FinishReason::kStop;
    case v1::FINISH_REASON_LENGTH:
      return FinishReason::kLength;
    default:
      return FinishReason::kNone;
  }
}

SpanRecord FromProto(const v1::Span& span) {
  SpanRecord record;
  record.session_id = span.session_id();
  switch (span.kind()) {
    case v1::Span::KIND_DRAFT:
      record.kind = SpanRecord::Kind::kDraft;
      break;
    case v1::Span::KIND_VERIFY:
      record.kind = SpanRecord::Kind::kVerify;
      break;
    case v1::Span::KIND_WAIT_DRAFT_TOKENS:
      record.kind = SpanRecord::Kind::kWaitDraftTokens;
      break;
    case v1::Span::KIND_WAIT_VERDICT:
      record.kind = SpanRecord::Kind::kWaitVerdict;
      break;
    case v1::Span::KIND_WAIT_ACKNOWLEDGE:
      record.kind = SpanRecord::Kind::kWaitAcknowledge;
      break;
    case v1::Span::KIND_ROLLBACK:
      record.kind = SpanRecord::Kind::kRollback;
      break;
    case v1::Span::KIND_HIDDEN:
      record.kind = SpanRecord::Kind::kHidden;
      break;
    default:
      record.kind = SpanRecord::Kind::kPrefill;
      break;
  }
  record.start_ns = ToNs(span.start_ns());
  record.duration_ns = ToDuration(span.duration_ns());
  record.rows = ToRows(span.rows());
  // Its share of the step is never more than all of it.
  record.batch_rows = span.batch_rows() == 0
                          ? 0
                          : std::max(record.rows, ToRows(span.batch_rows()));
  record.matched = ToRows(span.matched());
  record.accepted = ToRows(span.accepted());
  record.length = ToInt(span.length());
  record.batch_sessions = ToRows(span.batch_sessions());
  record.bytes = ToCount(span.bytes());
  record.abandoned = span.abandoned();
  return record;
}

TokenLogprobs FromProto(const v1::TokenLogprobs& proto) {
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

void Append(const v1::TargetEvent& event, WorkerEvents* events) {
  for (const v1::Verdict& proto : event.verdicts()) {
    speculation::Verdict verdict;
    verdict.base_length = ToInt(proto.base_length());
    verdict.token_ids.assign(proto.token_ids().begin(),
                             proto.token_ids().end());
    verdict.window = ToInt(proto.window());
    verdict.matched = ToInt(proto.matched());
    verdict.verified = ToInt(proto.verified());
    verdict.accepted = ToInt(proto.accepted());
    verdict.degraded = proto.degraded();
    verdict.finish = FromProto(proto.finish());
    std::vector<TokenLogprobs> logprobs;
    const int count = std::min(proto.logprobs_size(), proto.token_ids_size());
    logprobs.reserve(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) {
      logprobs.push_back(FromProto(proto.logprobs(i)));
    }
    events->verdicts.push_back(
        {proto.session_id(), std::move(verdict), std::move(logprobs)});
  }
}

void Append(const v1::DraftEvent& event, WorkerEvents* events) {
  for (const v1::Tail& proto : event.tails()) {
    speculation::Tail tail;
    tail.epoch = proto.epoch();
    tail.base_length = ToInt(proto.base_length());
    tail.first_position = ToInt(proto.first_position());
    tail.token_ids.assign(proto.token_ids().begin(), proto.token_ids().end());
    tail.stop = FromProto(proto.stop());
    for (const v1::DraftDistribution& from : proto.distributions()) {
      speculation::DraftDistribution& to = tail.distributions.emplace_back();
      to.token_ids.assign(from.token_ids().begin(), from.token_ids().end());
      to.weights.assign(from.weights().begin(), from.weights().end());
    }
    events->tails.emplace_back(proto.session_id(), std::move(tail));
  }
  for (const v1::PolicyNote& proto : event.policy_notes()) {
    events->policy_notes.emplace_back(proto.session_id(),
                                      proto.note().substr(0, kMaxNoteBytes));
  }
}

// What both kinds of worker say.
template <typename Event>
WorkerEvents Convert(const Event& event) {
  WorkerEvents events;
  Append(event, &events);
  for (const v1::SessionError& error : event.errors()) {
    events.failures.push_back({error.session_id(), ToInt(error.code()),
                               error.message().substr(0, kMaxErrorBytes),
                               error.epoch()});
  }
  for (const v1::SessionOpened& opened : event.opened()) {
    events.opened.emplace_back(opened.session_id(),
                               ToInt(opened.cached_tokens()));
    if (!opened.policy_note().empty()) {
      events.policy_notes.emplace_back(
          opened.session_id(), opened.policy_note().substr(0, kMaxNoteBytes));
    }
  }
  for (const v1::SessionCached& cached : event.cached()) {
    events.cached.emplace_back(cached.session_id(), ToInt(cached.tokens()));
  }
  for (const v1::SessionClosed& closed : event.closed()) {
    events.closed.push_back(closed.session_id());
  }
  for (const v1::Span& span : event.spans()) {
    events.spans.push_back(FromProto(span));
  }
  return events;
}

}  // namespace

int64_t ToNs(uint64_t value) {
  return static_cast<int64_t>(std::min(value, uint64_t{1} << 60));
}

WorkerEvents ToWorkerEvents(const v1::TargetEvent& event) {
  return Convert(event);
}
WorkerEvents ToWorkerEvents(const v1::DraftEvent& event) {
  return Convert(event);
}

}  // namespace nacre::coordinator
