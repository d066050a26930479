// From the messages of a chat to the text of a prompt: finds the model's chat
// template and renders with it.
//
// Immutable after Load and thread-safe.

#ifndef GATEWAY_CHAT_PROMPT_H_
#define GATEWAY_CHAT_PROMPT_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "chat/load_chat_template.h"
#include "gateway/json_body.h"
#include "tokenizer/tokenizer.h"

namespace nacre::gateway {

class ChatPrompts {
 public:
  struct Chat {
    OrderedJson messages;
    OrderedJson tools;      // null: none
    OrderedJson documents;  // null: none
    OrderedJson values;     // an object: further variables of the template
    bool add_generation_prompt = true;
    // The request's own template, in place of the model's.
    std::optional<std::string> own_template;
  };

  // chat::LoadChatTemplates', with the tokenizer's ids for the tokens that no
  // file names. No template is no error.
  static absl::StatusOr<ChatPrompts> Load(
      const chat::TemplateFiles& files, const tokenizer::Tokenizer& tokenizer);

  // The prompt's text; to be encoded without adding special tokens. Errors:
  // - FAILED_PRECONDITION: there is no template.
  // - INVALID_ARGUMENT: the template refuses the messages, or the request's own
  //   is none.
  // - RESOURCE_EXHAUSTED: over a limit of templates.
  // - UNIMPLEMENTED: what it uses is not supported.
  absl::StatusOr<chat::RenderedPrompt> Render(const Chat& chat) const;

  // The template; empty where there is none.
  std::string source() const;

 private:
  ChatPrompts(
      std::shared_ptr<const std::optional<chat::ChatTemplates>> templates,
      chat::Options options);

  std::shared_ptr<const std::optional<chat::ChatTemplates>> templates_;
  chat::Options options_;  // of requests' own templates
};

}  // namespace nacre::gateway

#endif  // GATEWAY_CHAT_PROMPT_H_
