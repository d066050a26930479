#include "gateway/gateway_service.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/quoted.h"
#include "gateway/field_reader.h"
#include "gateway/fleet_convert.h"
#include "gateway/request_head.h"
#include "gateway/ui_files.h"
#include "telemetry/build_info.h"

namespace nacre::gateway {
namespace {

constexpr char kModelsPrefix[] = "/v1/models/";
constexpr char kPagePrefix[] = "/ui/";
constexpr uint32_t kDefaultCompletionTokens = 16;
constexpr size_t kMaxIgnoredNames = 16;
constexpr size_t kMaxTraceparentBytes = 256;

void SendJson(const OrderedJson& body, HttpReply* reply, int status = 200) {
  reply->Send(status, {{"Content-Type", "application/json"}}, Dump(body));
}

// What answers a request with it.
auto Refused(const ApiError& error) {
  return [error](const std::shared_ptr<HttpReply>& reply) {
    SendError(error, reply.get());
  };
}

bool IsVisibleAscii(absl::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return c > 0x20 && c < 0x7f; });
}

// As a header may hold them; names that it cannot hold are left out.
std::string IgnoredHeader(const std::vector<std::string>& names) {
  std::vector<std::string> shown;
  for (const std::string& name : names) {
    if (IsPlainName(name) && shown.size() < kMaxIgnoredNames) {
      shown.push_back(name);
    }
  }
  return absl::StrJoin(shown, ", ");
}

std::optional<ApiError> CheckContentType(const HttpRequest& request) {
  for (const auto& [name, type] : request.headers) {
    if (name != "content-type") continue;
    const std::string kind = absl::AsciiStrToLower(
        absl::StripAsciiWhitespace(type.substr(0, type.find(';'))));
    if (kind == "application/json") continue;
    return ApiError{.status = 415,
                    .message = absl::StrCat("Content-Type is ", Quoted(type),
                                            ", expected application/json")};
  }
  return std::nullopt;
}

ApiError UnknownPath(const HttpRequest& request) {
  return {.status = 404,
          .message = absl::StrCat("there is nothing at ", request.method, " ",
                                  Quoted(request.path)),
          .code = "unknown_url"};
}

void SendWrongMethod(const Route& route, HttpReply* reply) {
  const char* const methods = route.is_post ? "POST" : "GET, HEAD";
  const ApiError error = {
      .status = 405,
      .message = absl::StrCat(route.path, " is served to ", methods, " only")};
  HttpHeaders headers = ErrorHeaders(error);
  headers.emplace_back("Allow", methods);
  reply->Send(error.status, headers, ErrorBody(error));
}

// As it is listed by one of its names.
OrderedJson ModelJson(const std::string& name, const ServedModel& served) {
  const v1::Model& model = served.model;
  return {{"id", name},
          {"object", "model"},
          {"created", 0},
          {"owned_by", "nacre"},
          {"root", model.name()},
          {"parent", nullptr},
          {"max_model_len", model.context_length()},
          {"nacre",
           {{"fingerprint", model.fingerprint()},
            {"numerics_id", model.numerics_id()},
            {"vocab_size", model.vocab_size()}}}};
}

