#include "gateway/chat_prompt.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "chat/chat_template.h"
#include "common/status_macros.h"

namespace nacre::gateway {

ChatPrompts::ChatPrompts(
    std::shared_ptr<const std::optional<chat::ChatTemplates>> templates,
    chat::Options options)
    : templates_(std::move(templates)), options_(std::move(options)) {}

std::string ChatPrompts::source() const {
  return templates_->has_value() ? (*templates_)->source() : "";
}

absl::StatusOr<ChatPrompts> ChatPrompts::Load(
    const chat::TemplateFiles& files, const tokenizer::Tokenizer& tokenizer) {
  chat::Options options;
  if (const auto id = tokenizer.bos_id()) {
    options.bos_token = std::string(tokenizer.IdToPiece(*id));
  }
  if (const auto id = tokenizer.eos_id()) {
    options.eos_token = std::string(tokenizer.IdToPiece(*id));
  }
  NACRE_ASSIGN_OR_RETURN(options,
                         chat::LoadNamedTokens(files, std::move(options)));
  NACRE_ASSIGN_OR_RETURN(auto templates,
                         chat::LoadChatTemplates(files, options));
  return ChatPrompts(std::make_shared<const std::optional<chat::ChatTemplates>>(
                         std::move(templates)),
                     std::move(options));
}

absl::StatusOr<chat::RenderedPrompt> ChatPrompts::Render(
    const Chat& chat) const {
  const bool has_tools = !chat.tools.is_null() && !chat.tools.empty();
  chat::RenderOptions options;
  options.add_generation_prompt = chat.add_generation_prompt;
  if (has_tools) options.tools = chat.tools;
  options.documents = chat.documents;
  options.extra = chat.values;
  options.now = absl::Now();
  const auto render = [&](const chat::ChatTemplate& used,
                          const std::string& text) {
    if (absl::StrContains(text, "developer")) {
      return used.RenderMarked(chat.messages, options);
    }
    OrderedJson messages = chat.messages;
    for (OrderedJson& message : messages) {
      if (message["role"] == "developer") message["role"] = "system";
    }
    return used.RenderMarked(messages, options);
  };
  if (chat.own_template.has_value()) {
    NACRE_ASSIGN_OR_RETURN(
        const chat::ChatTemplate own,
        chat::ChatTemplate::Parse(*chat.own_template, options_));
    return render(own, *chat.own_template);
  }
  if (!templates_->has_value()) {
    return absl::FailedPreconditionError(
        "the model has no chat template: give one with --chat-template");
  }
  return render((*templates_)->For(has_tools), source());
}

}  // namespace nacre::gateway
