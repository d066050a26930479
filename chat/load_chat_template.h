// Finds a model folder's chat template and the tokens that it prints.

#ifndef CHAT_LOAD_CHAT_TEMPLATE_H_
#define CHAT_LOAD_CHAT_TEMPLATE_H_

#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "chat/chat_template.h"

namespace nacre::chat {

// The templates of one model. Immutable and safe to use from any thread.
class ChatTemplates {
 public:
  ChatTemplates(std::string source, ChatTemplate plain,
                std::optional<ChatTemplate> with_tools)
      : source_(std::move(source)),
        plain_(std::move(plain)),
        with_tools_(std::move(with_tools)) {}

  // The template for a request with or without tools.
  const ChatTemplate& For(bool has_tools) const {
    return has_tools && with_tools_.has_value() ? *with_tools_ : plain_;
  }

  // The text of the one for requests without tools.
  const std::string& source() const { return source_; }

 private:
  std::string source_;
  ChatTemplate plain_;
  std::optional<ChatTemplate> with_tools_;
};

struct TemplateFiles {
  std::string model_dir;
  std::string file;              // the template itself; empty: look further
  std::string tokenizer_config;  // empty: tokenizer_config.json of the folder
};

// `options` with the named tokens of tokenizer_config.json, else of
// special_tokens_map.json, else its own.
// Errors: as LoadChatTemplates, of these files.
absl::StatusOr<Options> LoadNamedTokens(const TemplateFiles& files,
                                        Options options = {});

// Reads the first of:
// - `file`;
// - chat_template.jinja of the folder;
// - `chat_template` of tokenizer_config.json: a text, or a list of {"name",
//   "template"}. Of a list it takes "default", and "tool_use" for requests with
//   tools;
// - tokenizer.chat_template of a GGUF file in place of the folder.
// Named tokens are LoadNamedTokens'. Nothing: there is no template. NOT_FOUND:
// a file that `files` names is not there. INVALID_ARGUMENT or UNIMPLEMENTED: a
// file is malformed, or the template is not supported. Messages name the file.
absl::StatusOr<std::optional<ChatTemplates>> LoadChatTemplates(
    const TemplateFiles& files, Options options = {});

}  // namespace nacre::chat

#endif  // CHAT_LOAD_CHAT_TEMPLATE_H_
