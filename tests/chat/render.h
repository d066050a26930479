// Short ways to render a template in a test.

#ifndef TESTS_CHAT_RENDER_H_
#define TESTS_CHAT_RENDER_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "chat/chat_template.h"
#include "common/json.h"

namespace nacre::chat {

// Of one user's message "hi" and these further variables.
inline absl::StatusOr<std::string> RenderSource(std::string_view source,
                                                std::string_view extra = "{}",
                                                Limits limits = {}) {
  Options options;
  options.bos_token = "<s>";
  options.eos_token = "</s>";
  options.limits = limits;
  const auto parsed = ChatTemplate::Parse(source, options);
  if (!parsed.ok()) return parsed.status();
  RenderOptions render;
  render.extra = nlohmann::ordered_json::parse(extra);
  return parsed->Render(
      nlohmann::ordered_json::parse(R"([{"role": "user", "content": "hi"}])"),
      render);
}

// The text, or the error in brackets.
inline std::string Shown(std::string_view source,
                         std::string_view extra = "{}") {
  const auto text = RenderSource(source, extra);
  return text.ok() ? *text : "[" + text.status().ToString() + "]";
}

}  // namespace nacre::chat

#endif  // TESTS_CHAT_RENDER_H_
