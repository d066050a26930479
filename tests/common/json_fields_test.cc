#include "common/json_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace nacre {
namespace {

std::string ErrorOf(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(JsonFieldsTest, TextIsAsciiWhateverTheBytes) {
  EXPECT_EQ(JsonText({{"a", {1, nullptr, "\xc3\xa9"}}}),
            R"({"a":[1,null,"\u00e9"]})");
  EXPECT_EQ(JsonText("\xff"), R"("\ufffd")");
}

TEST(ParseJsonObjectTest, NamesWhatIsNone) {
  EXPECT_EQ((*ParseJsonObject(R"({"a":1})", "x.json"))["a"], 1);
  EXPECT_EQ(ErrorOf(ParseJsonObject("{", "x.json").status()),
            "x.json is not valid JSON (1 bytes)");
  EXPECT_EQ(ErrorOf(ParseJsonObject("[]", "x.json").status()),
            "x.json is array, expected an object");
}

// Objects and arrays by turns, with strings that look like more.
std::string Nested(int depth) {
  std::string begin = R"({"x":)";
  std::string end = "}";
  for (int i = 1; i < depth; ++i) {
    begin += i % 2 == 0 ? R"({"a}}":)" : "[0,";
    end += i % 2 == 0 ? '}' : ']';
  }
  std::reverse(end.begin(), end.end());
  return begin + R"("[[\"{[\\")" + end;
}

TEST(ParseJsonObjectTest, LimitsTheDepth) {
  for (const int depth : {1, 2, kMaxJsonDepth}) {
    const auto parsed = ParseJsonObject(Nested(depth), "x.json");
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(ParseOrderedObject(Nested(depth))->dump(), Nested(depth));
  }
  for (const int depth : {kMaxJsonDepth + 1, 200'000}) {
    const std::string text = Nested(depth);
    EXPECT_EQ(ErrorOf(ParseJsonObject(text, "x.json").status()),
              "x.json is nested deeper than 64");
    EXPECT_EQ(ErrorOf(ParseJsonObject(text).status()),
              "JSON is nested deeper than 64");
    EXPECT_EQ(ErrorOf(ParseOrderedObject(text).status()),
              "JSON is nested deeper than 64");
  }
  EXPECT_EQ(ErrorOf(ParseJsonObject("\"" + std::string(100, '[')).status()),
            "not a JSON object");
}

TEST(JsonFieldsTest, AbsentAndNullAreAlike) {
  const Json object = {{"null", nullptr}, {"text", "t"}, {"on", true}};
  EXPECT_EQ(FindField(object, "none"), nullptr);
  EXPECT_EQ(FindField(object, "null"), nullptr);
  EXPECT_EQ(*StringField(object, "text", "p"), "t");
  EXPECT_EQ(*StringFieldOr(object, "null", "other", "p"), "other");
  EXPECT_EQ(*StringFieldOr(object, "text", "other", "p"), "t");
  EXPECT_TRUE(*BoolFieldOr(object, "on", false, "p"));
  EXPECT_TRUE(*BoolFieldOr(object, "none", true, "p"));
  EXPECT_FALSE(OptionalBoolField(object, "none", "p")->has_value());
}

TEST(JsonFieldsTest, ErrorsNameThePath) {
  const Json object = {{"number", 3}};
  EXPECT_EQ(ErrorOf(StringField(object, "none", "p").status()),
            "p.none is missing");
  EXPECT_EQ(ErrorOf(StringField(object, "number", "p").status()),
            "p.number is number, expected a string");
  EXPECT_EQ(ErrorOf(BoolFieldOr(object, "number", false, "p").status()),
            "p.number is number, expected a boolean");
}

TEST(JsonFieldsTest, NumbersHaveALimit) {
  EXPECT_EQ(*NumberUpTo("x", 2.5, 2.5), 2.5);
  EXPECT_EQ(*WholeNumberUpTo("x", 7u, 7), 7);
  for (const Json& value : {Json(2.6), Json(-1), Json("2"), Json()}) {
    EXPECT_EQ(ErrorOf(NumberUpTo("x", value, 2.5).status()),
              "\"x\" is " + value.dump() + ", not a number in [0, 2.5]");
  }
  for (const Json& value : {Json(8u), Json(-1), Json(2.5), Json()}) {
    EXPECT_EQ(ErrorOf(WholeNumberUpTo("x", value, 7).status()),
              "\"x\" is " + value.dump() + ", not a whole number in [0, 7]");
  }
}

TEST(KeysInOrderTest, AreThoseOfOneObject) {
  const auto keys = [](const char* text) { return KeysInOrder(text, "x"); };
  EXPECT_THAT(
      keys(R"({"a": {"n": 1}, "x": {"z": {"x": {"m": 1}}, "b": [{"o": 2}],
                      "a": 1}, "b": {"p": 1}})"),
      ::testing::ElementsAre("z", "b", "a"));
  EXPECT_THAT(keys(R"({"x": {"b": 1, "a": 1, "b": 2}})"),
              ::testing::ElementsAre("b", "a", "b"));
  for (const char* none :
       {"{", "[]", "{}", R"({"x": [{"a": 1}]})", R"({"x": 1, "y": {"a": 1}})",
        R"([{"x": {"a": 1}}])", R"({"x": {"a": 1})"}) {
    EXPECT_THAT(keys(none), ::testing::IsEmpty()) << none;
  }
}

}  // namespace
}  // namespace nacre
