#include "coordinator/request_convert.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/quoted.h"
#include "common/status_macros.h"
#include "coordinator/text_ids.h"

namespace nacre::coordinator {
namespace {

using speculation::Method;

constexpr int kDefaultMaxTokens = 256;
constexpr int kMaxStopStrings = 16;
constexpr size_t kMaxStopBytes = 1024;
constexpr int kMaxStopTokenIds = 64;
constexpr size_t kMaxNumericsIdBytes = 1024;
constexpr uint32_t kMaxChoices = 16;
constexpr int kMaxOracleIds = 1 << 20;

uint64_t RandomBits() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

absl::Status CheckPromptLength(int64_t tokens, int context_length) {
  if (tokens < context_length) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("CONTEXT_LENGTH_EXCEEDED: the prompt has ", tokens,
                   " tokens, the context is ", context_length,
                   " and must hold at least one more"));
}

absl::StatusOr<std::vector<int32_t>> PromptIds(
    const v1::GenerateRequest& request, const tokenizer::Tokenizer& tokenizer,
    const WorkerInfo& model) {
  switch (request.prompt_case()) {
    case v1::GenerateRequest::kText:
      return PromptTextIds(request.text(), tokenizer, model.context_length);
    case v1::GenerateRequest::kTokenIds:
      break;
    default:
      return absl::InvalidArgumentError("no prompt: set text or token_ids");
  }
  NACRE_RETURN_IF_ERROR(
      CheckPromptLength(request.token_ids().ids_size(), model.context_length));
  std::vector<int32_t> ids;
  ids.reserve(request.token_ids().ids_size());
  for (uint32_t id : request.token_ids().ids()) {
    if (id >= static_cast<uint32_t>(model.model_vocab_size)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "prompt token id ", id, " at index ", ids.size(),
          " is outside the vocabulary of ", model.model_vocab_size));
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

absl::StatusOr<SamplingParams> ParseSampling(const v1::SamplingParams& proto,
                                             int vocab_size) {
  SamplingParams params;
  if (proto.has_temperature()) params.temperature = proto.temperature();
  if (proto.has_top_k()) {
    // More than any vocabulary keeps all.
    params.top_k = static_cast<int32_t>(
        std::min<uint32_t>(proto.top_k(), std::numeric_limits<int32_t>::max()));
  }
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
  for (const auto& [id, bias] : proto.logit_bias()) {
    if (id >= static_cast<uint32_t>(vocab_size)) {
      return absl::InvalidArgumentError(
          absl::StrCat("logit_bias token id ", id,
                       " is outside the vocabulary of ", vocab_size));
    }
    params.logit_bias.emplace_back(static_cast<int32_t>(id), bias);
  }
  NACRE_RETURN_IF_ERROR(ValidateSamplingParams(params));
  if (proto.has_seed()) {
    params.seed = proto.seed();
  } else if (params.temperature > 0.0f) {
    params.seed = RandomBits();
  }
  return params;
}

absl::Status ParseStop(const v1::StopParams& proto, int vocab_size,
                       RequestSpec* spec) {
  if (proto.stop_size() > kMaxStopStrings) {
    return absl::InvalidArgumentError(
        absl::StrCat(proto.stop_size(), " stop strings, at most ",
                     kMaxStopStrings, " are allowed"));
  }
  for (const std::string& stop : proto.stop()) {
    if (stop.empty() || stop.size() > kMaxStopBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("a stop string has ", stop.size(),
                       " bytes, must be 1 to ", kMaxStopBytes));
    }
    spec->stop.push_back(stop);
  }
  if (proto.stop_token_ids_size() > kMaxStopTokenIds) {
    return absl::InvalidArgumentError(
        absl::StrCat(proto.stop_token_ids_size(), " stop token ids, at most ",
                     kMaxStopTokenIds, " are allowed"));
  }
  for (uint32_t id : proto.stop_token_ids()) {
    if (id >= static_cast<uint32_t>(vocab_size)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "stop token id ", id, " is outside the vocabulary of ", vocab_size));
    }
    spec->stop_token_ids.push_back(static_cast<int32_t>(id));
  }
  spec->ignore_eos = proto.ignore_eos();
  spec->include_stop_string = proto.include_stop_str_in_output();
  return absl::OkStatus();
}