// Of the coordinator, too. Here it keeps long lists off the event loop.
std::optional<ApiError> CheckResumedIds(const ApiRequest& request,
                                        uint32_t max_tokens) {
  const v1::Resume& resume = request.generate.resume();
  for (int i = 0; i < resume.choices_size(); ++i) {
    const int size = resume.choices(i).token_ids_size();
    if (static_cast<uint32_t>(size) <= max_tokens) continue;
    return BadRequest(
        absl::StrCat("nacre.resume.choices[", i, "] has ", size,
                     " token ids, at most max_tokens, ", max_tokens),
        "nacre");
  }
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> BearerOf(const HttpRequest& request,
                                 std::string* token) {
  const bool given = std::any_of(
      request.headers.begin(), request.headers.end(),
      [](const auto& header) { return header.first == "authorization"; });
  if (!given) return std::nullopt;
  const std::string* const value = request.Find("authorization");
  constexpr absl::string_view kScheme = "bearer";
  if (value != nullptr && absl::StartsWithIgnoreCase(*value, kScheme)) {
    const absl::string_view rest =
        absl::string_view(*value).substr(kScheme.size());
    const std::string shown(absl::StripAsciiWhitespace(rest));
    // As of lm-eval without a key: it shows none.
    if (shown.empty()) return std::nullopt;
    if (rest.front() == ' ' && IsVisibleAscii(shown)) {
      *token = shown;
      return std::nullopt;
    }
  }
  return ErrorOf(absl::UnauthenticatedError(
      "the Authorization header is not one \"Bearer TOKEN\""));
}

std::optional<ApiError> GatewayService::CheckClient(
    const HttpRequest& request, const rpc::BearerTokens* tokens,
    CallHeaders* headers) {
  // Without tokens of ours it may be a proxy's own, which the proxy passes on.
  auto error = BearerOf(request, &headers->token);
  if (error.has_value() && tokens != nullptr) return error;
  const std::string* const trace = request.Find("traceparent");
  if (trace != nullptr && trace->size() <= kMaxTraceparentBytes &&
      IsVisibleAscii(*trace)) {
    headers->traceparent = *trace;
  }
  if (tokens == nullptr) return std::nullopt;
  if (headers->token.empty()) {
    return ErrorOf(absl::UnauthenticatedError(
        "an \"Authorization: Bearer TOKEN\" header is needed"));
  }
  if (!tokens->Find(headers->token).has_value()) {
    return ErrorOf(absl::UnauthenticatedError("the token is not accepted"));
  }
  return std::nullopt;
}

void GatewayService::Handle(HttpRequest request,
                            const std::shared_ptr<HttpReply>& reply) {
  for (const Route& route : kRoutes) {
    if (request.path == route.path) {
      return Dispatch(route, std::move(request), reply);
    }
  }
  // What has a name after its path.
  for (const auto& [prefix, endpoint] :
       {std::pair(kModelsPrefix, Endpoint::kModels),
        std::pair(kPagePrefix, Endpoint::kPage)}) {
    if (!absl::StartsWith(request.path, prefix)) continue;
    const auto* const route =
        std::find_if(std::begin(kRoutes), std::end(kRoutes),
                     [endpoint = endpoint](const Route& r) {
                       return r.endpoint == endpoint;
                     });
    return Dispatch(*route, std::move(request), reply);
  }
  if (request.path == "*") {  // what the server as a whole can do
    return reply->Send(200, {{"Allow", "GET, HEAD, POST, OPTIONS"}}, "");
  }
  SendError(UnknownPath(request), reply.get());
}

void GatewayService::Dispatch(const Route& route, HttpRequest request,
                              const std::shared_ptr<HttpReply>& reply) {
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (route.is_post ? request.method != "POST" : !reads) {
    return SendWrongMethod(route, reply.get());
  }
  CallHeaders headers;
  std::optional<ApiError> error;
  if (!route.is_open) {
    error =
        CheckClient(request,
                    route.endpoint == Endpoint::kFleet ? options_.admin_tokens
                                                       : options_.tokens,
                    &headers);
  }
  if (!error && route.is_post) error = CheckContentType(request);
  if (error) return SendError(*error, reply.get());
  switch (route.endpoint) {
    case Endpoint::kModels:
      return SendModels(request.path, reply.get());
    case Endpoint::kTokenizerInfo:
      return SendTokenizerInfo(reply.get());
    case Endpoint::kHealth:
      return SendHealth(reply.get());
    case Endpoint::kVersion:
      return SendJson({{"version", telemetry::GetBuildInfo().version}},
                      reply.get());
    case Endpoint::kFleet:
      return SendFleet(request, headers, reply);
    case Endpoint::kPage:
      return SendPage(request, reply.get());
    case Endpoint::kTokenize:
      return Work([this, request = std::move(
                             request)] { return ReadTokenize(request); },
                  reply);
    case Endpoint::kDetokenize:
      return Work([this, request = std::move(
                             request)] { return ReadDetokenize(request); },
                  reply);
    case Endpoint::kChat:
    case Endpoint::kCompletions:
      break;
  }
  const bool is_chat = route.endpoint == Endpoint::kChat;
  Work(
      [this, is_chat, headers,
       request = std::make_shared<HttpRequest>(std::move(request))] {
        return ReadCompletion(is_chat, *request, headers);
      },
      reply);
}

void GatewayService::Work(std::function<Answer()> read,
                          const std::shared_ptr<HttpReply>& reply) {
  EventLoop* const loop = options_.loop;
  const auto gone = std::make_shared<std::atomic<bool>>(false);
  reply->OnGone([gone] { *gone = true; });
  const bool taken = loop->PostWork(
      [loop, gone, read = std::move(read), reply = reply]() mutable {
        if (*gone) return loop->Post([reply = std::move(reply)] {});
        // Bodies go before the answer comes.
        Answer answer = std::exchange(read, nullptr)();
        loop->Post([answer = std::move(answer), reply = std::move(reply)] {
          answer(reply);
        });
      });
  if (!taken) {
    SendError(ErrorOf(absl::ResourceExhaustedError(
                  "too many requests wait in the queue to be read")),
              reply.get());
  }
}

std::vector<std::string> GatewayService::ModelNames(
    const ServedModel& served) const {
  std::vector<std::string> names;
  for (const std::string& name : options_.served_names) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      names.push_back(name);
    }
  }
  return names.empty() ? served.names : names;
}

