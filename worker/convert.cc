#include "worker/convert.h"

#include <algorithm>
#include <limits>
#include <string>

namespace nacre::worker {
namespace {

constexpr int kMaxInt = std::numeric_limits<int>::max();

v1::Span::Kind ToProto(Span::Kind kind) {
  switch (kind) {
    case Span::Kind::kPrefill:
      return v1::Span::KIND_PREFILL;
    case Span::Kind::kDraft:
      return v1::Span::KIND_DRAFT;
    case Span::Kind::kVerify:
      return v1::Span::KIND_VERIFY;
    case Span::Kind::kWaitDraftTokens:
      return v1::Span::KIND_WAIT_DRAFT_TOKENS;
    case Span::Kind::kWaitVerdict:
      return v1::Span::KIND_WAIT_VERDICT;
    case Span::Kind::kWaitAcknowledge:
      return v1::Span::KIND_WAIT_ACKNOWLEDGE;
    case Span::Kind::kRollback:
      return v1::Span::KIND_ROLLBACK;
    case Span::Kind::kHidden:
      return v1::Span::KIND_HIDDEN;
  }
  return v1::Span::KIND_UNSPECIFIED;
}

v1::StopMark ToProto(speculation::StopMark stop) {
  switch (stop) {
    case speculation::StopMark::kNone:
      return v1::STOP_MARK_UNSPECIFIED;
    case speculation::StopMark::kLead:
      return v1::STOP_MARK_LEAD;
    case speculation::StopMark::kPolicy:
      return v1::STOP_MARK_POLICY;
    case speculation::StopMark::kEnd:
      return v1::STOP_MARK_END;
    case speculation::StopMark::kChunk:
      return v1::STOP_MARK_CHUNK;
  }
  return v1::STOP_MARK_UNSPECIFIED;
}

v1::FinishReason ToProto(speculation::FinishReason reason) {
  switch (reason) {
    case speculation::FinishReason::kNone:
      return v1::FINISH_REASON_UNSPECIFIED;
    case speculation::FinishReason::kEos:
      return v1::FINISH_REASON_EOS;
    case speculation::FinishReason::kStop:
      return v1::FINISH_REASON_STOP;
    case speculation::FinishReason::kLength:
      return v1::FINISH_REASON_LENGTH;
  }
  return v1::FINISH_REASON_UNSPECIFIED;
}

bool ToStopMark(v1::StopMark proto, speculation::StopMark* stop) {
  switch (proto) {
    case v1::STOP_MARK_UNSPECIFIED:
      *stop = speculation::StopMark::kNone;
      return true;
    case v1::STOP_MARK_LEAD:
      *stop = speculation::StopMark::kLead;
      return true;
    case v1::STOP_MARK_POLICY:
      *stop = speculation::StopMark::kPolicy;
      return true;
    case v1::STOP_MARK_END:
      *stop = speculation::StopMark::kEnd;
      return true;
    case v1::STOP_MARK_CHUNK:
      *stop = speculation::StopMark::kChunk;
      return true;
    default:
      return false;
  }
}

// What they hold is checked where they are used.
bool ToDistributions(
    const google::protobuf::RepeatedPtrField<v1::DraftDistribution>& proto,
    std::vector<speculation::DraftDistribution>* distributions) {
  if (proto.size() > speculation::kMaxLead) return false;
  distributions->clear();
  for (const v1::DraftDistribution& from : proto) {
    if (from.token_ids_size() > speculation::kMaxDistribution ||
        from.weights_size() > speculation::kMaxDistribution) {
      return false;
    }
    speculation::DraftDistribution& to = distributions->emplace_back();
    for (const uint32_t id : from.token_ids())
      to.token_ids.push_back(ToInt(id));
    to.weights.assign(from.weights().begin(), from.weights().end());
  }
  return true;
}

}  // namespace

int ToInt(uint32_t value) {
  return value <= uint32_t{kMaxInt} ? static_cast<int>(value) : -1;
}

int ToLimit(uint32_t value) {
  return static_cast<int>(std::min(value, uint32_t{kMaxInt}));
}

int64_t ToDuration(uint64_t ns) {
  constexpr uint64_t kHourNs = uint64_t{3600} * 1'000'000'000;
  return static_cast<int64_t>(std::min(ns, kHourNs));
}

bool ToTokenIds(const RepeatedIds& proto, std::vector<int32_t>* ids) {
  if (proto.size() > kMaxTokenIds) return false;
  ids->clear();
  ids->reserve(static_cast<size_t>(proto.size()));
  for (const uint32_t id : proto) ids->push_back(ToInt(id));
  return true;
}

SamplingParams ToSamplingParams(const v1::SamplingParams& proto) {
  SamplingParams params;
  if (proto.has_temperature()) params.temperature = proto.temperature();
  if (proto.has_top_k()) params.top_k = ToLimit(proto.top_k());
  if (proto.has_top_p()) params.top_p = proto.top_p();
  if (proto.has_min_p()) params.min_p = proto.min_p();
  if (proto.has_repetition_penalty()) {
    params.repetition_penalty = proto.repetition_penalty();
  }
  if (proto.has_frequency_penalty()) {
    params.frequency_penalty = proto.frequency_penalty();
  }
  if (proto.has_presence_penalty()) {
    params.presence_penalty = proto.presence_penalty();
  }
  params.seed = proto.seed();
  for (const auto& [id, bias] : proto.logit_bias()) {
    params.logit_bias.emplace_back(ToInt(id), bias);
  }
  return params;
}

speculation::DraftPlan ToDraftPlan(const v1::DraftPlan& proto) {
  speculation::DraftPlan plan;
  plan.lead_after_mismatch =
      std::min(ToLimit(proto.lead_after_mismatch()), speculation::kMaxLead);
  plan.lead_in_flow =
      std::min(ToLimit(proto.lead_in_flow()), speculation::kMaxLead);
  plan.waits_at_stop = proto.waits_at_stop();
  return plan;
}

speculation::TargetPlan ToTargetPlan(const v1::TargetPlan& proto) {
  speculation::TargetPlan plan;
  plan.gate_after_mismatch =
      std::min(ToLimit(proto.gate_after_mismatch()), speculation::kMaxWindow);
  plan.gate_in_flow =
      std::min(ToLimit(proto.gate_in_flow()), speculation::kMaxWindow);
  plan.window = std::min(ToLimit(proto.window()), speculation::kMaxWindow);
  plan.gate_timeout_ns = ToDuration(proto.gate_timeout_ns());
  plan.holds_last_row = proto.holds_last_row();
  return plan;
}

bool ToVerification(v1::Verification proto,
                    speculation::Verification* verification) {
  switch (proto) {
    case v1::VERIFICATION_UNSPECIFIED:
    case v1::VERIFICATION_EXACT:
      *verification = speculation::Verification::kExact;
      return true;
    case v1::VERIFICATION_RATIO:
      *verification = speculation::Verification::kRatio;
      return true;
    default:
      return false;
  }
}

absl::Status UnknownVerification(v1::Verification proto) {
  return absl::InvalidArgumentError(
      absl::StrCat("unknown verification ", static_cast<int>(proto)));
}

bool ToTail(const v1::Tail& proto, speculation::Tail* tail) {
  tail->epoch = proto.epoch();
  tail->base_length = ToInt(proto.base_length());
  tail->first_position = ToInt(proto.first_position());
  return ToTokenIds(proto.token_ids(), &tail->token_ids) &&
         ToStopMark(proto.stop(), &tail->stop) &&
         ToDistributions(proto.distributions(), &tail->distributions);
}

void FillTail(uint64_t session_id, const speculation::Tail& tail,
              v1::Tail* proto) {
  proto->set_session_id(session_id);
  proto->set_epoch(tail.epoch);
  proto->set_base_length(static_cast<uint32_t>(tail.base_length));
  proto->set_first_position(static_cast<uint32_t>(tail.first_position));
  for (const int32_t id : tail.token_ids) {
    proto->add_token_ids(static_cast<uint32_t>(id));
  }
  proto->set_stop(ToProto(tail.stop));
  for (const speculation::DraftDistribution& from : tail.distributions) {
    v1::DraftDistribution* to = proto->add_distributions();
    to->mutable_token_ids()->Add(from.token_ids.begin(), from.token_ids.end());
    to->mutable_weights()->Add(from.weights.begin(), from.weights.end());
  }
}

void FillLogprobs(const std::vector<TokenLogprobs>& logprobs,
                  v1::Verdict* proto) {
  for (const TokenLogprobs& token : logprobs) {
    v1::TokenLogprobs* out = proto->add_logprobs();
    out->set_token_id(static_cast<uint32_t>(token.token_id));
    out->set_logprob(token.logprob);
    for (const auto& [id, logprob] : token.top) {
      out->add_top_ids(static_cast<uint32_t>(id));
      out->add_top_logprobs(logprob);
    }
  }
}

void FillVerdict(uint64_t session_id, const speculation::Verdict& verdict,
                 v1::Verdict* proto) {
  proto->set_session_id(session_id);
  proto->set_base_length(static_cast<uint32_t>(verdict.base_length));
  for (const int32_t id : verdict.token_ids) {
    proto->add_token_ids(static_cast<uint32_t>(id));
  }
  proto->set_window(static_cast<uint32_t>(verdict.window));
  proto->set_matched(static_cast<uint32_t>(verdict.matched));
  proto->set_verified(static_cast<uint32_t>(verdict.verified));
  proto->set_accepted(static_cast<uint32_t>(verdict.accepted));
  proto->set_degraded(verdict.degraded);
  proto->set_finish(ToProto(verdict.finish));
}

void FillHeartbeat(const EngineStats& stats, bool draining,
                   v1::Heartbeat* proto) {
  proto->set_steps(stats.steps);
  proto->set_sessions(static_cast<uint32_t>(stats.sessions));
  proto->set_kv_free_tokens(static_cast<uint64_t>(stats.kv_free_tokens));
  proto->set_draining(draining);
  proto->set_rejected_messages(stats.rejected_messages);
  proto->set_reaped_sessions(stats.reaped_sessions);
  const TimePartition::Totals& totals = stats.time;
  const auto ns = [&totals](WorkerState state) {
    return static_cast<uint64_t>(totals[state]);
  };
  v1::WorkerTime* time = proto->mutable_time();
  time->set_elapsed_ns(static_cast<uint64_t>(totals.elapsed_ns));
  time->set_prefill_ns(ns(WorkerState::kPrefill));
  time->set_draft_ns(ns(WorkerState::kDraft));
  time->set_verify_ns(ns(WorkerState::kVerify));
  time->set_wait_draft_tokens_ns(ns(WorkerState::kWaitDraftTokens));
  time->set_wait_verdict_ns(ns(WorkerState::kWaitVerdict));
  time->set_wait_acknowledge_ns(ns(WorkerState::kWaitAcknowledge));
  time->set_no_work_ns(ns(WorkerState::kNoWork));
}

void FillError(const SessionFailure& failure, v1::SessionError* proto) {
  proto->set_session_id(failure.session_id);
  proto->set_code(static_cast<uint32_t>(failure.status.code()));
  proto->set_message(std::string(failure.status.message()));
  proto->set_epoch(failure.epoch);
}

void FillSpan(const Span& span, v1::Span* proto) {
  proto->set_session_id(span.session_id);
  proto->set_kind(ToProto(span.kind));
  proto->set_start_ns(static_cast<uint64_t>(span.start_ns));
  proto->set_duration_ns(static_cast<uint64_t>(span.duration_ns));
  proto->set_rows(static_cast<uint32_t>(span.rows));
  proto->set_batch_rows(static_cast<uint32_t>(span.batch_rows));
  proto->set_matched(static_cast<uint32_t>(span.matched));
  proto->set_accepted(static_cast<uint32_t>(span.accepted));
  proto->set_length(static_cast<uint32_t>(span.length));
  proto->set_batch_sessions(static_cast<uint32_t>(span.batch_sessions));
  proto->set_bytes(static_cast<uint64_t>(span.bytes));
  proto->set_abandoned(span.abandoned);
}

}  // namespace nacre::worker
