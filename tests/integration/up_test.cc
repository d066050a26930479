// `nacre up`: its flags reach processes that know them, and it ends as asked.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "common/files.h"
#include "tests/integration/command_line.h"
#include "tests/integration/service_fixture.h"
#include "tests/telemetry/http_get.h"
#include "tests/testing/certificates.h"

namespace nacre::integration {
namespace {

using ::testing::HasSubstr;

class UpTest : public ::testing::Test {
 protected:
  void Start(const std::vector<std::string>& flags) {
    std::vector<std::string> argv = {
        NACRE_BIN "/nacre", "up",         "--target-model", TargetModel(),
        "--draft-model",    DraftModel(), "--port",         "0"};
    argv.insert(argv.end(), flags.begin(), flags.end());
    auto process =
        tools::ChildProcess::Start({.argv = std::move(argv), .log_file = log_});
    ASSERT_TRUE(process.ok()) << process.status();
    process_ = *std::move(process);
    ASSERT_TRUE(Service::Eventually([this] {
      return absl::StrContains(Log(), "ready; Ctrl-C stops") ||
             process_->Poll().has_value();
    }));
    ASSERT_FALSE(process_->Poll().has_value()) << Log();
  }

  std::string Log() const { return ReadFile(log_).value_or(""); }

  // The words of the line of start-up that begins with `name`.
  std::vector<std::string> Line(const std::string& name) const {
    for (absl::string_view line : absl::StrSplit(Log(), '\n')) {
      const std::vector<std::string> words =
          absl::StrSplit(line, ' ', absl::SkipEmpty());
      if (!words.empty() && words[0] == name) return words;
    }
    ADD_FAILURE() << "no line of " << name << ": " << Log();
    return {""};
  }

