#include "gateway/request_convert.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/json_fields.h"
#include "common/quoted.h"
#include "common/status_macros.h"
#include "gateway/field_reader.h"
#include "gateway/refused_fields.h"
#include "gateway/resume_convert.h"
#include "proto/names.h"

namespace nacre::gateway {
namespace {

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr size_t kMaxStops = 16;
constexpr size_t kMaxStopBytes = 1024;
constexpr size_t kMaxStopIds = 64;
constexpr size_t kMaxBiases = 1024;
constexpr size_t kMaxNameBytes = 1024;
constexpr size_t kMaxPolicyBytes = 4096;
constexpr size_t kMaxTreeBytes = 16384;
constexpr size_t kMaxRequestIdBytes = 128;
constexpr size_t kMaxPromptIds = size_t{1} << 22;
// One byte more than a template may have, which says the limit itself.
constexpr size_t kMaxTemplateBytes = (size_t{1} << 20) + 1;
constexpr int kMaxLogprobs = 20;
constexpr int kMaxN = 16;
constexpr int kMaxWindow = 64;

void ReadBias(FieldReader* reader, v1::SamplingParams* sampling) {
  const OrderedJson* const biases = reader->Find("logit_bias");
  if (biases == nullptr) return;
  if (!biases->is_object() || biases->size() > kMaxBiases) {
    return reader->FailField(
        "logit_bias", *biases,
        absl::StrCat("an object of at most ", kMaxBiases, " token ids"));
  }
  for (const auto& [key, bias] : biases->items()) {
    uint32_t id = 0;
    const double value = bias.is_number() ? bias.get<double>() : std::nan("");
    // As a number is written: no sign, no space, no zero before it.
    const bool is_id = absl::SimpleAtoi(key, &id) && absl::StrCat(id) == key;
    if (!is_id || !(value >= -100 && value <= 100)) {
      return reader->Fail(BadRequest(
          absl::StrCat("logit_bias ", Quoted(key), ": ", Shown(bias),
                       " is not a token id with a number in [-100, 100]"),
          "logit_bias"));
    }
    (*sampling->mutable_logit_bias())[id] = static_cast<float>(value);
  }
}

void ReadSampling(const SamplingDefaults& defaults, FieldReader* reader,
                  v1::SamplingParams* sampling) {
  const auto number = [&](const char* key, double least, double most,
                          std::optional<double> fallback, auto set) {
    std::optional<double> value = reader->Number(key, least, most);
    if (!value.has_value()) value = fallback;
    if (value.has_value()) set(static_cast<float>(*value));
  };
  number("temperature", 0, 2, defaults.temperature,
         [&](float value) { sampling->set_temperature(value); });
  // 1e-30: (0, 1] in words that the reader has.
  number("top_p", 1e-30, 1, defaults.top_p,
         [&](float value) { sampling->set_top_p(value); });
  number("min_p", 0, 1, defaults.min_p,
         [&](float value) { sampling->set_min_p(value); });
  number("repetition_penalty", 1e-30, 1e30, defaults.repetition_penalty,
         [&](float value) { sampling->set_repetition_penalty(value); });
  number("frequency_penalty", -2, 2, std::nullopt,
         [&](float value) { sampling->set_frequency_penalty(value); });
  number("presence_penalty", -2, 2, std::nullopt,
         [&](float value) { sampling->set_presence_penalty(value); });
  std::optional<int64_t> top_k = reader->Whole("top_k", -1, kMaxInt32);
  if (!top_k.has_value()) top_k = defaults.top_k;
  // vLLM: -1 keeps all.
  if (top_k.has_value()) {
    sampling->set_top_k(static_cast<uint32_t>(std::max<int64_t>(0, *top_k)));
  }
  const OrderedJson* const seed = reader->Find("seed");
  uint64_t written = 0;
  // SimpleAtoi passes signs and blanks.
  const auto is_digits = [](const std::string& text) {
    return text.find_first_not_of("0123456789") == std::string::npos;
  };
  if (seed != nullptr && seed->is_string() &&
      is_digits(seed->get_ref<const std::string&>()) &&
      absl::SimpleAtoi(seed->get_ref<const std::string&>(), &written)) {
    sampling->set_seed(written);  // as answers show it
  } else if (seed != nullptr && seed->is_number_integer()) {
    // A negative one is its two's complement.
    sampling->set_seed(seed->is_number_unsigned()
                           ? seed->get<uint64_t>()
                           : static_cast<uint64_t>(seed->get<int64_t>()));
  } else if (seed != nullptr) {
    reader->FailField("seed", *seed, "a whole number of 64 bits");
  }
  ReadBias(reader, sampling);
}

void ReadStop(FieldReader* reader, v1::StopParams* stop) {
  for (std::string& text : reader->Texts("stop", kMaxStops, kMaxStopBytes)) {
    stop->add_stop(std::move(text));
  }
  for (const uint32_t id : reader->Ids("stop_token_ids", kMaxStopIds)) {
    stop->add_stop_token_ids(id);
  }
  stop->set_ignore_eos(reader->BoolOr("ignore_eos", false));
  stop->set_include_stop_str_in_output(
      reader->BoolOr("include_stop_str_in_output", false));
  stop->set_min_tokens(static_cast<uint32_t>(
      reader->Whole("min_tokens", 0, kMaxInt32).value_or(0)));
}

// "" where it is no string.
absl::string_view NameIn(const OrderedJson& value) {
  const auto* const name = value.get_ptr<const std::string*>();
  return name == nullptr ? absl::string_view() : absl::string_view(*name);
}

void ReadMethod(FieldReader* reader, v1::SpeculationOptions* options) {
  const OrderedJson* const method = reader->Find("method");
  if (method != nullptr) {
    const absl::StatusOr<v1::Method> named = ParseMethod(NameIn(*method));
    if (named.ok()) {
      options->set_method(*named);
    } else {
      reader->FailField("method", *method, "ar, sd, pearl or async");
    }
  }
  const OrderedJson* const verification = reader->Find("verification");
  if (verification == nullptr) return;
  const absl::StatusOr<v1::Verification> named =
      ParseVerification(NameIn(*verification));
  if (named.ok()) {
    options->set_verification(*named);
  } else {
    reader->FailField("verification", *verification, "exact or ratio");
  }
}

// The object `nacre`: ours, so that a name that is not known is a mistake.
void ReadNacre(FieldReader* outer, ApiRequest* request) {
  const OrderedJson* const object = outer->Find("nacre");
  if (object == nullptr) return;
  if (!object->is_object()) {
    return outer->FailField("nacre", *object, "an object");
  }
  FieldReader reader(*object, "nacre.");
  v1::SpeculationOptions* const options =
      request->generate.mutable_speculation();
  ReadMethod(&reader, options);
  if (const auto window = reader.Whole("window", 1, kMaxWindow)) {
    options->set_window(static_cast<uint32_t>(*window));
  }
  if (!reader.BoolOr("suffixes", true)) options->set_suffixes(false);
  options->set_policy(reader.Text("policy", kMaxPolicyBytes).value_or(""));
  // What shapes there are, only the service knows.
  options->set_tree(reader.Text("tree", kMaxTreeBytes).value_or(""));
  request->answer.spec_stats = reader.BoolOr("spec_stats", false);
  if (request->answer.spec_stats) {
    request->generate.mutable_output()->set_spec_stats(
        v1::SPEC_STATS_LEVEL_DETAILED);
  }
  request->generate.mutable_output()->set_trace_chunks(
      reader.BoolOr("trace", false));
  request->generate.set_numerics_id(
      reader.Text("numerics_id", kMaxNameBytes).value_or(""));
  ReadResume(&reader, request);
  for (const std::string& name : reader.Unknown()) {
    reader.Fail(Unsupported(
        absl::StrCat("nacre.", Quoted(name), " is not known"), "nacre"));
  }
  if (reader.error()) outer->Fail(*reader.error());
}

void ReadStreaming(FieldReader* reader, ApiRequest* request) {
  request->answer.stream = reader->BoolOr("stream", false);
  const OrderedJson* const options = reader->Find("stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) {
    return reader->FailField("stream_options", *options, "an object");
  }
  FieldReader inner(*options, "stream_options.");
  request->answer.usage.included = inner.BoolOr("include_usage", false);
  request->answer.usage.continuous =
      inner.BoolOr("continuous_usage_stats", false);
  if (inner.error()) reader->Fail(*inner.error());
  if (!request->answer.stream &&
      (request->answer.usage.included || request->answer.usage.continuous)) {
    reader->Fail(
        BadRequest("stream_options is set without stream", "stream_options"));
  }
}

void ReadOutput(FieldReader* reader, ApiRequest* request) {
  request->n = static_cast<int>(reader->Whole("n", 1, kMaxN).value_or(1));
  request->generate.set_n(static_cast<uint32_t>(request->n));
  request->generate.mutable_output()->set_skip_special_tokens(
      reader->BoolOr("skip_special_tokens", true));
  request->generate.set_request_id(
      reader->Text("request_id", kMaxRequestIdBytes).value_or(""));
  request->answer.return_token_ids = reader->BoolOr("return_token_ids", false);
  request->answer.tokens_as_ids =
      reader->BoolOr("return_tokens_as_token_ids", false);
  ReadStreaming(reader, request);
  v1::OutputOptions* const output = request->generate.mutable_output();
  output->set_stream(request->answer.stream);
  output->set_omit_streamed(request->answer.stream);
  if (output->trace_chunks() && !request->answer.stream) {
    reader->Fail(BadRequest("nacre.trace is set without stream", "nacre"));
  }
}

void ReadPromptLogprobs(FieldReader* reader, ApiRequest* request) {
  const auto top = reader->Whole("prompt_logprobs", 0, kMaxLogprobs);
  if (!top) return;
  request->answer.prompt_logprobs = static_cast<int>(*top);
  request->generate.mutable_output()->set_prompt_logprobs(
      static_cast<uint32_t>(*top));
  // vLLM's streams have no place for it.
  if (request->answer.stream) {
    reader->Fail(
        Unsupported("prompt_logprobs is not supported with stream: echo with "
                    "logprobs of a completion is",
                    "prompt_logprobs"));
  }
}

// What both kinds of requests have.
void ReadCommon(const SamplingDefaults& defaults, FieldReader* reader,
                ApiRequest* request) {
  request->model = reader->Text("model", kMaxNameBytes).value_or("");
  ReadSampling(defaults, reader, request->generate.mutable_sampling());
  ReadStop(reader, request->generate.mutable_stop());
  ReadNacre(reader, request);
  ReadOutput(reader, request);
  // 0: see ReadPromptOnly.
  const int64_t least = request->is_chat ? 1 : 0;
  auto most = reader->Whole("max_tokens", least, kMaxInt32);
  if (const auto newer =
          reader->Whole("max_completion_tokens", least, kMaxInt32)) {
    most = newer;
    request->max_completion_tokens = true;
  }
  if (most) request->max_tokens = static_cast<uint32_t>(*most);
  ReadPromptLogprobs(reader, request);
  RefuseUnsupported(request->is_chat, request->n, reader);
  PassIgnorable(reader);
}

std::vector<uint32_t> IdsOf(const OrderedJson& list, FieldReader* reader) {
  const OrderedJson object = {{"prompt", list}};
  FieldReader inner(object);
  std::vector<uint32_t> ids = inner.Ids("prompt", kMaxPromptIds);
  if (inner.error()) reader->Fail(*inner.error());
  return ids;
}

void ReadPrompts(FieldReader* reader, ApiRequest* request) {
  const OrderedJson* const prompt = reader->Find("prompt");
  if (prompt == nullptr) return;
  if (prompt->is_string()) {
    request->prompts.emplace_back(prompt->get<std::string>());
    return;
  }
  constexpr char kWanted[] =
      "a string, a list of token ids, or a list of those";
  if (!prompt->is_array() || prompt->empty()) {
    return reader->FailField("prompt", *prompt, kWanted);
  }
  if (prompt->front().is_number()) {
    request->prompts.emplace_back(IdsOf(*prompt, reader));
    return;
  }
  if (prompt->size() > kMaxPrompts) {
    return reader->FailField("prompt", *prompt,
                             absl::StrCat("at most ", kMaxPrompts));
  }
  for (const OrderedJson& one : *prompt) {
    if (one.is_string()) {
      request->prompts.emplace_back(one.get<std::string>());
    } else if (one.is_array()) {
      request->prompts.emplace_back(IdsOf(one, reader));
    } else {
      return reader->FailField("prompt", one, kWanted);
    }
  }
}

// A content that is a list of texts becomes one text.
void FlattenContent(size_t index, OrderedJson* message, FieldReader* reader) {
  auto content = message->find("content");
  if (content == message->end() || content->is_null() || content->is_string()) {
    return;
  }
  const std::string where = absl::StrCat("messages[", index, "].content");
  if (!content->is_array()) {
    return reader->Fail(
        BadRequest(absl::StrCat(where, " is ", Shown(*content),
                                ", expected a string or a list of texts"),
                   "messages"));
  }
  std::string text;
  bool is_first = true;
  for (const OrderedJson& part : *content) {
    if (!part.is_object() || part.value("type", OrderedJson()) != "text" ||
        !part.value("text", OrderedJson()).is_string()) {
      return reader->Fail(Unsupported(
          absl::StrCat(where, " has a part that is no text"), "messages"));
    }
    absl::StrAppend(&text, std::exchange(is_first, false) ? "" : "\n",
                    part["text"].get_ref<const std::string&>());
  }
  *content = std::move(text);
}

// Fails where a message's calls are no list of objects, each with a function
// that is one.
void CheckCalls(size_t index, const OrderedJson& message, FieldReader* reader) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || calls->is_null()) return;
  const std::string name = absl::StrCat("messages[", index, "].tool_calls");
  const auto fail = [&](absl::string_view what, const OrderedJson& found,
                        absl::string_view wanted) {
    reader->Fail(BadRequest(
        absl::StrCat(name, what, " is ", Shown(found), ", expected ", wanted),
        "messages"));
  };
  if (!calls->is_array()) return fail("", *calls, "a list of calls");
  for (size_t i = 0; i < calls->size(); ++i) {
    const OrderedJson& call = (*calls)[i];
    if (!call.is_object()) {
      return fail(absl::StrCat("[", i, "]"), call, "an object");
    }
    const auto function = call.find("function");
    if (function == call.end() || function->is_object()) continue;
    return fail(absl::StrCat("[", i, "].function"), *function, "an object");
  }
}

