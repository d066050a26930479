// Twelve shapes of templates on many conversations, as jinja2 renders them
// (tests/data/chat/make_goldens.py).

#include <gtest/gtest.h>

#include <string>

#include "chat/chat_template.h"
#include "common/files.h"
#include "common/json.h"

namespace nacre::chat {
namespace {

using Ordered = nlohmann::ordered_json;

const std::string& DataFolder() {
  static const std::string folder = std::string(NACRE_TEST_DATA) + "/chat/";
  return folder;
}

class Goldens : public testing::Test {
 protected:
  void SetUp() override {
    const auto text = ReadFile(DataFolder() + "goldens.json");
    ASSERT_TRUE(text.ok()) << text.status();
    file_ = Ordered::parse(*text);
  }

  absl::StatusOr<std::string> Render(const Ordered& golden) {
    const auto source = ReadFile(DataFolder() + "templates/" +
                                 golden["template"].get<std::string>());
    if (!source.ok()) return source.status();
    Options options;
    options.bos_token = "<s>";
    options.eos_token = "</s>";
    const auto parsed = ChatTemplate::Parse(*source, options);
    if (!parsed.ok()) return parsed.status();
    const Ordered& conversation =
        file_["conversations"][golden["conversation"].get<std::string>()];
    RenderOptions render;
    render.add_generation_prompt = conversation.value("agp", true);
    if (conversation.contains("tools")) render.tools = conversation["tools"];
    if (conversation.contains("extra")) render.extra = conversation["extra"];
    // reference.py's NOW.
    render.now = absl::FromUnixMicros(1772694489123456);
    return parsed->Render(conversation["messages"], render);
  }

  Ordered file_;
};

// The error is of the golden's kind; raise_exception's message is equal too.
bool SameKind(const absl::Status& status, const Ordered& golden) {
  std::string wanted = golden["error"].get<std::string>() + ": ";
  if (wanted == "raised: ") {
    wanted = "the template refuses: " + golden["message"].get<std::string>();
  }
  return status.code() == absl::StatusCode::kInvalidArgument &&
         std::string(status.message()).find(wanted) != std::string::npos;
}

TEST_F(Goldens, TextsAreEqual) {
  int texts = 0;
  for (const Ordered& golden : file_["goldens"]) {
    if (!golden.contains("text")) continue;
    const auto text = Render(golden);
    ASSERT_TRUE(text.ok()) << golden["template"] << golden["conversation"]
                           << text.status();
    EXPECT_EQ(*text, golden["text"].get<std::string>())
        << golden["template"] << golden["conversation"];
    ++texts;
  }
  EXPECT_GT(texts, 150);
}

TEST_F(Goldens, ErrorsAreOfOneKind) {
  int errors = 0;
  for (const Ordered& golden : file_["goldens"]) {
    if (!golden.contains("error")) continue;
    const auto text = Render(golden);
    ASSERT_FALSE(text.ok()) << golden["template"] << golden["conversation"];
    EXPECT_TRUE(SameKind(text.status(), golden))
        << golden["template"] << golden["conversation"] << text.status();
    ++errors;
  }
  EXPECT_GT(errors, 40);
}

TEST_F(Goldens, EachConstruct) {
  int constructs = 0;
  for (const Ordered& golden : file_["constructs"]) {
    const auto source = golden["template"].get<std::string>();
    Options options;
    options.bos_token = "<s>";
    options.eos_token = "</s>";
    const auto parsed = ChatTemplate::Parse(source, options);
    ASSERT_TRUE(parsed.ok()) << source << parsed.status();
    RenderOptions render;
    render.now = absl::FromUnixMicros(1772694489123456);
    const auto text = parsed->Render(
        Ordered::parse(R"([{"role": "user", "content": "hi"}])"), render);
    ++constructs;
    if (golden.contains("text")) {
      ASSERT_TRUE(text.ok()) << source << text.status();
      EXPECT_EQ(*text, golden["text"].get<std::string>()) << source;
      continue;
    }
    ASSERT_FALSE(text.ok()) << source << *text;
    EXPECT_TRUE(SameKind(text.status(), golden))
        << source << text.status() << golden["message"];
  }
  EXPECT_GT(constructs, 90);
}

}  // namespace
}  // namespace nacre::chat
