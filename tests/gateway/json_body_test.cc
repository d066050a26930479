#include "gateway/json_body.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace nacre::gateway {
namespace {

// The error's message; empty: the text passes.
std::string ErrorOfText(const std::string& text) {
  OrderedJson object;
  const auto error = ParseBody(text, &object);
  if (!error) return "";
  EXPECT_EQ(error->status, 400);
  return error->message;
}

// {"k0": 0, ...}, names filled up with `fill`.
std::string ObjectOf(int keys, const std::string& fill = "") {
  std::string text = "{";
  for (int i = 0; i < keys; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ",", "\"", fill, i, "\":0");
  }
  return text + "}";
}

std::string ListOf(int count, const std::string& item) {
  std::string text = R"({"x":[)";
  for (int i = 0; i < count; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ",", item);
  }
  return text + "]}";
}

TEST(JsonBodyTest, KeepsTheOrderOfKeysAndTheLastOfTwo) {
  OrderedJson object;
  ASSERT_FALSE(
      ParseBody(R"({"b": [1, -2, 0.5, null, true, "\u00e4"], "a": 1, "a": {}})",
                &object));
  EXPECT_EQ(Dump(object), "{\"b\":[1,-2,0.5,null,true,\"\xC3\xA4\"],\"a\":{}}");
}

TEST(JsonBodyTest, ErrorsNameThePlace) {
  EXPECT_EQ(ErrorOfText(R"({"prompt": "a", )"),
            "the body is not valid JSON at byte 16 of 16");
  EXPECT_EQ(ErrorOfText("{\"a\":\"\xff\"}"),
            "the body is not valid JSON at byte 7 of 9");
  EXPECT_EQ(ErrorOfText("{} x"), "the body is not valid JSON at byte 4 of 4");
  EXPECT_EQ(ErrorOfText(""), "the body is empty, expected an object");
  EXPECT_EQ(ErrorOfText(" \r\n"), "the body is empty, expected an object");
  // The library would stop there.
  const std::string object = R"({"a":1})";
  EXPECT_EQ(ErrorOfText(object + std::string("\0 x", 3)),
            "the body is not valid JSON at byte 8 of 10");
  EXPECT_EQ(ErrorOfText(object + std::string(1, '\0')),
            "the body is not valid JSON at byte 8 of 8");
  EXPECT_EQ(ErrorOfText("[1]"), "the body is array, expected an object");
  EXPECT_EQ(ErrorOfText(R"({"a": 1e999})"),
            "the body has a number that JSON cannot hold");
}

TEST(JsonBodyTest, IsNestedAtMost64Deep) {
  const auto nested = [](int lists) {
    return absl::StrCat("{\"x\":", std::string(lists, '['),
                        std::string(lists, ']'), "}");
  };
  EXPECT_EQ(ErrorOfText(nested(63)), "");
  EXPECT_EQ(ErrorOfText(nested(64)),
            "the body's JSON is nested deeper than 64");
  // Depth is what is open, not what has been.
  EXPECT_EQ(ErrorOfText(ListOf(1000, "[{}]")), "");
}

TEST(JsonBodyTest, AnObjectHasAtMost1024Keys) {
  std::string keys = R"({"prompt": "a", "x": {"y": {"z": 1})";
  for (int i = 1; i < 1024; ++i) absl::StrAppend(&keys, ",\"k", i, "\":{}");
  EXPECT_EQ(ErrorOfText(keys + "}}"), "");
  EXPECT_EQ(ErrorOfText(keys + ",\"one\":1}}"),
            "an object of the body has more than 1024 keys");
  // The field that it is in is named.
  OrderedJson object;
  EXPECT_EQ(ParseBody(keys + ",\"one\":1}}", &object)->param, "x");
  EXPECT_EQ(ParseBody(ObjectOf(1025), &object)->param, "");
  EXPECT_EQ(
      ParseBody("{\"a\":1,\"logit_bias\":" + ObjectOf(1025) + "}", &object)
          ->param,
      "logit_bias");
}

// The work grows with the square of an object's keys: its sum has a limit.
TEST(JsonBodyTest, ComparisonsOfKeysAreLimitedOverTheBody) {
  constexpr char kTooMany[] =
      "the objects of the body have too many keys: it takes more than 4194304 "
      "comparisons to find those given twice";
  EXPECT_EQ(ErrorOfText(ListOf(8, ObjectOf(1024))), "");
  EXPECT_EQ(ErrorOfText(ListOf(9, ObjectOf(1024))), kTooMany);
  // Long names count for as many as they have parts of 64 bytes.
  EXPECT_EQ(ErrorOfText(ObjectOf(900, std::string(512, 'k'))), "");
  EXPECT_EQ(ErrorOfText(ListOf(2, ObjectOf(900, std::string(512, 'k')))),
            kTooMany);
  EXPECT_EQ(ErrorOfText(ListOf(10000, ObjectOf(10))), "");
  // A name of just 64 bytes has one part: "k...k1000" of the longest names.
  EXPECT_EQ(ErrorOfText(ListOf(8, ObjectOf(1024, std::string(60, 'k')))), "");
}

// Ends within the test's time only where the time grows with the size.
TEST(JsonBodyTest, ManyObjectsInAnArrayAreReadInLinearTime) {
  constexpr int kObjects = 2'000'000;
  OrderedJson object;
  ASSERT_FALSE(ParseBody(ListOf(kObjects, "{}"), &object));
  EXPECT_EQ(object["x"].size(), static_cast<size_t>(kObjects));
}

TEST(JsonBodyTest, ATextIsAppendedAsItIsDumped) {
  std::vector<std::string> texts = {"",
                                    " main",
                                    "\xC3\xA4",
                                    "\xE2\x82",
                                    "a\xFF"
                                    "b",
                                    "\xF0\x9F\x98\x80"};
  for (int c = 0; c < 256; ++c) {
    texts.push_back({'a', static_cast<char>(c), 'b'});
  }
  for (const std::string& text : texts) {
    std::string json = "before";
    AppendJsonText(text, &json);
    EXPECT_EQ(json, "before" + Dump(text));
  }
}

}  // namespace
}  // namespace nacre::gateway