// OpenAI has the arguments of a call as JSON in a string; most templates write
// them as JSON themselves. `comparisons`: see ParseObject. True: there were
// some.
bool ParseArguments(size_t index, OrderedJson* message, size_t* comparisons,
                    FieldReader* reader) {
  const auto calls = message->find("tool_calls");
  if (calls == message->end() || !calls->is_array()) return false;
  bool had_some = false;
  for (size_t i = 0; i < calls->size(); ++i) {
    OrderedJson& call = (*calls)[i];
    if (!call.is_object()) continue;
    const auto function = call.find("function");
    if (function == call.end() || !function->is_object()) continue;
    const auto arguments = function->find("arguments");
    if (arguments == function->end() || !arguments->is_string()) continue;
    OrderedJson object = OrderedJson::object();
    const auto& text = arguments->get_ref<const std::string&>();
    // Go writes a map that was never made as null.
    if (!text.empty() && text != "null") {
      auto error = ParseObject(text,
                               absl::StrCat("messages[", index, "].tool_calls[",
                                            i, "].function.arguments"),
                               comparisons, &object);
      if (error.has_value()) {
        error->param = "messages";
        reader->Fail(*std::move(error));
        return had_some;
      }
    }
    *arguments = std::move(object);
    had_some = true;
  }
  return had_some;
}