  const tools::TemporaryFolder folder_;
  const std::string log_ = folder_.path() + "/log";
  std::unique_ptr<tools::ChildProcess> process_;
};

TEST_F(UpTest, SaysWhatDraftsWhereNoWorkerDoes) {
  Start({"--drafts", "0", "--suffix-drafter", "off"});
  EXPECT_THAT(Log(), HasSubstr("no draft: nothing is drafted\n"));
}

TEST_F(UpTest, SaysThatItDraftsFromSuffixes) {
  Start({"--drafts", "0", "--suffix-cache", "0"});
  EXPECT_THAT(Log(), HasSubstr("no draft: the targets draft from suffixes\n"));
}

TEST_F(UpTest, EveryFlagIsUnderstood) {
  const nacre::testing::Authority authority("authority");
  const rpc::TlsFiles files = authority.Issue(folder_.path(), "all");
  const std::string clients = folder_.path() + "/clients";
  const std::string operators = folder_.path() + "/operators";
  nacre::testing::WriteFileAtomically(clients, "client-secret-0123456789\n");
  nacre::testing::WriteFileAtomically(operators, "operator-secret-0123456789");
  chmod(clients.c_str(), 0644);
  std::vector<std::string> flags = {"--tls-cert",
                                    files.cert_file,
                                    "--tls-key",
                                    files.key_file,
                                    "--tls-ca",
                                    files.ca_file,
                                    "--auth-tokens-file",
                                    clients,
                                    "--admin-tokens-file",
                                    operators};
  for (const char* flag : {"--tls-server-name=localhost",
                           "--tls-client-auth=require",
                           "--metrics-port=0",
                           "--max-running=3",
                           "--max-queue=5",
                           "--queue-timeout=20s",
                           "--hold-without-target=off",
                           "--max-request-duration=5m",
                           "--max-request-bytes=100000",
                           "--max-streams-per-client=4",
                           "--client-timeout=40s",
                           "--tokenizer-threads=1",
                           "--failover-timeout=20s",
                           "--worker-timeout=30s",
                           "--hang-timeout=30s",
                           "--prefill-chunk=64",
                           "--otlp-endpoint=127.0.0.1:1",
                           "--otlp-sample-ratio=0",
                           "--log-format=json",
                           "--log-level=warn",
                           "--drain-timeout=30s"}) {
    flags.push_back(flag);
  }
  Start(flags);
  const CommandResult generated =
      RunNacre({"generate", "--address", Line("coordinator").back(), "--tls-ca",
                files.ca_file, "--tls-server-name", "localhost", "--token-file",
                clients, "--prompt", "def main():", "--max-tokens", "8"});
  EXPECT_EQ(generated.end, "exit code 0") << generated.err;
  for (const char* name : {"metrics", "target-0", "draft-0"}) {
    EXPECT_THAT(telemetry::HttpGet(Line(name).back(), "/metrics"),
                HasSubstr("nacre_build_info{"))
        << name;
  }
  // No process logs as text, or less than a warning; that others may read the
  // tokens is one.
  EXPECT_EQ(Log().find("\"level\":\"info\""), std::string::npos) << Log();
  EXPECT_EQ(Log().find(" W coordinator: "), std::string::npos) << Log();
  EXPECT_THAT(Log(), HasSubstr("\"level\":\"warning\""));
  process_->Signal(SIGTERM);
  EXPECT_TRUE(process_->WaitForEnd(absl::Minutes(1)));
  EXPECT_EQ(process_->Poll().value_or("still running"), "exit code 0");
}

TEST_F(UpTest, WithoutTheFlagNobodyServesMetrics) {
  Start({"--drafts", "0"});
  EXPECT_EQ(Line("target-0").back(), TargetModel());
  EXPECT_EQ(Log().find("\nmetrics "), std::string::npos) << Log();
}

// What is scraped is left in TIME_WAIT: the port must be had all the same.
TEST_F(UpTest, MetricsAreWhereTheyWereAfterARestart) {
  tools::Cluster::Options options = Service::Options();
  options.metrics_port = 0;
  Service service(options);
  std::vector<std::string> addresses = {service.cluster().metrics_address()};
  for (const std::string& line : service.cluster().WorkerLines()) {
    addresses.push_back(line.substr(line.rfind(' ') + 1));
  }
  ASSERT_EQ(addresses.size(), 3u);
  const auto pages = [&addresses] {
    int count = 0;
    for (const std::string& address : addresses) {
      if (absl::StrContains(telemetry::HttpGet(address, "/metrics"),
                            "nacre_build_info{")) {
        ++count;
      }
    }
    return count;
  };
  EXPECT_EQ(pages(), 3);
  for (const char* name : {"draft-0", "target-0", "coordinator"}) {
    tools::Supervisor& supervisor = service.cluster().supervisor();
    const pid_t killed = supervisor.PidOf(name);
    kill(killed, SIGKILL);
    EXPECT_TRUE(Service::Eventually([&] {
      const pid_t pid = supervisor.PidOf(name);
      return pid != killed && pid != 0 && pages() == 3;
    })) << name;
  }
}

TEST_F(UpTest, AValueOutOfRangeIsRefusedBeforeAnythingStarts) {
  const auto error_of = [](const std::string& flag) {
    const CommandResult result =
        RunNacre({"up", "--target-model", TargetModel(), "--drafts", "0",
                  "--port", "0", flag});
    EXPECT_EQ(result.end, "exit code 2");
    return result.err;
  };
  EXPECT_THAT(error_of("--max-running=-1"),
              HasSubstr("error: --max-running is -1, must be in"));
  EXPECT_THAT(error_of("--hang-timeout=1ms"),
              HasSubstr("error: flag --hang-timeout: \"1ms\" is not"));
  EXPECT_THAT(error_of("--log-format=xml"), HasSubstr("xml"));
  ASSERT_EQ(setenv("NACRE_HANG_TIMEOUT", "1ms", 1), 0);
  EXPECT_THAT(error_of("--weights=auto"),
              HasSubstr("error: NACRE_HANG_TIMEOUT: \"1ms\" is not"));
  unsetenv("NACRE_HANG_TIMEOUT");
}

// The process that refuses a flag's value says so, and `up` ends.
TEST_F(UpTest, AValueThatAProcessRefusesEndsIt) {
  const auto error_of = [](const std::string& flag) {
    const CommandResult result =
        RunNacre({"up", "--target-model", TargetModel(), "--drafts", "0",
                  "--port", "0", flag});
    EXPECT_EQ(result.end, "exit code 1");
    return result.err;
  };
  EXPECT_THAT(error_of("--otlp-endpoint=nowhere"),
              HasSubstr("--otlp-endpoint \"nowhere\" is not host:port"));
  EXPECT_THAT(error_of("--tls-client-auth=require"),
              HasSubstr("--tls-cert is missing: --tls-client-auth needs it"));
}

}  // namespace
}  // namespace nacre::integration
