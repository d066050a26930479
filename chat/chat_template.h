// A chat template: the Jinja program of a model that turns a conversation into
// the text of a prompt. The language is the part of Jinja2 that published
// templates use, in the environment of transformers 5.23: trim_blocks,
// lstrip_blocks, an immutable sandbox (docs/chat_templates.md lists it). What
// is not supported is refused by Parse, never guessed.
//
// Immutable after Parse and safe to use from any number of threads. Copies
// share the program.

#ifndef CHAT_CHAT_TEMPLATE_H_
#define CHAT_CHAT_TEMPLATE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/json.h"

namespace nacre::chat {

// What one template and one Render may use at most.
struct Limits {
  size_t source_bytes = size_t{1} << 20;
  // Nested blocks and expressions; nested macro calls and recursive loops.
  int depth = 100;
  // Evaluated nodes, items and pieces of 64 bytes of built texts.
  int64_t steps = 1'000'000;
  // Of the result, and of any text on the way to it.
  size_t output_bytes = size_t{16} << 20;
};

struct Options {
  // Empty: undefined in the template, which prints as nothing.
  std::string bos_token;
  std::string eos_token;
  // Further named tokens ("pad_token"): variables of these names.
  std::map<std::string, std::string> special_tokens;
  Limits limits;
};

struct RenderOptions {
  // End with the beginning of the assistant's message.
  bool add_generation_prompt = true;
  // Lists, or null where the request has none.
  nlohmann::ordered_json tools;
  nlohmann::ordered_json documents;
  // An object: further variables of the template (`enable_thinking`). They
  // replace special tokens of the same name, as in transformers, but not
  // `messages`, `tools`, `documents` and `add_generation_prompt`.
  nlohmann::ordered_json extra = nlohmann::ordered_json::object();
  // What `strftime_now` shows.
  absl::Time now = absl::UnixEpoch();
  absl::TimeZone time_zone = absl::UTCTimeZone();
};

// Bytes [begin, end) of a text.
struct TextRange {
  size_t begin = 0;
  size_t end = 0;
  bool operator==(const TextRange&) const = default;
};

struct RenderedPrompt {
  std::string text;
  // Where the text comes from messages, tools, documents or extra variables,
  // not from the template: sorted, disjoint, not adjacent, not empty. To keep
  // the user from writing special tokens, a tokenizer reads a special token
  // whose first or last byte is in a range as letters. One whose ends are the
  // template's is the template's ("<|" + role + "|>").
  std::vector<TextRange> user_text;
};

struct Program;

class ChatTemplate {
 public:
  using Options = chat::Options;
  using RenderOptions = chat::RenderOptions;

  // INVALID_ARGUMENT: `source` is no template, or no UTF-8. UNIMPLEMENTED: it
  // uses what is not supported. RESOURCE_EXHAUSTED: it is over a limit.
  // Messages say the line and the name.
  static absl::StatusOr<ChatTemplate> Parse(std::string_view source,
                                            Options options = {});

  // The text of a prompt; encode it without adding special tokens. `messages`
  // is a list of objects. INVALID_ARGUMENT: it is not, or the template refuses
  // it (raise_exception, with its message), or uses a value as Python does not
  // allow. RESOURCE_EXHAUSTED: a limit is reached. UNIMPLEMENTED: a value is
  // used in a way that is not supported.
  absl::StatusOr<std::string> Render(const nlohmann::ordered_json& messages,
                                     const RenderOptions& options = {}) const;

  // Render, and which parts are the user's.
  absl::StatusOr<RenderedPrompt> RenderMarked(
      const nlohmann::ordered_json& messages,
      const RenderOptions& options = {}) const;

 private:
  ChatTemplate(std::shared_ptr<const Program> program, Options options)
      : program_(std::move(program)), options_(std::move(options)) {}

  std::shared_ptr<const Program> program_;
  Options options_;
};

}  // namespace nacre::chat

#endif  // CHAT_CHAT_TEMPLATE_H_