void ReadMessages(FieldReader* reader, ApiRequest* request) {
  const OrderedJson* const messages = reader->Find("messages");
  if (messages == nullptr) return;
  if (!messages->is_array() || messages->empty()) {
    return reader->FailField("messages", *messages, "a list of messages");
  }
  request->messages = *messages;
  size_t index = 0;
  size_t comparisons = 0;
  for (OrderedJson& message : request->messages) {
    const OrderedJson role = message.is_object()
                                 ? message.value("role", OrderedJson())
                                 : OrderedJson();
    if (role != "system" && role != "developer" && role != "user" &&
        role != "assistant" && role != "tool") {
      return reader->Fail(BadRequest(
          absl::StrCat("messages[", index, "].role is ", Shown(role),
                       ", expected system, developer, user, assistant or tool"),
          "messages"));
    }
    FlattenContent(index, &message, reader);
    CheckCalls(index, message, reader);
    ++index;
  }
  OrderedJson sent = request->messages;
  bool had_arguments = false;
  index = 0;
  for (OrderedJson& message : request->messages) {
    had_arguments |= ParseArguments(index, &message, &comparisons, reader);
    ++index;
  }
  if (had_arguments) request->sent_messages = std::move(sent);
}

// Beside the messages: what the template shows, and the request's own one.
void ReadTemplateValues(FieldReader* reader, ApiRequest* request) {
  const auto take = [&](const char* key, OrderedJson* to) {
    if (const OrderedJson* const found = reader->Find(key)) *to = *found;
  };
  take("tools", &request->tools);
  take("documents", &request->documents);
  const OrderedJson& documents = request->documents;
  if (!documents.is_null() &&
      !(documents.is_array() &&
        std::all_of(documents.begin(), documents.end(),
                    [](const OrderedJson& one) { return one.is_object(); }))) {
    return reader->FailField("documents", documents, "a list of objects");
  }
  take("chat_template_kwargs", &request->template_values.named);
  request->chat_template = reader->Text("chat_template", kMaxTemplateBytes);
  OrderedJson& values = request->template_values.named;
  if (!values.is_object()) {
    return reader->FailField("chat_template_kwargs", values, "an object");
  }
  // As in vLLM, another way to say the same.
  FieldReader inner(values, "chat_template_kwargs.");
  auto named = inner.Text("chat_template", kMaxTemplateBytes);
  if (inner.error()) return reader->Fail(*inner.error());
  if (named.has_value()) request->chat_template = std::move(named);
  values.erase("chat_template");
  const OrderedJson* const effort = reader->Find("reasoning_effort");
  if (effort != nullptr)
    values.emplace("reasoning_effort", OrderedJson(*effort));
}

