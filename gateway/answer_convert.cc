#include "gateway/answer_convert.h"

#include <openssl/sha.h>

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/token_logprobs.h"
#include "gateway/resume_convert.h"
#include "gateway/token_text.h"
#include "gateway/trace_convert.h"
#include "telemetry/build_info.h"

namespace nacre::gateway {
namespace {

using Logprobs = google::protobuf::RepeatedPtrField<v1::TokenLogprobs>;

const char* FinishName(const v1::Complete& complete) {
  return complete.finish_reason() == v1::FINISH_REASON_LENGTH ? "length"
                                                              : "stop";
}

// vLLM's: the stop string or the stop token; null for the end of the sequence
// and for the length.
OrderedJson StopReasonOf(const v1::Complete& complete, uint32_t last_token) {
  if (complete.finish_reason() != v1::FINISH_REASON_STOP) return nullptr;
  if (!complete.stop_match().empty()) return complete.stop_match();
  return last_token;
}

int64_t CountCharacters(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  });
}

OrderedJson BytesOf(const std::string& bytes) {
  OrderedJson list = OrderedJson::array();
  for (const char byte : bytes)
    list.push_back(static_cast<unsigned char>(byte));
  return list;
}

std::string FingerprintOf(const std::string& model,
                          const std::string& numerics_id) {
  const std::string text = absl::StrCat(model, "\n", numerics_id);
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(),
         digest);
  const std::string hex = absl::BytesToHexString(
      absl::string_view(reinterpret_cast<char*>(digest), sizeof(digest)));
  return absl::StrCat("nacre-", telemetry::GetBuildInfo().version, "-",
                      hex.substr(0, 8));
}

template <typename Ids>
OrderedJson IdList(const Ids& ids) {
  OrderedJson list = OrderedJson::array();
  for (const uint32_t id : ids) list.push_back(id);
  return list;
}

}  // namespace

AnswerFormat::AnswerFormat(const ApiRequest* request,
                           const tokenizer::Tokenizer* tokenizer,
                           AnswerHead head,
                           std::vector<std::vector<uint32_t>> prompt_ids)
    : request_(request),
      tokenizer_(tokenizer),
      head_(std::move(head)),
      system_fingerprint_(FingerprintOf(head_.fingerprint, "")),
      prompt_ids_(std::move(prompt_ids)),
      states_(prompt_ids_.size() * static_cast<size_t>(request->n)) {
  if (request->generate.has_resume()) Restore();
}

void AnswerFormat::Restore() {
  const v1::Resume& resume = request_->generate.resume();
  SetNumericsId(resume.numerics_id());
  for (size_t i = 0; i < states_.size(); ++i) {
    const auto& ids = resume.choices(static_cast<int>(i)).token_ids();
    if (ids.empty()) continue;
    State& state = states_[i];
    state.completion_tokens = ids.size();
    state.last_token = *ids.rbegin();
    // Its first event with text had the prompt's.
    state.echoed = true;
    if (!request_->answer.wants_logprobs || request_->is_chat) continue;
    const auto pass = [&](uint32_t id) {
      state.text_offset += CountCharacters(TokenName(id));
    };
    if (request_->answer.echo) {
      std::for_each(prompt_ids_[0].begin(), prompt_ids_[0].end(), pass);
    }
    std::for_each(ids.begin(), ids.end(), pass);
  }
}

void AnswerFormat::SetStart(const v1::Start& start) {
  // The gateway's own resume of a call has another: the client has the first.
  if (std::exchange(has_start_, true)) return;
  // What a coordinator said of its model before may be of another one.
  if (!start.model_fingerprint().empty()) {
    head_.fingerprint = start.model_fingerprint();
    SetNumericsId(start.numerics_id());
  }
  if (request_->resumption.offered) start_ = StartJson(start, prompt_ids_[0]);
}

void AnswerFormat::SetNumericsId(const std::string& numerics_id) {
  system_fingerprint_ = FingerprintOf(head_.fingerprint, numerics_id);
  head_text_.clear();
}

