#include "coordinator/api/request_parser.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/quoted.h"
#include "common/refusal.h"
#include "common/status_macros.h"
#include "coordinator/api/resume_parser.h"
#include "coordinator/api/text_ids.h"

namespace nacre::coordinator {
namespace {

using speculation::Method;

constexpr int kDefaultMaxTokens = 256;
constexpr size_t kMaxStopStrings = 16;
constexpr size_t kMaxStopBytes = 1024;
constexpr size_t kMaxStopTokenIds = 64;
constexpr uint32_t kMaxChoices = 16;
constexpr size_t kMaxOracleIds = 1 << 20;

// `field`: its path in GenerateRequest.
template <typename... Parts>
absl::Status Invalid(const char* field, const Parts&... parts) {
  return WithField(absl::InvalidArgumentError(absl::StrCat(parts...)), field);
}

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
    const GenerateFields& fields, const tokenizer::Tokenizer& tokenizer,
    const WorkerInfo& model) {
  if (fields.text.has_value()) {
    return PromptTextIds(*fields.text, tokenizer, model.context_length);
  }
  if (!fields.token_ids.has_value()) {
    return absl::InvalidArgumentError("no prompt: set text or token_ids");
  }
  NACRE_RETURN_IF_ERROR(CheckPromptLength(
      static_cast<int64_t>(fields.token_ids->size()), model.context_length));
  std::vector<int32_t> ids;
  ids.reserve(fields.token_ids->size());
  for (uint32_t id : *fields.token_ids) {
    if (id >= static_cast<uint32_t>(model.model_vocab_size)) {
      return Invalid("token_ids", "prompt token id ", id, " at index ",
                     ids.size(), " is outside the vocabulary of ",
                     model.model_vocab_size);
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

absl::StatusOr<SamplingParams> ParseSampling(
    const GenerateFields::Sampling& fields, int vocab_size) {
  SamplingParams params;
  const auto take = [](const auto& field, auto* param) {
    if (field.has_value()) *param = *field;
  };
  take(fields.temperature, &params.temperature);
  if (fields.top_k.has_value()) {
    // More than any vocabulary keeps all.
    params.top_k = static_cast<int32_t>(
        std::min<uint32_t>(*fields.top_k, std::numeric_limits<int32_t>::max()));
  }
  take(fields.top_p, &params.top_p);
  take(fields.min_p, &params.min_p);
  take(fields.repetition_penalty, &params.repetition_penalty);
  take(fields.frequency_penalty, &params.frequency_penalty);
  take(fields.presence_penalty, &params.presence_penalty);
  for (const auto& [id, bias] : fields.logit_bias) {
    if (id >= static_cast<uint32_t>(vocab_size)) {
      return Invalid("sampling.logit_bias", "logit_bias token id ", id,
                     " is outside the vocabulary of ", vocab_size);
    }
    params.logit_bias.emplace_back(static_cast<int32_t>(id), bias);
  }
  NACRE_RETURN_IF_ERROR(ValidateSamplingParams(params));
  if (fields.seed.has_value()) {
    params.seed = *fields.seed;
  } else if (params.temperature > 0.0f) {
    params.seed = RandomBits();
  }
  return params;
}

absl::Status ParseStop(const GenerateFields::Stop& fields, int vocab_size,
                       RequestSpec* spec) {
  if (fields.strings.size() > kMaxStopStrings) {
    return Invalid("stop.stop", fields.strings.size(),
                   " stop strings, at most ", kMaxStopStrings, " are allowed");
  }
  for (const absl::string_view stop : fields.strings) {
    if (stop.empty() || stop.size() > kMaxStopBytes) {
      return Invalid("stop.stop", "a stop string has ", stop.size(),
                     " bytes, must be 1 to ", kMaxStopBytes);
    }
    spec->stop.emplace_back(stop);
  }
  if (fields.token_ids.size() > kMaxStopTokenIds) {
    return Invalid("stop.stop_token_ids", fields.token_ids.size(),
                   " stop token ids, at most ", kMaxStopTokenIds,
                   " are allowed");
  }
  for (uint32_t id : fields.token_ids) {
    if (id >= static_cast<uint32_t>(vocab_size)) {
      return Invalid("stop.stop_token_ids", "stop token id ", id,
                     " is outside the vocabulary of ", vocab_size);
    }
    spec->stop_token_ids.push_back(static_cast<int32_t>(id));
  }
  spec->ignore_eos = fields.ignore_eos;
  spec->include_stop_string = fields.include_stop_string;
  return absl::OkStatus();
}

// After the sampling parameters: the oracle knows greedy answers only.
absl::Status ParsePolicy(const GenerateFields::Speculation& fields,
                         int vocab_size, RequestSpec* spec) {
  if (!fields.policy.empty()) {
    absl::StatusOr<speculation::PolicySpec> policy =
        speculation::ParsePolicySpec(fields.policy);
    if (!policy.ok()) return WithField(policy.status(), "speculation.policy");
    spec->policy = *std::move(policy);
  }
  const size_t num_ids = fields.oracle_token_ids.size();
  if (spec->policy.kind() != speculation::PolicyKind::kOracle) {
    if (num_ids == 0) return absl::OkStatus();
    return Invalid("speculation.oracle_token_ids", "oracle_token_ids has ",
                   num_ids, " ids, but the policy is ", spec->policy.name(),
                   ", not oracle");
  }
  if (spec->sampling.temperature != 0.0f) {
    return Invalid("speculation.policy",
                   "policy oracle needs temperature 0, it is ",
                   spec->sampling.temperature);
  }
  if (num_ids < 1 || num_ids > kMaxOracleIds) {
    return Invalid("speculation.oracle_token_ids",
                   "policy oracle: oracle_token_ids has ", num_ids,
                   " ids, must have 1 to ", kMaxOracleIds);
  }
  for (const uint32_t id : fields.oracle_token_ids) {
    if (id >= static_cast<uint32_t>(vocab_size)) {
      return Invalid("speculation.oracle_token_ids", "oracle_token_ids: ", id,
                     " is outside the vocabulary of ", vocab_size);
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
    return Invalid("speculation.policy", "policy ", spec->policy.name(),
                   " looks at the tokens drawn, which would bias ",
                   "verification ratio; use exact, or another policy");
  }
  spec->verification = speculation::Verification::kRatio;
  return absl::OkStatus();
}

// After method, policy and verification.
absl::Status ParseTree(const GenerateFields::Speculation& fields,
                       RequestSpec* spec) {
  absl::optional<speculation::TreeSpec> named;
  if (!fields.tree.empty()) {
    NACRE_ASSIGN_OR_RETURN(named, speculation::ParseTreeSpec(fields.tree));
  }
  NACRE_ASSIGN_OR_RETURN(
      spec->tree,
      speculation::ResolveTreeShape(named, {spec->method, spec->verification,
                                            spec->policy.has_own_rule()}));
  return absl::OkStatus();
}

// After method and verification.
absl::Status ParseAblation(absl::string_view name, RequestSpec* spec) {
  const absl::optional<speculation::Ablation> ablation =
      speculation::AblationFromName(name);
  if (!ablation.has_value()) {
    return Invalid("speculation.ablation", "speculation ablation ",
                   Quoted(name),
                   " is not one of no-pre-verify, no-post-verify");
  }
  spec->ablation = *ablation;
  if (spec->ablation == speculation::Ablation::kNone) return absl::OkStatus();
  if (spec->method != Method::kPearl) {
    return Invalid("speculation.ablation", "speculation ablation ", name,
                   " is of method pearl, the request's is ",
                   speculation::MethodName(spec->method));
  }
  if (spec->verification != speculation::Verification::kExact) {
    return Invalid("speculation.ablation", "speculation ablation ", name,
                   " cannot be with verification ratio");
  }
  return absl::OkStatus();
}

absl::Status ParseSpeculation(const GenerateFields::Speculation& fields,
                              int vocab_size, RequestSpec* spec) {
  NACRE_ASSIGN_OR_RETURN(spec->method, fields.method);
  if (fields.window.has_value()) {
    if (*fields.window < 1 || *fields.window > speculation::kMaxWindow) {
      return Invalid("speculation.window", "speculation window is ",
                     *fields.window, ", must be in [1, ",
                     speculation::kMaxWindow, "]");
    }
    spec->window = static_cast<int>(*fields.window);
  }
  NACRE_RETURN_IF_ERROR(ParsePolicy(fields, vocab_size, spec));
  NACRE_ASSIGN_OR_RETURN(const speculation::Verification verification,
                         fields.verification);
  if (verification == speculation::Verification::kRatio) {
    NACRE_RETURN_IF_ERROR(ParseRatio(spec));
  }
  if (fields.suffixes && spec->method == Method::kAsync &&
      spec->verification == speculation::Verification::kExact) {
    spec->suffixes.emplace();
  }
  NACRE_RETURN_IF_ERROR(ParseAblation(fields.ablation, spec));
  return WithField(ParseTree(fields, spec), "speculation.tree");
}

// Of the recording what the answer can reach: each choice keeps it, as long as
// it waits and runs.
void KeepOracle(RequestSpec* spec) {
  const size_t most = static_cast<size_t>(spec->max_tokens);
  if (spec->oracle_ids.size() <= most) return;
  spec->oracle_ids.resize(most);
  spec->oracle_ids.shrink_to_fit();
}

absl::Status CheckMinTokens(const GenerateFields::Stop& stop,
                            RequestSpec* spec) {
  if (stop.min_tokens > static_cast<uint32_t>(spec->max_tokens)) {
    return Invalid("stop.min_tokens", "min_tokens is ", stop.min_tokens,
                   ", over max_tokens of ", spec->max_tokens);
  }
  spec->min_tokens = static_cast<int>(stop.min_tokens);
  return absl::OkStatus();
}

absl::Status ParseTop(const char* name, absl::optional<uint32_t> field,
                      absl::optional<int>* to) {
  if (!field.has_value()) return absl::OkStatus();
  if (*field > uint32_t{kMaxTopLogprobs}) {
    return WithField(absl::InvalidArgumentError(absl::StrCat(
                         name, " is ", *field, ", at most ", kMaxTopLogprobs)),
                     absl::StrCat("output.", name));
  }
  *to = static_cast<int>(*field);
  return absl::OkStatus();
}

absl::Status ParseOutput(const GenerateFields::Output& fields,
                         RequestSpec* spec) {
  spec->stream = fields.stream;
  spec->skip_special_tokens = fields.skip_special_tokens;
  spec->trace = fields.trace;
  spec->omit_streamed = fields.omit_streamed;
  if (spec->omit_streamed && !spec->stream) {
    return Invalid(
        "output.omit_streamed",
        "omit_streamed is set without stream: the answer would be empty");
  }
  spec->trace_chunks = fields.trace_chunks;
  if (spec->trace_chunks && !spec->stream) {
    return Invalid("output.trace_chunks",
                   "trace_chunks is set without stream: there are no chunks");
  }
  NACRE_RETURN_IF_ERROR(ParseTop("logprobs", fields.logprobs, &spec->logprobs));
  NACRE_RETURN_IF_ERROR(ParseTop("prompt_logprobs", fields.prompt_logprobs,
                                 &spec->prompt_logprobs));
  NACRE_ASSIGN_OR_RETURN(spec->detailed_stats, fields.detailed_stats);
  return absl::OkStatus();
}

absl::Status CheckLength(const GenerateFields::Stop& stop, int context_length,
                         RequestSpec* spec) {
  const int64_t prompt = static_cast<int64_t>(spec->prompt_ids.size());
  NACRE_RETURN_IF_ERROR(CheckPromptLength(prompt, context_length));
  if (!stop.max_tokens.has_value()) {
    // A request for more than the default says so by its least.
    const int64_t wanted =
        std::max<int64_t>(kDefaultMaxTokens, stop.min_tokens);
    spec->max_tokens =
        static_cast<int>(std::min(wanted, context_length - prompt));
    return CheckMinTokens(stop, spec);
  }
  if (*stop.max_tokens < 1) {
    return Invalid("stop.max_tokens", "max_tokens is 0, must be at least 1");
  }
  if (prompt + *stop.max_tokens > context_length) {
    return Invalid("stop.max_tokens", "CONTEXT_LENGTH_EXCEEDED: prompt of ",
                   prompt, " tokens + max_tokens ", *stop.max_tokens,
                   " is over the context of ", context_length);
  }
  spec->max_tokens = static_cast<int>(*stop.max_tokens);
  return CheckMinTokens(stop, spec);
}

}  // namespace

absl::StatusOr<int> NumChoices(const GenerateFields& fields) {
  const uint32_t n = fields.num_choices;
  if (n < 1 || n > kMaxChoices) {
    return Invalid("n", "n is ", n, ", must be in [1, ", kMaxChoices, "]");
  }
  return static_cast<int>(n);
}

absl::StatusOr<RequestSpec> ParseRequest(
    const GenerateFields& fields, const tokenizer::Tokenizer& tokenizer,
    const WorkerInfo& model, const speculation::PolicySpec& default_policy) {
  if (!fields.model.empty() && fields.model != model.model_name) {
    return WithField(absl::NotFoundError(absl::StrCat(
                         "model ", Quoted(fields.model), " is not served; \"",
                         model.model_name, "\" is")),
                     "model");
  }
  if (fields.request_id.size() > kMaxRequestIdBytes) {
    return Invalid("request_id", "request_id has ", fields.request_id.size(),
                   " bytes, at most ", kMaxRequestIdBytes);
  }
  if (fields.numerics_id.size() > kMaxNumericsIdBytes) {
    return Invalid("numerics_id", "numerics_id has ", fields.numerics_id.size(),
                   " bytes, at most ", kMaxNumericsIdBytes);
  }
  RequestSpec spec;
  NACRE_ASSIGN_OR_RETURN(spec.num_choices, NumChoices(fields));
  if (spec.num_choices > 1) spec.call = std::make_shared<CallPlacement>();
  spec.fingerprint = model.fingerprint;
  spec.numerics_id = std::string(fields.numerics_id);
  spec.request_id = fields.request_id.empty()
                        ? absl::StrFormat("%016x", RandomBits())
                        : std::string(fields.request_id);
  NACRE_ASSIGN_OR_RETURN(
      spec.sampling, ParseSampling(fields.sampling, model.model_vocab_size));
  NACRE_RETURN_IF_ERROR(ParseStop(fields.stop, model.model_vocab_size, &spec));
  spec.policy = default_policy;
  NACRE_RETURN_IF_ERROR(ParseSpeculation(fields.speculation_options,
                                         model.model_vocab_size, &spec));
  NACRE_RETURN_IF_ERROR(ParseOutput(fields.output, &spec));
  // What takes long comes last.
  absl::StatusOr<std::vector<int32_t>> ids =
      PromptIds(fields, tokenizer, model);
  const char* const prompt = fields.text.has_value()        ? "text"
                             : fields.token_ids.has_value() ? "token_ids"
                                                            : "";
  if (!ids.ok()) return WithField(ids.status(), prompt);
  spec.prompt_ids = *std::move(ids);
  if (spec.prompt_ids.empty()) {
    return Invalid(
        prompt,
        "the prompt is empty: it has no token, and the model adds no BOS");
  }
  NACRE_RETURN_IF_ERROR(CheckLength(fields.stop, model.context_length, &spec));
  KeepOracle(&spec);
  if (fields.resume.has_value()) {
    NACRE_RETURN_IF_ERROR(ParseResume(fields, tokenizer, model, &spec));
  }
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
