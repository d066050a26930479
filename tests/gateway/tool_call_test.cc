// Chats with calls of tools as OpenAI's clients send them, as templates show
// them: the goldens of tests/data/chat.

#include <gtest/gtest.h>

#include <string>

#include "chat/chat_template.h"
#include "common/files.h"
#include "gateway/request_convert.h"
#include "tests/gateway/gateway_fixture.h"

namespace nacre::gateway {
namespace {

constexpr char kFolder[] = NACRE_TEST_DATA "/chat/";

// The message, its arguments sent as JSON in strings.
OrderedJson AsRead(OrderedJson message) {
  for (OrderedJson& call : message["tool_calls"]) {
    OrderedJson& arguments = call["function"]["arguments"];
    arguments = arguments.dump();
  }
  ApiRequest request;
  const auto error = ConvertChat(
      {{"messages", OrderedJson::array({std::move(message)})}}, {}, &request);
  EXPECT_FALSE(error) << error->message;
  return request.messages[0];
}

TEST(ToolCallTest, ArgumentsInStringsAreShownAsTheObjectsTheyAre) {
  const auto text = ReadFile(std::string(kFolder) + "goldens.json");
  ASSERT_TRUE(text.ok()) << text.status();
  const OrderedJson file = OrderedJson::parse(*text);
  int with_calls = 0;
  for (const OrderedJson& golden : file["goldens"]) {
    OrderedJson conversation =
        file["conversations"][golden["conversation"].get<std::string>()];
    bool has_calls = false;
    for (OrderedJson& message : conversation["messages"]) {
      if (!message.contains("tool_calls")) continue;
      has_calls = true;
      message = AsRead(message);
    }
    if (!has_calls || golden.contains("error")) continue;
    ++with_calls;
    const std::string name = golden["template"].get<std::string>();
    const auto source = ReadFile(std::string(kFolder) + "templates/" + name);
    ASSERT_TRUE(source.ok()) << source.status();
    chat::Options options;
    options.bos_token = "<s>";
    options.eos_token = "</s>";
    const auto parsed = chat::ChatTemplate::Parse(*source, options);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    chat::RenderOptions render;
    render.add_generation_prompt = conversation.value("agp", true);
    if (conversation.contains("tools")) render.tools = conversation["tools"];
    // reference.py's NOW.
    render.now = absl::FromUnixMicros(1772694489123456);
    const auto shown = parsed->Render(conversation["messages"], render);
    ASSERT_TRUE(shown.ok()) << name << ": " << shown.status();
    EXPECT_EQ(*shown, golden["text"].get<std::string>()) << name;
  }
  EXPECT_GT(with_calls, 5);
}

TEST(ToolCallTest, ArgumentsThatWereNeverMadeAreEmpty) {
  const OrderedJson message = OrderedJson::parse(
      R"({"role": "assistant", "content": "", "tool_calls": [
          {"function": {"name": "f", "arguments": "null"}}]})");
  ApiRequest request;
  const auto error =
      ConvertChat({{"messages", OrderedJson::array({message})}}, {}, &request);
  ASSERT_FALSE(error) << error->message;
  EXPECT_EQ(request.messages[0]["tool_calls"][0]["function"]["arguments"],
            OrderedJson::object());
}

class ToolCallServiceTest : public GatewayServiceTest {};

// Some templates join them as texts.
TEST_F(ToolCallServiceTest, ATemplateMayTakeArgumentsAsTheyWereSent) {
  chat_template_ =
      "{% for m in messages %}{{ 'x' + "
      "m.tool_calls[0].function.arguments }}{% endfor %}";
  AddCoordinator([](auto*, const auto&, auto* writer) {
    writer->Write(FakeCoordinator::Complete("t", 0));
    return grpc::Status::OK;
  });
  StartGateway();
  const std::string answer =
      PostJson("/v1/chat/completions",
               R"({"messages":[{"role":"assistant","content":"","tool_calls":[)"
               R"({"function":{"name":"f","arguments":"{\"a\": 1}"}}]}]})");
  EXPECT_EQ(StatusOf(answer), 200) << answer;
}

}  // namespace
}  // namespace nacre::gateway
