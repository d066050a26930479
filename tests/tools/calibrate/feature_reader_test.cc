#include "tools/calibrate/feature_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_replace.h"

namespace nacre::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kLine[] =
    R"({"request":"a","session":3,"position":12,"token":77,"unverified":5,)"
    R"("top":[0.5,0.25,0.1,0.05,0.04,0.03,0.01,0.01,0.005,0],)"
    R"("entropy":1.25,"probability":0.25,"accepted":true})";

// Of kLine with one piece replaced, as the second line.
std::string ErrorOf(const std::string& piece, const std::string& by) {
  const std::string bad = absl::StrReplaceAll(kLine, {{piece, by}});
  EXPECT_NE(bad, kLine) << piece;
  const auto lines = ParseFeatures("f", std::string(kLine) + "\n" + bad);
  EXPECT_EQ(lines.status().code(), absl::StatusCode::kInvalidArgument) << bad;
  return std::string(lines.status().message());
}

TEST(ParseFeaturesTest, ReadsLines) {
  const auto lines =
      ParseFeatures("f", std::string(kLine) + "\n\n" +
                             absl::StrReplaceAll(kLine, {{"true", "false"}}));
  ASSERT_TRUE(lines.ok()) << lines.status();
  ASSERT_EQ(lines->size(), 2u);
  const FeatureLine& line = lines->front();
  EXPECT_EQ(line.request, "a");
  EXPECT_EQ(line.session, 3u);
  EXPECT_EQ(line.position, 12);
  EXPECT_THAT(line.top, ElementsAre(0.5f, 0.25f, 0.1f, 0.05f, 0.04f, 0.03f,
                                    0.01f, 0.01f, 0.005f, 0.0f));
  EXPECT_EQ(line.entropy, 1.25f);
  EXPECT_EQ(line.probability, 0.25f);
  EXPECT_EQ(line.token, 77);
  EXPECT_EQ(line.unverified, 5);
  EXPECT_EQ(line.accepted, true);
  EXPECT_FALSE(line.row.has_value() || line.fed.has_value());
  EXPECT_EQ(lines->back().accepted, false);
}

TEST(ParseFeaturesTest, ReadsWhatMayBeMissing) {
  const auto lines = ParseFeatures(
      "f", absl::StrReplaceAll(kLine, {{"true", "null,\"row\":4,\"fed\":5"}}));
  ASSERT_TRUE(lines.ok()) << lines.status();
  EXPECT_FALSE(lines->front().accepted.has_value());
  EXPECT_EQ(lines->front().row, 4u);
  EXPECT_EQ(lines->front().fed, 5u);
}

TEST(ParseStateLinesTest, ReadsWhatATargetHasWritten) {
  const auto lines = ParseStateLines(
      "f",
      "{\"request\":\"a\",\"session\":3,\"position\":12,\"state\":40}\n"
      "{\"request\":\"b\",\"session\":4,\"position\":0}\n");
  ASSERT_TRUE(lines.ok()) << lines.status();
  ASSERT_EQ(lines->size(), 2u);
  EXPECT_EQ(lines->front().request, "a");
  EXPECT_EQ(lines->front().position, 12);
  EXPECT_EQ(lines->front().state, 40u);
  EXPECT_FALSE(lines->back().state.has_value());
}

TEST(ParseStateLinesTest, NamesTheLineAndTheValue) {
  const auto error = [](const std::string& line) {
    const auto lines = ParseStateLines("f", line);
    EXPECT_EQ(lines.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(lines.status().message());
  };
  EXPECT_THAT(error("{\"position\":1,\"state\":2}"),
              HasSubstr("f:1: \"request\" is null"));
  EXPECT_THAT(error("{\"request\":\"a\",\"position\":-1,\"state\":2}"),
              HasSubstr("\"position\" is -1"));
  EXPECT_THAT(error("{\"request\":\"a\",\"position\":1,\"state\":0.5}"),
              HasSubstr("\"state\" is 0.5"));
  EXPECT_THAT(error("[]"), HasSubstr("f:1: not a JSON object"));
  EXPECT_THAT(error("\n"), HasSubstr("no recorded token"));
}

TEST(ParseFeaturesTest, NamesTheLineAndTheValue) {
  EXPECT_EQ(ErrorOf("\"accepted\":true}", ""), "f:2: not a JSON object");
  EXPECT_EQ(ErrorOf("\"a\"", "7"), "f:2: \"request\" is 7, not a text");
  EXPECT_THAT(ErrorOf("\"session\":3", "\"session\":-3"),
              HasSubstr("f:2: \"session\" is -3"));
  EXPECT_THAT(ErrorOf("12", "1.5"), HasSubstr("\"position\" is 1.5"));
  EXPECT_THAT(ErrorOf("12", "99999999999999999999"), HasSubstr("\"position\""));
  EXPECT_THAT(ErrorOf(",0]", "]"), HasSubstr("not a list of 10 numbers"));
  EXPECT_THAT(ErrorOf("[0.5", "[0.5,0.5"), HasSubstr("a list of 10 numbers"));
  EXPECT_THAT(ErrorOf("[0.5", "[0.2"), HasSubstr("not descending"));
  EXPECT_THAT(ErrorOf("[0.5", "[1.5"), HasSubstr("\"top\" is 1.5"));
  EXPECT_THAT(ErrorOf("1.25", "-0.1"), HasSubstr("\"entropy\" is -0.1"));
  EXPECT_THAT(ErrorOf("\"probability\":0.25,", ""),
              HasSubstr("\"probability\" is null, not a number"));
  EXPECT_THAT(ErrorOf("true", "1"), HasSubstr("\"accepted\" is 1"));
  EXPECT_THAT(ErrorOf(",\"accepted\":true", ""),
              HasSubstr("\"accepted\" is null, not true, false or null"));
  EXPECT_THAT(ErrorOf("\"unverified\":5,", ""),
              HasSubstr("\"unverified\" is null"));
  EXPECT_THAT(ErrorOf("77", "-1"), HasSubstr("\"token\" is -1"));
  EXPECT_THAT(ErrorOf("77", "4294967296"), HasSubstr("\"token\" is 42949"));
  EXPECT_THAT(ErrorOf("true", "true,\"row\":-1"), HasSubstr("\"row\" is -1"));
  EXPECT_THAT(ErrorOf("true", "true,\"fed\":null"),
              HasSubstr("\"fed\" is null"));
}

// JSON has no NaN; whatever stands for it is refused.
TEST(ParseFeaturesTest, WhatIsNoFiniteNumberIsRefused) {
  EXPECT_EQ(ErrorOf("1.25", "NaN"), "f:2: not a JSON object");
  EXPECT_EQ(ErrorOf("1.25", "1e999"), "f:2: not a JSON object");
  EXPECT_THAT(ErrorOf("1.25", "null"), HasSubstr("\"entropy\" is null"));
  EXPECT_THAT(ErrorOf("1.25", "\"nan\""), HasSubstr("\"entropy\" is \"nan\""));
  EXPECT_THAT(ErrorOf("[0.5", "[null"), HasSubstr("\"top\" is null"));
}

TEST(ParseFeaturesTest, AnEmptyRecordingIsRefused) {
  EXPECT_EQ(ParseFeatures("f", "\n\n").status().message(),
            "f has no recorded token");
}

}  // namespace
}  // namespace nacre::tools