std::string GatewayService::ModelName(const ServedModel& served) const {
  return ModelNames(served).front();
}

std::optional<ApiError> GatewayService::CheckModel(
    const std::string& name, const ServedModel& served) const {
  const std::vector<std::string> names = ModelNames(served);
  if (name.empty() ||
      std::find(names.begin(), names.end(), name) != names.end()) {
    return std::nullopt;
  }
  const std::vector<std::string>& away = served.away_names;
  if (options_.served_names.empty() &&
      std::find(away.begin(), away.end(), name) != away.end()) {
    return ErrorOf(absl::UnavailableError(absl::StrCat(
        "model ", Quoted(name),
        " is not served now: the coordinators that have it do not answer")));
  }
  return ErrorOf(absl::NotFoundError(absl::StrCat("model ", Quoted(name),
                                                  " is not served; \"",
                                                  ModelName(served), "\" is")));
}

std::optional<ApiError> GatewayService::EncodePrompt(
    const Prompt& prompt, const ApiRequest& request, int context_length,
    std::vector<uint32_t>* ids) const {
  if (const auto* given = std::get_if<std::vector<uint32_t>>(&prompt)) {
    *ids = *given;
    return std::nullopt;
  }
  const auto encoded = options_.tokenizer->Encode(
      std::get<std::string>(prompt),
      {.add_special_tokens = request.add_special_tokens,
       .max_ids = static_cast<size_t>(context_length),
       .user_text = request.user_text});
  if (absl::IsOutOfRange(encoded.status())) {
    return PromptExceedsContext(context_length);
  }
  if (!encoded.ok()) return ErrorOf(encoded.status());
  ids->assign(encoded->begin(), encoded->end());
  return std::nullopt;
}

std::optional<ApiError> GatewayService::RenderChat(ApiRequest* request) const {
  // A resumed answer has its prompt.
  if (!request->resumption.prompt.empty()) return std::nullopt;
  if (request->chat_template.has_value() &&
      !options_.trusts_request_templates) {
    return Unsupported(
        "chat_template is only taken with --trust-request-chat-template of "
        "nacre-gateway",
        "chat_template");
  }
  const auto render = [&](OrderedJson messages) {
    return options_.chats->Render(
        {.messages = std::move(messages),
         .tools = request->tools,
         .documents = request->documents,
         .values = request->template_values.named,
         .add_generation_prompt =
             request->template_values.add_generation_prompt,
         .own_template = request->chat_template});
  };
  auto rendered = render(std::move(request->messages));
  // Some templates join the arguments of calls as the texts that they were.
  if (!rendered.ok() && !request->sent_messages.is_null()) {
    auto as_sent = render(std::move(request->sent_messages));
    if (as_sent.ok()) rendered = std::move(as_sent);
  }
  request->messages = nullptr;
  request->sent_messages = nullptr;
  if (!rendered.ok()) {
    // Whatever the template says, the request is at fault.
    return BadRequest(
        std::string(rendered.status().message()),
        request->chat_template.has_value() ? "chat_template" : "messages");
  }
  request->prompts.emplace_back(std::move(rendered->text));
  if (options_.escapes_special_tokens) {
    for (const chat::TextRange& range : rendered->user_text) {
      request->user_text.push_back({range.begin, range.end});
    }
  }
  return std::nullopt;
}

