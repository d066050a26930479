#include "tools/simulate/match_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace nacre::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ParseMatchTracesTest, ReadsMatchesAndLengths) {
  const auto traces = ParseMatchTraces("t.jsonl", R"({"matches": [1, 0, true]}

{"id": 7, "accepted_lengths": [2, 0, 1]}
)");
  ASSERT_TRUE(traces.ok()) << traces.status();
  ASSERT_EQ(traces->size(), 2);
  EXPECT_THAT(*(*traces)[0], ElementsAre(true, false, true));
  EXPECT_THAT(*(*traces)[1],
              ElementsAre(true, true, false, false, true, false));
}

TEST(MatchTraceLineTest, IsReadBack) {
  const std::string line = MatchTraceLine("p\n0", {true, false, false});
  EXPECT_EQ(line, R"({"id":"p\n0","matches":[1,0,0]})");
  const auto traces = ParseMatchTraces("t.jsonl", line + "\n" + line + "\n");
  ASSERT_TRUE(traces.ok()) << traces.status();
  ASSERT_EQ(traces->size(), 2);
  EXPECT_THAT(*(*traces)[1], ElementsAre(true, false, false));
}

TEST(ParseMatchTracesTest, RefusesBadLines) {
  const auto error = [](const char* text) {
    return std::string(ParseMatchTraces("t.jsonl", text).status().message());
  };
  EXPECT_THAT(error("\n"), HasSubstr("t.jsonl has no line"));
  EXPECT_THAT(error("{\"matches\": [1]}\n[1]"),
              HasSubstr("t.jsonl:2: not a JSON object"));
  EXPECT_THAT(error("{\"prompt\": \"x\"}"), HasSubstr("needs one of"));
  EXPECT_THAT(error(R"({"matches": [1], "accepted_lengths": [1]})"),
              HasSubstr("needs one of"));
  EXPECT_THAT(error(R"({"matches": []})"), HasSubstr("not an array"));
  EXPECT_THAT(error(R"({"matches": 1})"), HasSubstr("not an array"));
  EXPECT_THAT(error(R"({"matches": [1, 2]})"),
              HasSubstr("\"matches\": entry 2 is 2, not in 0..1"));
  EXPECT_THAT(error(R"({"matches": [0.5]})"), HasSubstr("is 0.5, not in 0..1"));
  EXPECT_THAT(error(R"({"accepted_lengths": [-1]})"),
              HasSubstr("entry 1 is -1, not in 0..1000000"));
  EXPECT_THAT(error(R"({"accepted_lengths": [1000001]})"),
              HasSubstr("is 1000001, not in 0..1000000"));
  std::string many = "{\"accepted_lengths\": [";
  for (int i = 0; i < 10; ++i) many += "1000000,";
  EXPECT_THAT(error((many + "1]}").c_str()),
              HasSubstr("more than 10000000 tokens"));
}

}  // namespace
}  // namespace nacre::tools
