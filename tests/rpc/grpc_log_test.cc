#include "common/rpc/grpc_log.h"

#include <gmock/gmock.h>
#include <grpc/support/log.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <sstream>
#include <string>

#include "common/json.h"
#include "common/logging.h"

namespace nacre::rpc {
namespace {

using ::testing::StartsWith;

TEST(GrpcLogTest, ItsMessagesAreLinesOfOurs) {
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);  // until then: none
  std::ostringstream text;
  const auto before = spdlog::default_logger();
  auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(text);
  sink->set_formatter(MakeLogFormatter(LogFormat::kJson));
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("nacre-test", std::move(sink)));
  {
    const GrpcLog grpc_log;
    gpr_log(GPR_ERROR, "a peer said \"%s\"\n%s", "hello", "{and more}");
  }
  const std::string line = text.str();
  const auto json = nlohmann::json::parse(line, nullptr, false);
  ASSERT_TRUE(json.is_object()) << line;
  EXPECT_THAT(json["message"].get<std::string>(),
              StartsWith("gRPC: a peer said \"hello\"\n{and more} "
                         "(grpc_log_test.cc:"));
  EXPECT_EQ(json["level"], "warning");

  // Now it is on its own again.
  gpr_log(GPR_ERROR, "the end");
  EXPECT_EQ(text.str(), line);
  spdlog::set_default_logger(before);
}

}  // namespace
}  // namespace nacre::rpc