uint32_t GatewayService::UnsaidMaxTokens(const ApiRequest& request,
                                         const v1::Model& model,
                                         int64_t prompt_tokens) const {
  const int64_t least = request.generate.stop().min_tokens();
  int64_t most = model.context_length() - prompt_tokens;
  int64_t wanted = std::max<int64_t>(kDefaultCompletionTokens, least);
  if (request.is_chat) {
    // The service reserves KV for all of it: more than any target has would be
    // refused, though its client asked for nothing like it.
    // Of several choices each has its part, so that they run together.
    const auto kv = static_cast<int64_t>(model.kv_capacity_tokens()) /
                    std::max(1, request.n);
    if (kv > prompt_tokens) {
      most = std::min(most, std::max(kv - prompt_tokens, least));
    }
    // It goes on as long as the model wants, unless the operator says else.
    wanted = options_.default_max_tokens == 0
                 ? most
                 : std::max<int64_t>(options_.default_max_tokens, least);
  }
  return static_cast<uint32_t>(std::min(wanted, most));
}

std::optional<ApiError> GatewayService::PromptsOf(
    const ApiRequest& request, const v1::Model& model,
    std::vector<CompletionStream::PromptIds>* prompts) const {
  const auto context = static_cast<int>(model.context_length());
  const std::vector<Prompt> resumed = {request.resumption.prompt};
  for (const Prompt& prompt :
       request.resumption.prompt.empty() ? request.prompts : resumed) {
    CompletionStream::PromptIds ids;
    if (auto error = EncodePrompt(prompt, request, context, &ids.ids)) {
      return error;
    }
    if (ids.ids.empty()) {
      return BadRequest("the prompt is empty: it has no token", "prompt");
    }
    const auto size = static_cast<int64_t>(ids.ids.size());
    // Where the prompt alone is asked for, the service still generates one.
    const int64_t wanted = std::max(1u, request.max_tokens.value_or(1));
    if (size + wanted > context) return ContextExceeded(context, size, wanted);
    ids.max_tokens = request.max_tokens.has_value()
                         ? static_cast<uint32_t>(wanted)
                         : UnsaidMaxTokens(request, model, size);
    if (auto error = CheckResumedIds(request, ids.max_tokens)) return error;
    prompts->push_back(std::move(ids));
  }
  return std::nullopt;
}

GatewayService::Answer GatewayService::ReadCompletion(
    bool is_chat, const HttpRequest& request,
    const CallHeaders& headers) const {
  OrderedJson body;
  if (auto error = ParseBody(request.body, &body)) return Refused(*error);
  const auto order = std::make_shared<CompletionStream::Order>();
  ApiRequest& asked = order->request;
  if (auto error = is_chat
                       ? ConvertChat(body, options_.defaults, &asked)
                       : ConvertCompletion(body, options_.defaults, &asked)) {
    return Refused(*error);
  }
  const absl::StatusOr<ServedModel> served = options_.client->model();
  if (!served.ok()) return Refused(ErrorOf(served.status()));
  if (auto error = CheckModel(asked.model, *served)) return Refused(*error);
  if (is_chat) {
    if (auto error = RenderChat(&asked)) return Refused(*error);
  }
  if (auto error = PromptsOf(asked, served->model, &order->prompts)) {
    return Refused(*error);
  }
  const std::string name = RandomHex();
  if (asked.generate.request_id().empty()) {
    // Unique, and to be found in the service's logs by the client's id.
    asked.generate.set_request_id(absl::StrCat(request.id, "-", name));
  }
  order->head = {absl::StrCat(is_chat ? "chatcmpl-" : "cmpl-", name),
                 ModelName(*served), served->model.fingerprint(),
                 absl::ToUnixSeconds(absl::Now())};
  order->headers = headers;
  for (const std::string& field : asked.ignored) {
    options_.metrics->CountIgnored(field);
  }
  if (std::string ignored = IgnoredHeader(asked.ignored); !ignored.empty()) {
    order->reply_headers.emplace_back("X-Nacre-Ignored", std::move(ignored));
  }
  return [this, order](const std::shared_ptr<HttpReply>& reply) {
    std::make_shared<CompletionStream>(options_.loop, options_.client,
                                       options_.tokenizer, options_.ping_period,
                                       std::move(*order), reply)
        ->Start();
  };
}