// vLLM's: the prompt alone, and what the target says of its tokens. The service
// generates one, which the client does not see.
void ReadPromptOnly(FieldReader* reader, ApiRequest* request) {
  if (!request->PromptOnly()) return;
  const char* const name =
      request->max_completion_tokens ? "max_completion_tokens" : "max_tokens";
  if (!request->answer.echo) {
    reader->Fail(BadRequest(
        absl::StrCat(name, " is 0 without echo, expected 1 at least"), name));
  } else if (request->resumption.offered || request->generate.has_resume()) {
    reader->Fail(BadRequest(
        absl::StrCat(name, " is 0: there is nothing to resume"), name));
  }
}

std::optional<ApiError> Finish(FieldReader* reader, ApiRequest* request) {
  CheckResume(reader, request);
  const char* const prompt = request->is_chat ? "messages" : "prompt";
  if (request->resumption.prompt.empty() && reader->Find(prompt) == nullptr) {
    reader->Fail(BadRequest(absl::StrCat(prompt, " is missing"), prompt));
  }
  request->ignored = reader->Unknown();
  return reader->error();
}

}  // namespace

std::optional<ApiError> ConvertCompletion(const OrderedJson& body,
                                          const SamplingDefaults& defaults,
                                          ApiRequest* request) {
  FieldReader reader(body);
  ReadPrompts(&reader, request);
  ReadCommon(defaults, &reader, request);
  request->add_special_tokens = reader.BoolOr("add_special_tokens", true);
  request->answer.echo = reader.BoolOr("echo", false);
  ReadPromptOnly(&reader, request);
  if (const OrderedJson* const found = reader.Find("chat_template")) {
    reader.Fail(
        Unsupported(absl::StrCat("chat_template is not supported (found ",
                                 Shown(*found), ")"),
                    "chat_template"));
  }
  // As chats have it, false changes nothing.
  const OrderedJson* const asked = reader.Find("logprobs");
  const bool is_off = asked != nullptr && *asked == false;
  if (const auto logprobs =
          is_off ? std::nullopt : reader.Whole("logprobs", 0, kMaxLogprobs)) {
    request->answer.wants_logprobs = true;
    request->generate.mutable_output()->set_logprobs(
        static_cast<uint32_t>(*logprobs));
  }
  if (request->EchoesLogprobs()) {
    v1::OutputOptions* const output = request->generate.mutable_output();
    output->set_prompt_logprobs(
        std::max(output->prompt_logprobs(), output->logprobs()));
  }
  if (request->prompts.size() * static_cast<size_t>(request->n) >
      kMaxBatchChoices) {
    reader.Fail(BadRequest(
        absl::StrCat(request->prompts.size(), " prompts with n ", request->n,
                     " are over ", kMaxBatchChoices, " choices"),
        "prompt"));
  }
  if (request->prompts.size() > 1 && !request->generate.request_id().empty()) {
    reader.Fail(BadRequest("request_id is set with more than one prompt",
                           "request_id"));
  }
  return Finish(&reader, request);
}