// After the sampling parameters: the oracle knows greedy answers only.
absl::Status ParsePolicy(const v1::SpeculationOptions& proto, int vocab_size,
                         RequestSpec* spec) {
  if (!proto.policy().empty()) {
    NACRE_ASSIGN_OR_RETURN(spec->policy,
                           speculation::ParsePolicySpec(proto.policy()));
  }
  const int num_ids = proto.oracle_token_ids_size();
  if (spec->policy.kind() != speculation::PolicyKind::kOracle) {
    if (num_ids == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "oracle_token_ids has ", num_ids, " ids, but the policy is ",
        spec->policy.name(), ", not oracle"));
  }
  if (spec->sampling.temperature != 0.0f) {
    return absl::InvalidArgumentError(
        absl::StrCat("policy oracle needs temperature 0, it is ",
                     spec->sampling.temperature));
  }
  if (num_ids < 1 || num_ids > kMaxOracleIds) {
    return absl::InvalidArgumentError(
        absl::StrCat("policy oracle: oracle_token_ids has ", num_ids,
                     " ids, must have 1 to ", kMaxOracleIds));
  }
  for (const uint32_t id : proto.oracle_token_ids()) {
    if (id >= static_cast<uint32_t>(vocab_size)) {
      return absl::InvalidArgumentError(
          absl::StrCat("oracle_token_ids: ", id,
                       " is outside the vocabulary of ", vocab_size));
    }
    spec->oracle_ids.push_back(static_cast<int32_t>(id));
  }
  return absl::OkStatus();
}

// After sampling parameters, method and policy.
absl::Status ParseRatio(RequestSpec* spec) {
  // Both rules accept exactly the likeliest token there.
  if (spec->sampling.temperature == 0.0f) return absl::OkStatus();
  if (spec->method != Method::kAr &&
      speculation::InfoOf(spec->policy.kind()).looks_at_token) {
    return absl::InvalidArgumentError(
        absl::StrCat("policy ", spec->policy.name(),
                     " looks at the tokens drawn, which would bias ",
                     "verification ratio; use exact, or another policy"));
  }
  spec->verification = speculation::Verification::kRatio;
  return absl::OkStatus();
}

absl::Status ParseSpeculation(const v1::SpeculationOptions& proto,
                              int vocab_size, RequestSpec* spec) {
  switch (proto.method()) {
    case v1::METHOD_UNSPECIFIED:
    case v1::METHOD_ASYNC:
      spec->method = Method::kAsync;
      break;
    case v1::METHOD_AR:
      spec->method = Method::kAr;
      break;
    case v1::METHOD_SD:
      spec->method = Method::kSd;
      break;
    case v1::METHOD_PEARL:
      spec->method = Method::kPearl;
      break;
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          "unknown speculation method ", static_cast<int>(proto.method())));
  }
  if (proto.has_window()) {
    if (proto.window() < 1 || proto.window() > speculation::kMaxWindow) {
      return absl::InvalidArgumentError(
          absl::StrCat("speculation window is ", proto.window(),
                       ", must be in [1, ", speculation::kMaxWindow, "]"));
    }
    spec->window = static_cast<int>(proto.window());
  }
  NACRE_RETURN_IF_ERROR(ParsePolicy(proto, vocab_size, spec));
  switch (proto.verification()) {
    case v1::VERIFICATION_UNSPECIFIED:
    case v1::VERIFICATION_EXACT:
      return absl::OkStatus();
    case v1::VERIFICATION_RATIO:
      return ParseRatio(spec);
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          "unknown verification ", static_cast<int>(proto.verification())));
  }
}

absl::Status CheckMinTokens(const v1::StopParams& stop, RequestSpec* spec) {
  if (stop.min_tokens() > static_cast<uint32_t>(spec->max_tokens)) {
    return absl::InvalidArgumentError(
        absl::StrCat("min_tokens is ", stop.min_tokens(),
                     ", over max_tokens of ", spec->max_tokens));
  }
  spec->min_tokens = static_cast<int>(stop.min_tokens());
  return absl::OkStatus();
}

absl::Status ParseOutput(const v1::OutputOptions& output, RequestSpec* spec) {
  spec->stream = output.stream();
  spec->skip_special_tokens =
      !output.has_skip_special_tokens() || output.skip_special_tokens();
  spec->trace = output.trace();
  spec->omit_streamed = output.omit_streamed();
  if (spec->omit_streamed && !spec->stream) {
    return absl::InvalidArgumentError(
        "omit_streamed is set without stream: the answer would be empty");
  }
  if (output.has_logprobs()) {
    if (output.logprobs() > uint32_t{kMaxTopLogprobs}) {
      return absl::InvalidArgumentError(absl::StrCat(
          "logprobs is ", output.logprobs(), ", at most ", kMaxTopLogprobs));
    }
    spec->logprobs = static_cast<int>(output.logprobs());
  }
  switch (output.spec_stats()) {
    case v1::SPEC_STATS_LEVEL_UNSPECIFIED:
    case v1::SPEC_STATS_LEVEL_SUMMARY:
      return absl::OkStatus();
    case v1::SPEC_STATS_LEVEL_DETAILED:
      spec->detailed_stats = true;
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          "unknown spec_stats ", static_cast<int>(output.spec_stats())));
  }
}