OrderedJson AnswerFormat::HeadJson(const char* object) const {
  return {{"id", head_.id},
          {"object", object},
          {"created", head_.created},
          {"model", head_.model},
          {"system_fingerprint", system_fingerprint_}};
}

std::string AnswerFormat::EchoText(size_t choice) const {
  if (!request_->answer.echo) return "";
  const size_t prompt = choice / static_cast<size_t>(request_->n);
  if (const auto* text = std::get_if<std::string>(&request_->prompts[prompt])) {
    return *text;
  }
  const std::vector<uint32_t>& ids = prompt_ids_[prompt];
  return tokenizer_->Decode(std::vector<int32_t>(ids.begin(), ids.end()));
}

std::string AnswerFormat::TokenName(uint32_t id) const {
  return request_->answer.tokens_as_ids ? absl::StrCat("token_id:", id)
                                        : TextOf(*tokenizer_, id).text;
}

OrderedJson AnswerFormat::ChatToken(uint32_t id, float logprob) const {
  return {{"token", TokenName(id)},
          {"logprob", logprob},
          {"bytes", BytesOf(TextOf(*tokenizer_, id).bytes)}};
}

OrderedJson AnswerFormat::ChatLogprobs(const Logprobs& tokens) const {
  OrderedJson content = OrderedJson::array();
  for (const v1::TokenLogprobs& token : tokens) {
    OrderedJson entry = ChatToken(token.token_id(), token.logprob());
    OrderedJson top = OrderedJson::array();
    for (int i = 0; i < token.top_ids_size(); ++i) {
      top.push_back(ChatToken(token.top_ids(i), token.top_logprobs(i)));
    }
    entry["top_logprobs"] = std::move(top);
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

struct AnswerFormat::Legacy {
  OrderedJson names = OrderedJson::array();
  OrderedJson values = OrderedJson::array();
  OrderedJson tops = OrderedJson::array();
  OrderedJson offsets = OrderedJson::array();

  void Add(const std::string& name, OrderedJson value, OrderedJson top,
           State* state) {
    names.push_back(name);
    values.push_back(std::move(value));
    tops.push_back(std::move(top));
    offsets.push_back(state->text_offset);
    state->text_offset += CountCharacters(name);
  }
};

void AnswerFormat::AddLegacy(const Logprobs& tokens, int most, State* state,
                             Legacy* to) const {
  for (const v1::TokenLogprobs& token : tokens) {
    OrderedJson top = OrderedJson::object();
    const auto add = [&](uint32_t id, float logprob) {
      std::string key = TokenName(id);
      // Halves of characters look alike.
      if (top.contains(key)) key = absl::StrCat("token_id:", id);
      top[key] = logprob;
    };
    bool has_drawn = false;
    for (int i = 0; i < std::min(most, token.top_ids_size()); ++i) {
      has_drawn = has_drawn || token.top_ids(i) == token.token_id();
      add(token.top_ids(i), token.top_logprobs(i));
    }
    // Readers look for the drawn token there.
    if (!has_drawn) add(token.token_id(), token.logprob());
    to->Add(TokenName(token.token_id()), token.logprob(), std::move(top),
            state);
  }
}

template <typename Answer>
OrderedJson AnswerFormat::LogprobsOf(size_t choice, const Answer& answer) {
  if (!request_->answer.wants_logprobs) return nullptr;
  if (request_->is_chat) return ChatLogprobs(answer.logprobs());
  State& state = states_[choice];
  Legacy legacy;
  if (request_->answer.echo && !std::exchange(state.echoed, true)) {
    // Nothing comes before the first, which so has no probability.
    const auto& ids = prompt_ids_[choice / static_cast<size_t>(request_->n)];
    if (!ids.empty()) {
      legacy.Add(TokenName(ids.front()), nullptr, nullptr, &state);
    }
    // There may be more, for prompt_logprobs.
    AddLegacy(answer.prompt_logprobs(),
              static_cast<int>(request_->generate.output().logprobs()), &state,
              &legacy);
  }
  AddLegacy(answer.logprobs(), kMaxTopLogprobs, &state, &legacy);
  return {{"tokens", std::move(legacy.names)},
          {"token_logprobs", std::move(legacy.values)},
          {"top_logprobs", std::move(legacy.tops)},
          {"text_offset", std::move(legacy.offsets)}};
}

OrderedJson AnswerFormat::PromptLogprobs(size_t prompt,
                                         const v1::Complete& complete) const {
  OrderedJson list = OrderedJson::array();
  if (!prompt_ids_[prompt].empty()) list.push_back(nullptr);
  for (const v1::TokenLogprobs& token : complete.prompt_logprobs()) {
    OrderedJson entry = OrderedJson::object();
    const auto add = [&](uint32_t id, float logprob, OrderedJson rank) {
      entry[absl::StrCat(id)] = {
          {"logprob", logprob},
          {"rank", std::move(rank)},
          {"decoded_token", TextOf(*tokenizer_, id).text}};
    };
    // Its rank is not known where it is none of the likeliest.
    add(token.token_id(), token.logprob(), nullptr);
    const int most =
        std::min(*request_->answer.prompt_logprobs, token.top_ids_size());
    for (int i = 0; i < most; ++i) {
      add(token.top_ids(i), token.top_logprobs(i), i + 1);
    }
    list.push_back(std::move(entry));
  }
  return list;
}

std::string AnswerFormat::Whole(const std::vector<Choices>& prompts) {
  OrderedJson choices = OrderedJson::array();
  const bool is_chat = request_->is_chat;
  for (size_t prompt = 0; prompt < prompts.size(); ++prompt) {
    for (const v1::Complete& complete : prompts[prompt]) {
      SetNumericsId(complete.numerics_id());
      const size_t index = choices.size();
      OrderedJson choice = {{"index", index}};
      if (is_chat) {
        choice["message"] = {{"role", "assistant"},
                             {"content", complete.text()},
                             {"refusal", nullptr}};
      } else {
        choice["text"] = absl::StrCat(EchoText(index), complete.text());
      }
      choice["logprobs"] = LogprobsOf(index, complete);
      choice["finish_reason"] = FinishName(complete);
      const auto& ids = complete.token_ids();
      choice["stop_reason"] =
          StopReasonOf(complete, ids.empty() ? 0 : *ids.rbegin());
      if (request_->answer.return_token_ids) {
        choice["token_ids"] = IdList(complete.token_ids());
        choice["prompt_token_ids"] = IdList(prompt_ids_[prompt]);
      }
      if (request_->answer.prompt_logprobs && !is_chat) {
        choice["prompt_logprobs"] = PromptLogprobs(prompt, complete);
      }
      choices.push_back(std::move(choice));
    }
  }
  OrderedJson body = HeadJson(is_chat ? "chat.completion" : "text_completion");
  body["choices"] = std::move(choices);
  if (request_->answer.prompt_logprobs && is_chat) {
    body["prompt_logprobs"] = PromptLogprobs(0, prompts.at(0).at(0));
  }
  body["usage"] = UsageOf(prompts, request_->answer.spec_stats);
  body["metrics"] = MetricsOf(prompts, request_->answer.spec_stats);
  return Dump(body);
}

OrderedJson AnswerFormat::RunningUsage() const {
  int64_t prompt = 0;
  for (const auto& ids : prompt_ids_) {
    prompt += static_cast<int64_t>(ids.size());
  }
  int64_t completion = 0;
  for (const State& state : states_) completion += state.completion_tokens;
  return UsageOf(prompt, 0, completion);
}

const std::string& AnswerFormat::HeadText() {
  if (head_text_.empty()) {
    head_text_ = Dump(HeadJson(request_->is_chat ? "chat.completion.chunk"
                                                 : "text_completion"));
    head_text_.pop_back();  // the closing brace: more fields follow
  }
  return head_text_;
}

std::string AnswerFormat::Event(absl::string_view choice) {
  std::string event = absl::StrCat(HeadText(), ",\"choices\":[", choice, "]");
  if (request_->answer.usage.continuous) {
    absl::StrAppend(&event, ",\"usage\":", Dump(RunningUsage()));
  } else if (request_->answer.usage.included) {
    absl::StrAppend(&event, ",\"usage\":null");
  }
  if (!start_.is_null()) {
    absl::StrAppend(&event, ",\"nacre\":",
                    Dump({{"start", std::exchange(start_, nullptr)}}));
  }
  absl::StrAppend(&event, "}");
  return event;
}

std::string AnswerFormat::First(size_t choice) {
  OrderedJson json = {{"index", choice}};
  if (request_->is_chat) {
    json["delta"] = {{"role", "assistant"}, {"content", ""}};
  } else {
    // With log-probabilities it is echoed when these have come.
    const bool is_resumed = request_->generate.has_resume();
    const std::string echo =
        request_->EchoesLogprobs() || is_resumed ? "" : EchoText(choice);
    if (echo.empty() && !request_->answer.return_token_ids) return "";
    json["text"] = echo;
  }
  json["logprobs"] = nullptr;
  json["finish_reason"] = nullptr;
  if (request_->answer.return_token_ids) {
    json["prompt_token_ids"] =
        IdList(prompt_ids_[choice / static_cast<size_t>(request_->n)]);
  }
  return Event(Dump(json));
}

// As text and not as a tree: this is what the gateway does for each token.
std::string AnswerFormat::Piece(size_t choice, const v1::Chunk& chunk) {
  State& state = states_[choice];
  state.completion_tokens += chunk.token_ids_size();
  if (!chunk.token_ids().empty())
    state.last_token = *chunk.token_ids().rbegin();
  if (chunk.text().empty() && !request_->answer.wants_logprobs &&
      !request_->answer.return_token_ids && !chunk.has_trace()) {
    return "";
  }
  std::string json = absl::StrCat(
      "{\"index\":", choice,
      request_->is_chat ? ",\"delta\":{\"content\":" : ",\"text\":");
  if (!request_->is_chat && request_->EchoesLogprobs() && !state.echoed) {
    AppendJsonText(absl::StrCat(EchoText(choice), chunk.text()), &json);
  } else {
    AppendJsonText(chunk.text(), &json);
  }
  absl::StrAppend(&json, request_->is_chat ? "}" : "", ",\"logprobs\":",
                  request_->answer.wants_logprobs
                      ? Dump(LogprobsOf(choice, chunk))
                      : "null",
                  ",\"finish_reason\":null");
  if (request_->answer.return_token_ids) {
    absl::StrAppend(&json, ",\"token_ids\":", Dump(IdList(chunk.token_ids())));
  }
  if (chunk.has_trace()) {
    absl::StrAppend(&json, ",\"nacre\":", Dump(TraceOf(chunk)));
  }
  absl::StrAppend(&json, "}");
  return Event(json);
}

std::string AnswerFormat::Last(size_t choice, const v1::Complete& complete) {
  states_[choice].completion_tokens = complete.usage().completion_tokens();
  OrderedJson json = {{"index", choice}};
  if (request_->is_chat) {
    json["delta"] = OrderedJson::object();
  } else {
    json["text"] = "";
  }
  json["logprobs"] = nullptr;
  json["finish_reason"] = FinishName(complete);
  json["stop_reason"] = StopReasonOf(complete, states_[choice].last_token);
  if (complete.trace_size() > 0) json["nacre"] = TraceOf(complete);
  return Event(Dump(json));
}

std::string AnswerFormat::Usage(const std::vector<Choices>& prompts) const {
  OrderedJson event =
      HeadJson(request_->is_chat ? "chat.completion.chunk" : "text_completion");
  event["choices"] = OrderedJson::array();
  event["usage"] = UsageOf(prompts, request_->answer.spec_stats);
  event["metrics"] = MetricsOf(prompts, request_->answer.spec_stats);
  return Dump(event);
}

}  // namespace nacre::gateway
