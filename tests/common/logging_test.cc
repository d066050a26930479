#include "common/logging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <sstream>
#include <string>

#include "common/json.h"

namespace nacre {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;
using Json = nlohmann::json;

// Logs through spdlog's default logger into a string.
class LoggingTest : public ::testing::Test {
 protected:
  void Use(LogFormat format) {
    auto logger = std::make_shared<spdlog::logger>(
        "nacre-test", std::make_shared<spdlog::sinks::ostream_sink_mt>(text_));
    logger->set_formatter(MakeLogFormatter(format));
    spdlog::set_default_logger(std::move(logger));
  }

  std::ostringstream text_;
};

TEST_F(LoggingTest, TextLines) {
  Use(LogFormat::kText);
  spdlog::info("listening on {}", "here");
  LogEvent(spdlog::level::warn, "request failed",
           {{"request_id", "a b"}, {"count", 3}, {"status", "OK"}});
  std::istringstream lines(text_.str());
  std::string line;
  std::getline(lines, line);
  EXPECT_THAT(line, MatchesRegex("....-..-..T..:..:..\\.... I nacre-test: "
                                 "listening on here"));
  std::getline(lines, line);
  EXPECT_THAT(line, EndsWith("W nacre-test: request failed "
                             "request_id=\"a b\" count=3 status=OK"));
}

TEST_F(LoggingTest, JsonLines) {
  Use(LogFormat::kJson);
  spdlog::info("said \"{}\"", "hi");
  LogEvent(spdlog::level::err, "request failed",
           {{"request_id", "r"}, {"seconds", 0.5}});
  std::istringstream lines(text_.str());
  std::string line;
  std::getline(lines, line);
  Json json = Json::parse(line);
  EXPECT_EQ(json["message"], "said \"hi\"");
  EXPECT_EQ(json["level"], "info");
  EXPECT_EQ(json["process"], "nacre-test");
  EXPECT_THAT(json["time"].get<std::string>(),
              MatchesRegex("....-..-..T..:..:..\\....Z"));
  std::getline(lines, line);
  json = Json::parse(line);
  EXPECT_EQ(json["level"], "error");
  EXPECT_EQ(json["request_id"], "r");
  EXPECT_EQ(json["seconds"], 0.5);
}

TEST_F(LoggingTest, WhatPeersSayStaysOnOneLine) {
  for (const LogFormat format : {LogFormat::kText, LogFormat::kJson}) {
    text_.str("");
    Use(format);
    spdlog::warn("peer said {}", "x\n2026 I forged\x1e{\"level\":1");
    LogEvent(spdlog::level::info, "request", {{"request_id", "a\nb\xff"}});
    const std::string text = text_.str();
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
    if (format == LogFormat::kText) continue;
    std::istringstream lines(text);
    std::string line;
    while (std::getline(lines, line)) {
      EXPECT_FALSE(Json::parse(line, nullptr, false).is_discarded()) << line;
    }
  }
}

TEST_F(LoggingTest, LevelsBelowTheChosenOneAreLeftOut) {
  Use(LogFormat::kText);
  spdlog::default_logger()->set_level(spdlog::level::warn);
  LogEvent(spdlog::level::info, "quiet", {{"request_id", "r"}});
  LogEvent(spdlog::level::warn, "loud", {{"request_id", "r"}});
  EXPECT_THAT(text_.str(), ::testing::Not(HasSubstr("quiet")));
  EXPECT_THAT(text_.str(), HasSubstr("loud"));
}

TEST_F(LoggingTest, Options) {
  const auto options = ParseLogOptions("json", "debug");
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->format, LogFormat::kJson);
  EXPECT_EQ(options->level, spdlog::level::debug);
  EXPECT_TRUE(ParseLogOptions("text", "off").ok());
  EXPECT_THAT(std::string(ParseLogOptions("xml", "info").status().message()),
              HasSubstr("--log-format \"xml\""));
  EXPECT_THAT(std::string(ParseLogOptions("text", "loud").status().message()),
              HasSubstr("--log-level \"loud\""));
}

TEST(LoggingProcessTest, WhatWasLoggedIsWrittenBeforeTheEnd) {
  ::testing::internal::CaptureStderr();
  {
    const Logging logging("nacre-test",
                          {LogFormat::kJson, spdlog::level::info});
    for (int i = 0; i < 100; ++i) spdlog::info("line {}", i);
  }
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 100);
  EXPECT_THAT(text, StartsWith("{\"time\":"));
  EXPECT_THAT(text, HasSubstr("line 99"));
}

}  // namespace
}  // namespace nacre
