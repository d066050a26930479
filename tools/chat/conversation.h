// What has been said in a chat, and the prompt that asks for the next answer.
//
// Not thread-safe.

#ifndef TOOLS_CHAT_CONVERSATION_H_
#define TOOLS_CHAT_CONVERSATION_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "gateway/chat_prompt.h"

namespace nacre::tools {

class Conversation {
 public:
  // Without a template, or with `prompts` that have none, the model goes on
  // with the text of all messages.
  explicit Conversation(std::optional<gateway::ChatPrompts> prompts)
      : prompts_(std::move(prompts)) {}

  bool has_template() const {
    return prompts_.has_value() && !prompts_->source().empty();
  }

  // The prompt of `message` after what was said before. With a template it
  // names its special tokens itself. Errors: ChatPrompts::Render's.
  absl::StatusOr<std::string> PromptFor(const std::string& message) const;

  // What was answered to it, all of it or as much as came.
  void Add(const std::string& message, const std::string& answer);
  void Reset();

 private:
  const std::optional<gateway::ChatPrompts> prompts_;
  gateway::OrderedJson messages_ = gateway::OrderedJson::array();
  std::string text_;  // of all messages
};

}  // namespace nacre::tools

#endif  // TOOLS_CHAT_CONVERSATION_H_