std::optional<ApiError> GatewayService::ReadBody(const HttpRequest& request,
                                                 OrderedJson* body,
                                                 ServedModel* served) const {
  if (auto error = ParseBody(request.body, body)) return error;
  absl::StatusOr<ServedModel> model = options_.client->model();
  if (!model.ok()) return ErrorOf(model.status());
  *served = *std::move(model);
  return std::nullopt;
}

GatewayService::Answer GatewayService::ReadTokenize(
    const HttpRequest& request) const {
  OrderedJson body;
  ServedModel served;
  if (auto error = ReadBody(request, &body, &served)) return Refused(*error);
  const v1::Model& model = served.model;
  FieldReader reader(body);
  const std::string name = reader.Text("model", 1024).value_or("");
  const bool names_tokens = reader.BoolOr("return_token_strs", false);
  ApiRequest asked;
  const bool is_chat = reader.Find("messages") != nullptr;
  if (is_chat) {
    if (auto error = ConvertChat(body, {}, &asked)) return Refused(*error);
    if (asked.generate.has_resume()) {
      return Refused(Unsupported(
          "nacre.resume is not taken here: it has its token ids", "nacre"));
    }
    if (auto error = RenderChat(&asked)) return Refused(*error);
  } else if (reader.Find("prompt") == nullptr) {
    reader.Fail(BadRequest("prompt is missing", "prompt"));
  } else {
    asked.prompts.emplace_back(reader.Text("prompt").value_or(""));
  }
  asked.add_special_tokens = reader.BoolOr("add_special_tokens", !is_chat);
  if (reader.error()) return Refused(*reader.error());
  if (auto error = CheckModel(name, served)) return Refused(*error);
  const auto context = static_cast<int>(model.context_length());
  std::vector<uint32_t> ids;
  if (auto error = EncodePrompt(asked.prompts.front(), asked, context, &ids)) {
    return Refused(*error);
  }
  OrderedJson answer = {
      {"count", ids.size()}, {"max_model_len", context}, {"tokens", ids}};
  if (names_tokens) {
    OrderedJson names = OrderedJson::array();
    for (const uint32_t id : ids) {
      names.push_back(
          std::string(options_.tokenizer->IdToPiece(static_cast<int32_t>(id))));
    }
    answer["token_strs"] = std::move(names);
  }
  return [answer](const auto& reply) { SendJson(answer, reply.get()); };
}

GatewayService::Answer GatewayService::ReadDetokenize(
    const HttpRequest& request) const {
  OrderedJson body;
  ServedModel served;
  if (auto error = ReadBody(request, &body, &served)) return Refused(*error);
  const v1::Model& model = served.model;
  FieldReader reader(body);
  const std::string name = reader.Text("model", 1024).value_or("");
  if (reader.Find("tokens") == nullptr) {
    reader.Fail(BadRequest("tokens is missing", "tokens"));
  }
  const std::vector<uint32_t> ids =
      reader.Ids("tokens", model.context_length());
  if (reader.error()) return Refused(*reader.error());
  if (auto error = CheckModel(name, served)) return Refused(*error);
  // A tokenizer may know more tokens than its model, and the other way round.
  const uint32_t size =
      std::max(model.vocab_size(),
               static_cast<uint32_t>(options_.tokenizer->vocab_size()));
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < size) continue;
    return Refused(
        BadRequest(absl::StrCat("tokens: token id ", ids[i], " at index ", i,
                                " is outside the vocabulary of ", size),
                   "tokens"));
  }
  const std::string text =
      options_.tokenizer->Decode(std::vector<int32_t>(ids.begin(), ids.end()),
                                 /*skip_special_tokens=*/false);
  return [text](const auto& reply) {
    SendJson({{"prompt", text}}, reply.get());
  };
}