absl::Status CheckLength(const v1::StopParams& stop, int context_length,
                         RequestSpec* spec) {
  const int64_t prompt = static_cast<int64_t>(spec->prompt_ids.size());
  NACRE_RETURN_IF_ERROR(CheckPromptLength(prompt, context_length));
  if (!stop.has_max_tokens()) {
    // A request for more than the default says so by its least.
    const int64_t wanted =
        std::max<int64_t>(kDefaultMaxTokens, stop.min_tokens());
    spec->max_tokens =
        static_cast<int>(std::min(wanted, context_length - prompt));
    return CheckMinTokens(stop, spec);
  }
  if (stop.max_tokens() < 1) {
    return absl::InvalidArgumentError("max_tokens is 0, must be at least 1");
  }
  if (prompt + stop.max_tokens() > context_length) {
    return absl::InvalidArgumentError(absl::StrCat(
        "CONTEXT_LENGTH_EXCEEDED: prompt of ", prompt, " tokens + max_tokens ",
        stop.max_tokens(), " is over the context of ", context_length));
  }
  spec->max_tokens = static_cast<int>(stop.max_tokens());
  return CheckMinTokens(stop, spec);
}

}  // namespace

absl::StatusOr<int> NumChoices(const v1::GenerateRequest& request) {
  const uint32_t n = request.has_n() ? request.n() : 1;
  if (n < 1 || n > kMaxChoices) {
    return absl::InvalidArgumentError(
        absl::StrCat("n is ", n, ", must be in [1, ", kMaxChoices, "]"));
  }
  return static_cast<int>(n);
}

absl::StatusOr<RequestSpec> ParseRequest(
    const v1::GenerateRequest& request, const tokenizer::Tokenizer& tokenizer,
    const WorkerInfo& model, const speculation::PolicySpec& default_policy) {
  if (!request.model().empty() && request.model() != model.model_name) {
    return absl::NotFoundError(absl::StrCat("model ", Quoted(request.model()),
                                            " is not served; \"",
                                            model.model_name, "\" is"));
  }
  if (request.request_id().size() > kMaxRequestIdBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("request_id has ", request.request_id().size(),
                     " bytes, at most ", kMaxRequestIdBytes));
  }
  if (request.numerics_id().size() > kMaxNumericsIdBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("numerics_id has ", request.numerics_id().size(),
                     " bytes, at most ", kMaxNumericsIdBytes));
  }
  RequestSpec spec;
  NACRE_ASSIGN_OR_RETURN(spec.num_choices, NumChoices(request));
  if (spec.num_choices > 1) spec.call = std::make_shared<CallPlacement>();
  spec.fingerprint = model.fingerprint;
  spec.numerics_id = request.numerics_id();
  spec.request_id = request.request_id().empty()
                        ? absl::StrFormat("%016x", RandomBits())
                        : request.request_id();
  NACRE_ASSIGN_OR_RETURN(
      spec.sampling, ParseSampling(request.sampling(), model.model_vocab_size));
  NACRE_RETURN_IF_ERROR(
      ParseStop(request.stop(), model.model_vocab_size, &spec));
  spec.policy = default_policy;
  NACRE_RETURN_IF_ERROR(
      ParseSpeculation(request.speculation(), model.model_vocab_size, &spec));
  NACRE_RETURN_IF_ERROR(ParseOutput(request.output(), &spec));
  // What takes long comes last.
  NACRE_ASSIGN_OR_RETURN(spec.prompt_ids, PromptIds(request, tokenizer, model));
  if (spec.prompt_ids.empty()) {
    return absl::InvalidArgumentError(
        "the prompt is empty: it has no token, and the model adds no BOS");
  }
  NACRE_RETURN_IF_ERROR(
      CheckLength(request.stop(), model.context_length, &spec));
  spec.prefixes = PrefixesOf(spec.prompt_ids);
  return spec;
}

RequestSpec ChoiceOf(const RequestSpec& request, int choice) {
  RequestSpec spec = request;
  spec.choice = choice;
  spec.sampling.seed += static_cast<uint64_t>(choice);  // wraps
  return spec;
}

}  // namespace nacre::coordinator