std::optional<ApiError> ConvertChat(const OrderedJson& body,
                                    const SamplingDefaults& defaults,
                                    ApiRequest* request) {
  FieldReader reader(body);
  request->is_chat = true;
  ReadMessages(&reader, request);
  ReadCommon(defaults, &reader, request);
  request->add_special_tokens = reader.BoolOr("add_special_tokens", false);
  request->template_values.add_generation_prompt =
      reader.BoolOr("add_generation_prompt", true);
  ReadTemplateValues(&reader, request);
  request->answer.wants_logprobs = reader.BoolOr("logprobs", false);
  const int64_t top = reader.Whole("top_logprobs", 0, kMaxLogprobs).value_or(0);
  if (request->answer.wants_logprobs) {
    request->generate.mutable_output()->set_logprobs(
        static_cast<uint32_t>(top));
  } else if (top > 0) {
    reader.Fail(
        BadRequest("top_logprobs is set without logprobs", "top_logprobs"));
  }
  return Finish(&reader, request);
}

absl::StatusOr<SamplingDefaults> ReadSamplingDefaults(absl::string_view text) {
  NACRE_ASSIGN_OR_RETURN(const Json json,
                         ParseJsonObject(text, "generation_config.json"));
  SamplingDefaults defaults;
  const auto read = [&](const char* key, double most,
                        auto* value) -> absl::Status {
    const Json* const field = FindField(json, key);
    if (field == nullptr) return absl::OkStatus();
    NACRE_ASSIGN_OR_RETURN(const double number, NumberUpTo(key, *field, most));
    *value = number;
    return absl::OkStatus();
  };
  NACRE_RETURN_IF_ERROR(read("temperature", 2, &defaults.temperature));
  NACRE_RETURN_IF_ERROR(read("top_p", 1, &defaults.top_p));
  NACRE_RETURN_IF_ERROR(read("min_p", 1, &defaults.min_p));
  NACRE_RETURN_IF_ERROR(
      read("repetition_penalty", 1e30, &defaults.repetition_penalty));
  // -1 keeps all, and so says nothing.
  const Json* const top_k = FindField(json, "top_k");
  if (top_k != nullptr && *top_k != -1) {
    NACRE_ASSIGN_OR_RETURN(defaults.top_k,
                           WholeNumberUpTo("top_k", *top_k, kMaxInt32));
  }
  NACRE_ASSIGN_OR_RETURN(
      const bool samples,
      BoolFieldOr(json, "do_sample", true, "generation_config.json"));
  if (!samples) defaults = {.temperature = 0.0};
  return defaults;
}

}  // namespace nacre::gateway
