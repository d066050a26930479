#include "coordinator/api/request_convert.h"

#include "absl/strings/str_cat.h"
#include "common/refusal.h"

namespace nacre::coordinator {
namespace {

using speculation::Method;
using speculation::Verification;

template <typename Enum>
absl::Status Unknown(const char* field, absl::string_view what, Enum number) {
  return WithField(absl::InvalidArgumentError(absl::StrCat(
                       "unknown ", what, " ", static_cast<int>(number))),
                   field);
}

absl::StatusOr<Method> MethodOf(v1::Method method) {
  switch (method) {
    case v1::METHOD_UNSPECIFIED:
    case v1::METHOD_ASYNC:
      return Method::kAsync;
    case v1::METHOD_AR:
      return Method::kAr;
    case v1::METHOD_SD:
      return Method::kSd;
    case v1::METHOD_PEARL:
      return Method::kPearl;
    default:
      return Unknown("speculation.method", "speculation method", method);
  }
}

absl::StatusOr<Verification> VerificationOf(v1::Verification verification) {
  switch (verification) {
    case v1::VERIFICATION_UNSPECIFIED:
    case v1::VERIFICATION_EXACT:
      return Verification::kExact;
    case v1::VERIFICATION_RATIO:
      return Verification::kRatio;
    default:
      return Unknown("speculation.verification", "verification", verification);
  }
}

absl::StatusOr<bool> IsDetailed(v1::SpecStatsLevel level) {
  switch (level) {
    case v1::SPEC_STATS_LEVEL_UNSPECIFIED:
    case v1::SPEC_STATS_LEVEL_SUMMARY:
      return false;
    case v1::SPEC_STATS_LEVEL_DETAILED:
      return true;
    default:
      return Unknown("output.spec_stats", "spec_stats", level);
  }
}

template <typename Repeated>
absl::Span<const uint32_t> SpanOf(const Repeated& ids) {
  return {ids.data(), static_cast<size_t>(ids.size())};
}

GenerateFields::Sampling SamplingOf(const v1::SamplingParams& proto) {
  GenerateFields::Sampling fields;
  if (proto.has_temperature()) fields.temperature = proto.temperature();
  if (proto.has_top_k()) fields.top_k = proto.top_k();
  if (proto.has_top_p()) fields.top_p = proto.top_p();
  if (proto.has_min_p()) fields.min_p = proto.min_p();
  if (proto.has_repetition_penalty()) {
    fields.repetition_penalty = proto.repetition_penalty();
  }
  if (proto.has_frequency_penalty()) {
    fields.frequency_penalty = proto.frequency_penalty();
  }
  if (proto.has_presence_penalty()) {
    fields.presence_penalty = proto.presence_penalty();
  }
  for (const auto& [id, bias] : proto.logit_bias()) {
    fields.logit_bias.emplace_back(id, bias);
  }
  if (proto.has_seed()) fields.seed = proto.seed();
  return fields;
}

GenerateFields::Stop StopOf(const v1::StopParams& proto) {
  GenerateFields::Stop fields;
  if (proto.has_max_tokens()) fields.max_tokens = proto.max_tokens();
  fields.min_tokens = proto.min_tokens();
  fields.strings.assign(proto.stop().begin(), proto.stop().end());
  fields.token_ids = SpanOf(proto.stop_token_ids());
  fields.ignore_eos = proto.ignore_eos();
  fields.include_stop_string = proto.include_stop_str_in_output();
  return fields;
}

GenerateFields::Speculation SpeculationOf(const v1::SpeculationOptions& proto) {
  GenerateFields::Speculation fields;
  fields.method = MethodOf(proto.method());
  if (proto.has_window()) fields.window = proto.window();
  fields.policy = proto.policy();
  fields.tree = proto.tree();
  fields.oracle_token_ids = SpanOf(proto.oracle_token_ids());
  fields.verification = VerificationOf(proto.verification());
  fields.suffixes = !proto.has_suffixes() || proto.suffixes();
  fields.ablation = proto.ablation();
  return fields;
}

GenerateFields::Output OutputOf(const v1::OutputOptions& proto) {
  GenerateFields::Output fields;
  fields.stream = proto.stream();
  fields.omit_streamed = proto.omit_streamed();
  fields.trace_chunks = proto.trace_chunks();
  fields.skip_special_tokens =
      !proto.has_skip_special_tokens() || proto.skip_special_tokens();
  fields.trace = proto.trace();
  if (proto.has_logprobs()) fields.logprobs = proto.logprobs();
  if (proto.has_prompt_logprobs()) {
    fields.prompt_logprobs = proto.prompt_logprobs();
  }
  fields.detailed_stats = IsDetailed(proto.spec_stats());
  return fields;
}

GenerateFields::Resume ResumeOf(const v1::Resume& proto) {
  GenerateFields::Resume fields;
  for (const v1::Resume::Choice& choice : proto.choices()) {
    fields.choices.push_back({SpanOf(choice.token_ids()), choice.done()});
  }
  fields.model_fingerprint = proto.model_fingerprint();
  fields.numerics_id = proto.numerics_id();
  return fields;
}

}  // namespace

GenerateFields FieldsOf(const v1::GenerateRequest& request) {
  GenerateFields fields;
  fields.model = request.model();
  fields.request_id = request.request_id();
  fields.numerics_id = request.numerics_id();
  if (request.has_n()) fields.num_choices = request.n();
  if (request.prompt_case() == v1::GenerateRequest::kText) {
    fields.text = request.text();
  } else if (request.prompt_case() == v1::GenerateRequest::kTokenIds) {
    fields.token_ids = SpanOf(request.token_ids().ids());
  }
  fields.sampling = SamplingOf(request.sampling());
  fields.stop = StopOf(request.stop());
  fields.speculation_options = SpeculationOf(request.speculation());
  fields.output = OutputOf(request.output());
  if (request.has_resume()) fields.resume = ResumeOf(request.resume());
  return fields;
}

}  // namespace nacre::coordinator
