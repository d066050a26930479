// Renders templates for tests/data/chat/fuzz_templates.py: a JSON object a line
// in (`template`, `messages`, and `tools`, `extra`, `agp` if given), one out
// (`text`, or `error`, or `parse`).

#include <iostream>
#include <string>

#include "chat/chat_template.h"
#include "common/json.h"

namespace {

using LineJson = nlohmann::ordered_json;

LineJson RenderLine(const LineJson& line) {
  nacre::chat::Options options;
  options.bos_token = "<s>";
  options.eos_token = "</s>";
  const auto parsed = nacre::chat::ChatTemplate::Parse(
      line["template"].get<std::string>(), options);
  if (!parsed.ok()) return {{"parse", parsed.status().ToString()}};
  nacre::chat::RenderOptions render;
  render.add_generation_prompt = line.value("agp", true);
  // reference.py's NOW.
  render.now = absl::FromUnixMicros(1772694489123456);
  if (line.contains("tools")) render.tools = line["tools"];
  if (line.contains("extra")) render.extra = line["extra"];
  const auto text = parsed->Render(line["messages"], render);
  if (!text.ok()) return {{"error", text.status().ToString()}};
  return {{"text", *text}};
}

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::cout << RenderLine(LineJson::parse(line)).dump() << std::endl;
  }
  return 0;
}
