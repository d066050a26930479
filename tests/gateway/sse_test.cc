#include "gateway/sse.h"

#include <gtest/gtest.h>

#include <string>

#include "gateway/json_body.h"

namespace nacre::gateway {
namespace {

TEST(SseTest, DataOfSeveralLinesIsOneEvent) {
  EXPECT_EQ(SseEvent("a"), "data: a\n\n");
  EXPECT_EQ(SseEvent(""), "data: \n\n");
  EXPECT_EQ(SseEvent("a\n\nb"), "data: a\ndata: \ndata: b\n\n");
  EXPECT_EQ(SseEvent("a\r\nb\rc\n"), "data: a\ndata: b\ndata: c\ndata: \n\n");
}

// Nothing that a model writes ends an event.
TEST(SseTest, AwkwardTextComesThroughJson) {
  for (const std::string& text :
       {std::string("\n\ndata: [DONE]\n\n"), std::string("\r\n\r\n"),
        std::string("a\0b", 3), std::string("\xE2\x80\xA8\xE2\x80\xA9"),
        std::string("\xF0\x9F\x98\x80 \"\\ \x7f"), std::string(100000, '\n')}) {
    const std::string event = SseEvent(Dump({{"text", text}}));
    ASSERT_EQ(event.find('\n'), event.size() - 2);
    EXPECT_EQ(OrderedJson::parse(event.substr(6))["text"], text);
  }
}

}  // namespace
}  // namespace nacre::gateway
