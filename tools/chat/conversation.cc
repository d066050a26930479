#include "tools/chat/conversation.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace nacre::tools {
namespace {

gateway::OrderedJson Message(const char* role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}

}  // namespace

absl::StatusOr<std::string> Conversation::PromptFor(
    const std::string& message) const {
  if (!has_template()) return absl::StrCat(text_, message);
  gateway::ChatPrompts::Chat chat;
  chat.messages = messages_;
  chat.messages.push_back(Message("user", message));
  chat.values = gateway::OrderedJson::object();
  NACRE_ASSIGN_OR_RETURN(chat::RenderedPrompt prompt, prompts_->Render(chat));
  return std::move(prompt.text);
}

void Conversation::Add(const std::string& message, const std::string& answer) {
  messages_.push_back(Message("user", message));
  messages_.push_back(Message("assistant", answer));
  absl::StrAppend(&text_, message, answer);
}

void Conversation::Reset() {
  messages_ = gateway::OrderedJson::array();
  text_.clear();
}

}  // namespace nacre::tools