void GatewayService::SendModels(const std::string& path,
                                HttpReply* reply) const {
  absl::string_view name = path;
  // A name may have a '/', which clients write as %2F.
  const bool one = absl::ConsumePrefix(&name, kModelsPrefix) && !name.empty();
  std::string wanted;
  if (one && !PercentDecode(name, &wanted)) {
    return SendError(BadRequest(absl::StrCat("the path ", Quoted(path),
                                             " has a '%' without two "
                                             "hexadecimal digits")),
                     reply);
  }
  const absl::StatusOr<ServedModel> served = options_.client->model();
  if (!served.ok()) return SendError(ErrorOf(served.status()), reply);
  if (one) {
    if (auto error = CheckModel(wanted, *served)) {
      return SendError(*error, reply);
    }
  }
  if (one) return SendJson(ModelJson(wanted, *served), reply);
  OrderedJson all = OrderedJson::array();
  for (const std::string& each : ModelNames(*served)) {
    all.push_back(ModelJson(each, *served));
  }
  SendJson({{"object", "list"}, {"data", std::move(all)}}, reply);
}

void GatewayService::SendTokenizerInfo(HttpReply* reply) const {
  const tokenizer::Tokenizer& tokenizer = *options_.tokenizer;
  const auto piece = [&](std::optional<int32_t> id) {
    return id.has_value() ? OrderedJson(std::string(tokenizer.IdToPiece(*id)))
                          : OrderedJson();
  };
  const std::string& source = options_.chats->source();
  SendJson(
      {{"bos_token", piece(tokenizer.bos_id())},
       {"eos_token", piece(tokenizer.eos_id())},
       {"vocab_size", tokenizer.vocab_size()},
       {"chat_template", source.empty() ? OrderedJson() : OrderedJson(source)}},
      reply);
}

void GatewayService::SendPage(const HttpRequest& request,
                              HttpReply* reply) const {
  const UiFile* const file =
      options_.serves_page ? FindUiFile(request.path) : nullptr;
  if (file == nullptr) return SendError(UnknownPath(request), reply);
  reply->Send(200, UiHeaders(*file),
              std::string(file->content.data(), file->content.size()));
}

void GatewayService::SendFleet(const HttpRequest& request,
                               const CallHeaders& headers,
                               const std::shared_ptr<HttpReply>& reply) const {
  if (options_.fleet == nullptr) {
    ApiError error = UnknownPath(request);
    error.message = "the fleet is not shown: nacre-gateway has no --admin";
    error.code = "fleet_not_shown";
    return SendError(error, reply.get());
  }
  const auto answer = [reply](const std::vector<CoordinatorView>& views) {
    if (const auto refused = FleetRefused(views)) {
      return SendError(*refused, reply.get());
    }
    reply->Send(
        200,
        {{"Content-Type", "application/json"}, {"Cache-Control", "no-store"}},
        Dump(FleetOf(views)));
  };
  if (options_.fleet->Ask(headers.token, answer)) return;
  ApiError error;
  error.status = 503;
  error.type = "service_unavailable_error";
  error.message = absl::StrCat(FleetClient::kMaxOpen,
                               " questions for the fleet wait already");
  error.retry_after_s = 1;
  SendError(error, reply.get());
}

void GatewayService::SendHealth(HttpReply* reply) const {
  const absl::Status health = options_.client->health();
  if (health.ok()) return SendJson({{"status", "ok"}}, reply);
  SendError(ErrorOf(health), reply);
}

}  // namespace nacre::gateway
