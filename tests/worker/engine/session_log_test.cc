#include "worker/engine/session_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "common/json.h"
#include "common/logging.h"

namespace nacre::worker {
namespace {

using ::testing::IsEmpty;
using Json = nlohmann::json;

class SessionLogTest : public ::testing::Test {
 protected:
  SessionLogTest() : before_(spdlog::default_logger()) {
    auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(text_);
    sink->set_formatter(MakeLogFormatter(LogFormat::kJson));
    spdlog::set_default_logger(
        std::make_shared<spdlog::logger>("worker", std::move(sink)));
  }
  ~SessionLogTest() override { spdlog::set_default_logger(before_); }

  std::vector<Json> Lines() {
    std::vector<Json> lines;
    std::istringstream stream(text_.str());
    for (std::string line; std::getline(stream, line);) {
      lines.push_back(Json::parse(line, nullptr, false));
    }
    return lines;
  }

  const std::shared_ptr<spdlog::logger> before_;
  std::ostringstream text_;
};

TEST_F(SessionLogTest, WhatIsMalformedIsNamed) {
  spdlog::set_level(spdlog::level::debug);
  LogMalformed({{7, absl::InvalidArgumentError("a has 9 entries, at most 8")},
                {8, absl::InvalidArgumentError("unknown b 5")}});
  const std::vector<Json> lines = Lines();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["message"], "message malformed");
  EXPECT_EQ(lines[0]["session_id"], 7);
  EXPECT_EQ(lines[0]["why"], "a has 9 entries, at most 8");
  EXPECT_EQ(lines[1]["why"], "unknown b 5");
}

TEST_F(SessionLogTest, EveryLineNamesTheRequest) {
  spdlog::set_level(spdlog::level::debug);
  LogSessionOpened("mine \"quoted\"", 7, 40, 32);
  LogSession("session closed", "mine \"quoted\"", 7);
  LogSession("session refused", "mine \"quoted\"", 7,
             absl::StatusCode::kResourceExhausted);
  const std::vector<Json> lines = Lines();
  ASSERT_EQ(lines.size(), 3u);
  for (const Json& line : lines) {
    EXPECT_EQ(line["request_id"], "mine \"quoted\"");
    EXPECT_EQ(line["session_id"], 7);
    EXPECT_EQ(line["level"], "debug");
  }
  EXPECT_EQ(lines[0]["message"], "session opened");
  EXPECT_EQ(lines[0]["tokens"], 40);
  EXPECT_EQ(lines[0]["cached_tokens"], 32);
  EXPECT_EQ(lines[1]["message"], "session closed");
  EXPECT_FALSE(lines[1].contains("status"));
  EXPECT_EQ(lines[2]["status"], "RESOURCE_EXHAUSTED");
}

TEST_F(SessionLogTest, NothingAtInfo) {
  spdlog::set_level(spdlog::level::info);
  LogSessionOpened("mine", 7, 40, 32);
  LogSession("session closed", "mine", 7);
  EXPECT_THAT(Lines(), IsEmpty());
}

}  // namespace
}  // namespace nacre::worker
