// Bytes as a template; what parses renders a conversation. The first byte
// chooses tight or normal limits.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "chat/chat_template.h"
#include "common/check.h"
#include "common/json.h"

namespace {

constexpr char kMessages[] = R"([
  {"role": "system", "content": " Be <|good|>. "},
  {"role": "user", "content": [{"type": "text", "text": "h\u00e9"}]},
  {"role": "assistant", "content": null,
   "tool_calls": [{"function": {"name": "f", "arguments": {"x": [1, 2.5]}}}]}])";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  static const auto messages = nlohmann::ordered_json::parse(kMessages);
  nacre::chat::Options options;
  options.bos_token = "<s>";
  options.limits.steps = data[0] % 2 == 0 ? 500 : 50'000;
  options.limits.output_bytes = data[0] % 4 < 2 ? 100 : 1 << 20;
  const std::string_view source(reinterpret_cast<const char*>(data) + 1,
                                size - 1);
  const auto parsed = nacre::chat::ChatTemplate::Parse(source, options);
  if (!parsed.ok()) return 0;
  const auto prompt = parsed->RenderMarked(messages);
  if (!prompt.ok()) return 0;
  NACRE_CHECK(prompt->text.size() <= options.limits.output_bytes,
              "the prompt is over its limit");
  size_t done = 0;
  for (const nacre::chat::TextRange& range : prompt->user_text) {
    NACRE_CHECK(done <= range.begin && range.begin < range.end &&
                    range.end <= prompt->text.size(),
                "the user's ranges are out of order");
    done = range.end;
  }
  return 0;
}
