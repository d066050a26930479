#include "chat/chat_template.h"

#include <limits>
#include <utility>

#include "chat/ast.h"
#include "chat/concat.h"
#include "chat/evaluator.h"
#include "chat/parser.h"
#include "chat/render_context.h"
#include "chat/value.h"
#include "common/status_macros.h"

namespace nacre::chat {
namespace {

using OrderedJson = nlohmann::ordered_json;

// The user's text, as all strings of a request are.
absl::StatusOr<Value> UserText(RenderContext& context,
                               const OrderedJson& json) {
  const auto& text = json.get_ref<const std::string&>();
  if (FindBadUtf8(text) != std::string_view::npos) {
    return absl::InvalidArgumentError("a text of the request is no UTF-8");
  }
  return context.String(text, /*user=*/true);
}

absl::StatusOr<Value> FromJson(RenderContext& context,
                               const OrderedJson& json) {
  const Nested nested(context);
  NACRE_RETURN_IF_ERROR(nested.status());
  NACRE_RETURN_IF_ERROR(context.Charge(1));
  switch (json.type()) {
    case OrderedJson::value_t::null:
      return Value();
    case OrderedJson::value_t::boolean:
      return Value(json.get<bool>());
    case OrderedJson::value_t::number_integer:
      return Value(json.get<int64_t>());
    case OrderedJson::value_t::number_unsigned: {
      const uint64_t number = json.get<uint64_t>();
      constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
      if (number > static_cast<uint64_t>(kMost)) {
        return absl::InvalidArgumentError(
            Concat("the number ", number, " is over ", kMost));
      }
      return Value(static_cast<int64_t>(number));
    }
    case OrderedJson::value_t::number_float:
      return Value(json.get<double>());
    case OrderedJson::value_t::string:
      return UserText(context, json);
    case OrderedJson::value_t::array: {
      std::vector<Value> items;
      for (const OrderedJson& item : json) {
        NACRE_ASSIGN_OR_RETURN(const Value value, FromJson(context, item));
        items.push_back(value);
      }
      return context.NewList(Kind::kList, std::move(items));
    }
    case OrderedJson::value_t::object: {
      Dict* dict = context.New<Dict>();
      for (const auto& [key, item] : json.items()) {
        NACRE_ASSIGN_OR_RETURN(const Value name,
                               UserText(context, OrderedJson(key)));
        NACRE_ASSIGN_OR_RETURN(const Value value, FromJson(context, item));
        dict->Set(DictKeyOfName(key), name, value);
      }
      return Value(static_cast<const Dict*>(dict));
    }
    default:
      return absl::InvalidArgumentError("a request holds binary JSON");
  }
}

absl::Status CheckMessages(const OrderedJson& messages) {
  if (!messages.is_array()) {
    return absl::InvalidArgumentError(
        Concat("messages is a ", messages.type_name(), ", expected a list"));
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].is_object()) continue;
    return absl::InvalidArgumentError(Concat("messages[", i, "] is a ",
                                             messages[i].type_name(),
                                             ", expected an object"));
  }
  return absl::OkStatus();
}

// The variables of a render. Their names live in `options` and in literals.
absl::Status SetVariables(RenderContext& context, const OrderedJson& messages,
                          const Options& options, const RenderOptions& render,
                          Scope* scope) {
  const auto token = [&](std::string_view name,
                         const std::string& text) -> absl::Status {
    if (text.empty()) return absl::OkStatus();
    NACRE_ASSIGN_OR_RETURN(const Value value, context.String(text));
    scope->Set(name, value);
    return absl::OkStatus();
  };
  for (const auto& [name, text] : options.special_tokens) {
    NACRE_RETURN_IF_ERROR(token(name, text));
  }
  NACRE_RETURN_IF_ERROR(token("bos_token", options.bos_token));
  NACRE_RETURN_IF_ERROR(token("eos_token", options.eos_token));
  const auto json = [&](std::string_view name,
                        const OrderedJson& given) -> absl::Status {
    NACRE_ASSIGN_OR_RETURN(const Value value, FromJson(context, given));
    scope->Set(name, value);
    return absl::OkStatus();
  };
  if (!render.extra.is_object() && !render.extra.is_null()) {
    return absl::InvalidArgumentError(Concat("the template's variables are a ",
                                             render.extra.type_name(),
                                             ", expected an object"));
  }
  for (const auto& item : render.extra.items()) {
    // A copy of the name that lives as long as the render.
    NACRE_ASSIGN_OR_RETURN(const Value name, context.String(item.key()));
    NACRE_RETURN_IF_ERROR(json(name.text().bytes, item.value()));
  }
  NACRE_RETURN_IF_ERROR(json("messages", messages));
  NACRE_RETURN_IF_ERROR(json("tools", render.tools));
  NACRE_RETURN_IF_ERROR(json("documents", render.documents));
  scope->Set("add_generation_prompt", Value(render.add_generation_prompt));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ChatTemplate> ChatTemplate::Parse(std::string_view source,
                                                 Options options) {
  auto program = ParseProgram(source, options.limits);
  if (!program.ok()) {
    return absl::Status(program.status().code(),
                        Concat("chat template: ", program.status().message()));
  }
  return ChatTemplate(*std::move(program), std::move(options));
}

absl::StatusOr<std::string> ChatTemplate::Render(
    const nlohmann::ordered_json& messages,
    const RenderOptions& options) const {
  NACRE_ASSIGN_OR_RETURN(RenderedPrompt prompt,
                         RenderMarked(messages, options));
  return std::move(prompt.text);
}

absl::StatusOr<RenderedPrompt> ChatTemplate::RenderMarked(
    const nlohmann::ordered_json& messages,
    const RenderOptions& options) const {
  NACRE_RETURN_IF_ERROR(CheckMessages(messages));
  RenderContext context(options_.limits, options.now, options.time_zone);
  Scope globals;
  NACRE_RETURN_IF_ERROR(
      SetVariables(context, messages, options_, options, &globals));
  Evaluator evaluator(context, &globals);
  TextBuilder out = context.NewText();
  if (const absl::Status status = evaluator.Run(*program_, &out);
      !status.ok()) {
    return absl::Status(status.code(),
                        Concat("chat template, line ", evaluator.line(), ": ",
                               status.message()));
  }
  RenderedPrompt prompt;
  prompt.text = out.TakeBytes();
  prompt.user_text = out.TakeUser();
  return prompt;
}

}  // namespace nacre::chat
