#include "coordinator/api/response_convert.h"

#include <algorithm>
#include <array>

#include "wire/hello_codec.h"
#include "wire/session_codec.h"

namespace nacre::coordinator {
namespace {

using speculation::Method;

void SetDuration(int64_t nanoseconds, google::protobuf::Duration* duration) {
  nanoseconds = std::max<int64_t>(0, nanoseconds);
  duration->set_seconds(nanoseconds / 1000000000);
  duration->set_nanos(static_cast<int32_t>(nanoseconds % 1000000000));
}

v1::TokenLogprobs ToProto(const TokenLogprobs& token) {
  v1::TokenLogprobs proto;
  proto.set_token_id(token.token_id);
  proto.set_logprob(token.logprob);
  for (const auto& [id, logprob] : token.top) {
    proto.add_top_ids(id);
    proto.add_top_logprobs(logprob);
  }
  return proto;
}

v1::TraceLane ToProto(const TraceLane& lane) {
  v1::TraceLane proto;
  proto.set_role(wire::Encode(lane.role));
  proto.set_address(lane.address);
  proto.set_clock_offset_ns(lane.clock_offset_ns);
  for (const wire::Span& span : lane.spans) {
    *proto.add_spans() = wire::Encode(span);
  }
  return proto;
}

void SetTiming(const Completion& completion, v1::Timing* timing) {
  SetDuration(completion.total_ns, timing->mutable_total());
  SetDuration(completion.queue_ns, timing->mutable_queue());
  SetDuration(completion.time_to_first_token_ns,
              timing->mutable_time_to_first_token());
  SetDuration(completion.draft_busy_ns, timing->mutable_draft_busy());
  SetDuration(completion.draft_wait_ns, timing->mutable_draft_wait());
  SetDuration(completion.target_busy_ns, timing->mutable_target_busy());
  SetDuration(completion.target_wait_ns, timing->mutable_target_wait());
  SetDuration(completion.target_wait_after_miss_ns,
              timing->mutable_target_wait_after_miss());
}

void SetReport(const RequestSpec& request, const Completion& completion,
               v1::SpeculationReport* report) {
  report->set_method(coordinator::ToProto(request.method));
  report->set_window(completion.window);
  report->set_policy(completion.policy);
  report->set_verification(request.verification ==
                                   speculation::Verification::kRatio
                               ? v1::VERIFICATION_RATIO
                               : v1::VERIFICATION_EXACT);
  report->set_rounds(completion.stats.rounds);
  report->set_drafted(completion.stats.drafted);
  report->set_verified(completion.stats.verified);
  report->set_accepted(completion.stats.accepted);
  report->set_committed(completion.stats.committed);
  report->set_degraded_rounds(completion.stats.degraded_rounds);
  report->set_alpha(completion.alpha);
  report->set_cost_ratio(completion.cost_ratio);
  report->set_hidden_bytes(static_cast<uint64_t>(completion.hidden_bytes));
  report->set_hidden_ns(
      static_cast<uint64_t>(std::max<int64_t>(0, completion.hidden_ns)));
  for (int64_t rounds : completion.acceptance_histogram) {
    report->add_acceptance_histogram(rounds);
  }
  const std::array<int64_t, speculation::kBeyond>& ranks =
      completion.stats.ranks;
  if (std::any_of(ranks.begin(), ranks.end(),
                  [](int64_t count) { return count > 0; })) {
    for (const int64_t count : ranks) report->add_ranks(count);
    report->set_prepared(completion.stats.prepared);
  }
  report->set_suffix_proposed(completion.stats.suffix_proposed);
  report->set_suffix_accepted(completion.stats.suffix_accepted);
  for (const Round& round : completion.rounds) {
    report->add_per_round_drafted(round.drafted);
    report->add_per_round_accepted(round.accepted);
  }
  for (int64_t gap_ns : completion.step_gaps_ns) {
    report->add_step_gap_ns(gap_ns);
  }
}

v1::TokenOrigin ToProto(TokenOrigin origin) {
  switch (origin) {
    case TokenOrigin::kTarget:
      return v1::TOKEN_ORIGIN_TARGET;
    case TokenOrigin::kDraft:
      return v1::TOKEN_ORIGIN_DRAFT;
    case TokenOrigin::kBranch:
      return v1::TOKEN_ORIGIN_BRANCH;
    case TokenOrigin::kSuffix:
      return v1::TOKEN_ORIGIN_SUFFIX;
  }
  return v1::TOKEN_ORIGIN_UNSPECIFIED;
}

void SetTrace(const ChunkTrace& trace, v1::ChunkTrace* proto) {
  for (const TokenOrigin origin : trace.origins) {
    proto->add_origins(ToProto(origin));
  }
  for (const int bytes : trace.text_bytes) {
    proto->add_text_bytes(static_cast<uint32_t>(bytes));
  }
  proto->set_window(static_cast<uint32_t>(trace.window));
  proto->set_verified(static_cast<uint32_t>(trace.verified));
  proto->set_accepted(static_cast<uint32_t>(trace.accepted));
  proto->set_degraded(trace.degraded);
  for (const TraceLane& lane : trace.lanes) {
    *proto->add_lanes() = ToProto(lane);
  }
}

}  // namespace

v1::Method ToProto(Method method) {
  switch (method) {
    case Method::kAr:
      return v1::METHOD_AR;
    case Method::kSd:
      return v1::METHOD_SD;
    case Method::kPearl:
      return v1::METHOD_PEARL;
    case Method::kAsync:
      return v1::METHOD_ASYNC;
  }
  return v1::METHOD_UNSPECIFIED;
}

v1::Start StartOf(const RequestSpec& request) {
  v1::Start proto;
  proto.set_seed(request.sampling.seed);
  proto.set_model_fingerprint(request.fingerprint);
  proto.mutable_prompt_token_ids()->Add(request.prompt_ids.begin(),
                                        request.prompt_ids.end());
  return proto;
}

v1::Chunk ToProto(const Chunk& chunk) {
  v1::Chunk proto;
  proto.set_first_index(chunk.first_index);
  for (int32_t id : chunk.token_ids) proto.add_token_ids(id);
  proto.set_text(chunk.text);
  for (const TokenLogprobs& token : chunk.logprobs) {
    *proto.add_logprobs() = ToProto(token);
  }
  for (const TokenLogprobs& token : chunk.prompt_logprobs) {
    *proto.add_prompt_logprobs() = ToProto(token);
  }
  proto.set_numerics_id(chunk.numerics_id);
  if (chunk.trace.has_value()) SetTrace(*chunk.trace, proto.mutable_trace());
  return proto;
}

v1::Complete ToProto(const RequestSpec& request, const Completion& completion) {
  v1::Complete proto;
  switch (completion.finish) {
    case Finish::kEos:
      proto.set_finish_reason(v1::FINISH_REASON_EOS);
      break;
    case Finish::kStop:
      proto.set_finish_reason(v1::FINISH_REASON_STOP);
      break;
    case Finish::kLength:
      proto.set_finish_reason(v1::FINISH_REASON_LENGTH);
      break;
  }
  proto.set_stop_match(completion.stop_match);
  if (!request.omit_streamed) {
    proto.set_text(completion.text);
    for (int32_t id : completion.token_ids) proto.add_token_ids(id);
    for (int32_t id : request.prompt_ids) proto.add_prompt_token_ids(id);
    for (const TokenLogprobs& token : completion.logprobs) {
      *proto.add_logprobs() = ToProto(token);
    }
    for (const TokenLogprobs& token : completion.prompt_logprobs) {
      *proto.add_prompt_logprobs() = ToProto(token);
    }
  }
  proto.set_seed(request.sampling.seed);
  proto.set_numerics_id(completion.numerics_id);
  proto.set_first_index(static_cast<uint32_t>(request.resumed_ids().size()));
  proto.mutable_usage()->set_prompt_tokens(request.prompt_ids.size());
  proto.mutable_usage()->set_completion_tokens(completion.token_ids.size());
  proto.mutable_usage()->set_cached_tokens(
      static_cast<uint32_t>(completion.cached_tokens));

  SetTiming(completion, proto.mutable_timing());
  SetReport(request, completion, proto.mutable_speculation());
  for (const TraceLane& lane : completion.trace) {
    *proto.add_trace() = ToProto(lane);
  }
  return proto;
}

}  // namespace nacre::coordinator
