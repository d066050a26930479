// The commands against a service that wants TLS, a client's certificate and a
// token: with the right ones they work, else they end with one clear line.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/integration/command_line.h"
#include "tests/integration/service_fixture.h"
#include "tests/testing/certificates.h"

namespace nacre::integration {
namespace {

using nacre::testing::Authority;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kError[] = "exit code 1";
constexpr char kUsage[] = "exit code 2";
constexpr char kMissing[] = "/no/such/file";

// One service for all tests: they change nothing in it.
struct World {
  World() {
    nacre::testing::WriteFileAtomically(
        clients, "# who\nalice:client-secret-0123456789\n");
    nacre::testing::WriteFileAtomically(operators,
                                        "operator-secret-0123456789\n");
    nacre::testing::WriteFileAtomically(unknown, "wrong-secret-0123456789\n");
    nacre::testing::WriteFileAtomically(garbage, "short\n");
    tools::Cluster::Options options = Service::Options();
    options.tls = own;
    options.auth_tokens_file = clients;
    options.admin_tokens_file = operators;
    options.more_args.coordinator = {"--public-tls-ca=" + own.ca_file};
    service = std::make_unique<Service>(std::move(options));
  }

  const tools::TemporaryFolder folder;
  const Authority authority{"authority"};
  const Authority stranger{"stranger"};
  const rpc::TlsFiles own = authority.Issue(folder.path(), "own");
  const rpc::TlsFiles foreign = stranger.Issue(folder.path(), "foreign");
  const std::string clients = folder.path() + "/clients";
  const std::string operators = folder.path() + "/operators";
  const std::string unknown = folder.path() + "/unknown";
  const std::string garbage = folder.path() + "/garbage";
  std::unique_ptr<Service> service;
};

// By the name of the command.
class SecureCommandsTest : public ::testing::TestWithParam<std::string> {
 protected:
  static void SetUpTestSuite() { world_ = new World; }
  static void TearDownTestSuite() {
    delete world_;
    world_ = nullptr;
  }

  // What a command line shows of itself; what is empty is left out.
  struct Shown {
    std::string ca = world_->own.ca_file;
    std::string cert = world_->own.cert_file;
    std::string key = world_->own.key_file;
    std::string token_file = world_->clients;
    std::string server_name;
  };

  static CommandResult Run(const Shown& shown) {
    std::vector<std::string> args = {GetParam(), "--address",
                                     world_->service->cluster().address(),
                                     "--max-tokens", "8"};
    const auto add = [&args](const char* flag, const std::string& value) {
      if (value.empty()) return;
      args.push_back(flag);
      args.push_back(value);
    };
    if (GetParam() == "generate") {
      add("--prompt", "def main():");
    } else {
      add("--prompts", NACRE_TEST_DATA "/humaneval.jsonl");
      add("--limit", "1");
      add("--repeat", "1");
      add("--methods", "ar,async");
    }
    add("--tls-ca", shown.ca);
    add("--tls-cert", shown.cert);
    add("--tls-key", shown.key);
    add("--token-file", shown.token_file);
    add("--tls-server-name", shown.server_name);
    return RunNacre(args);
  }

  static Shown Changed(std::string Shown::*field, const std::string& value) {
    Shown shown;
    shown.*field = value;
    return shown;
  }

  static void ExpectWorks(const CommandResult& result) {
    EXPECT_EQ(result.end, "exit code 0") << result.err;
    EXPECT_FALSE(result.out.empty());
  }

  // One line that says so, and nothing else.
  template <typename Matcher>
  static void ExpectFails(const CommandResult& result, const std::string& end,
                          const Matcher& line) {
    EXPECT_EQ(result.end, end);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1)
        << result.err;
    EXPECT_THAT(result.err,
                AllOf(StartsWith("error: "), line, Not(HasSubstr("secret"))));
  }

  static World* world_;
};

World* SecureCommandsTest::world_ = nullptr;

TEST_P(SecureCommandsTest, TheRightCertificateAndTokenOpenTheDoor) {
  ExpectWorks(Run({}));
  setenv("NACRE_TOKEN", "client-secret-0123456789", 1);
  ExpectWorks(Run(Changed(&Shown::token_file, "")));
  // The file counts more.
  ExpectFails(Run(Changed(&Shown::token_file, world_->unknown)), kError,
              HasSubstr("UNAUTHENTICATED"));
  unsetenv("NACRE_TOKEN");
}

TEST_P(SecureCommandsTest, AWarningIsNoPartOfTheResult) {
  chmod(world_->own.key_file.c_str(), 0644);
  const CommandResult warned = Run({});
  chmod(world_->own.key_file.c_str(), 0600);
  ExpectWorks(warned);
  EXPECT_THAT(warned.err, HasSubstr("the private key " + world_->own.key_file));
  EXPECT_EQ(warned.out.find("private key"), std::string::npos) << warned.out;
}

TEST_P(SecureCommandsTest, AnotherAuthoritysServerIsNotBelieved) {
  ExpectFails(Run(Changed(&Shown::ca, world_->foreign.ca_file)), kError,
              AllOf(HasSubstr("UNAVAILABLE: "),
                    HasSubstr("certificate verify failed")));
  ExpectFails(Run(Changed(&Shown::server_name, "nacre.elsewhere")), kError,
              AllOf(HasSubstr("UNAVAILABLE: "), HasSubstr("Hostname")));
}

TEST_P(SecureCommandsTest, TheServerWantsACertificateOfItsAuthority) {
  Shown shown;
  shown.cert = shown.key = "";
  ExpectFails(Run(shown), kError,
              HasSubstr("UNAVAILABLE: the server hung up; it may want no TLS, "
                        "or a certificate (--tls-cert, --tls-key): "));
  shown.cert = world_->foreign.cert_file;
  shown.key = world_->foreign.key_file;
  ExpectFails(Run(shown), kError,
              HasSubstr("UNAVAILABLE: the server hung up; it may want no TLS, "
                        "or another --tls-cert: "));
  shown.ca = shown.cert = shown.key = "";
  ExpectFails(Run(shown), kError,
              HasSubstr("UNAVAILABLE: the server hung up; it may want TLS "
                        "(--tls-ca): "));
}

TEST_P(SecureCommandsTest, TheServerWantsATokenItKnows) {
  ExpectFails(Run(Changed(&Shown::token_file, "")), kError,
              HasSubstr("UNAUTHENTICATED: one \"authorization: Bearer TOKEN\" "
                        "is needed in the call's metadata"));
  for (const std::string& file : {world_->unknown, world_->operators}) {
    ExpectFails(Run(Changed(&Shown::token_file, file)), kError,
                HasSubstr("UNAUTHENTICATED: the token is not accepted"));
  }
}

TEST_P(SecureCommandsTest, FilesThatCannotBeReadAreNamed) {
  for (std::string Shown::*field :
       {&Shown::ca, &Shown::cert, &Shown::key, &Shown::token_file}) {
    ExpectFails(Run(Changed(field, kMissing)), kUsage,
                AllOf(HasSubstr("cannot read "), HasSubstr(kMissing),
                      HasSubstr("No such file or directory")));
  }
  if (geteuid() == 0) return;  // may read all files
  chmod(world_->unknown.c_str(), 0);
  ExpectFails(
      Run(Changed(&Shown::token_file, world_->unknown)), kUsage,
      AllOf(HasSubstr(world_->unknown), HasSubstr("Permission denied")));
  chmod(world_->unknown.c_str(), 0600);
}

TEST_P(SecureCommandsTest, FilesThatHoldSomethingElseAreNamed) {
  for (std::string Shown::*field : {&Shown::ca, &Shown::cert, &Shown::key}) {
    ExpectFails(Run(Changed(field, world_->garbage)), kUsage,
                HasSubstr(world_->garbage));
  }
  ExpectFails(Run(Changed(&Shown::token_file, world_->garbage)), kUsage,
              HasSubstr(world_->garbage + ": line 1: the token has 5 bytes"));
  ExpectFails(Run(Changed(&Shown::key, world_->foreign.key_file)), kUsage,
              HasSubstr(world_->foreign.key_file));
  ExpectFails(Run(Changed(&Shown::key, "")), kUsage,
              HasSubstr("--tls-key is missing: --tls-cert needs it"));
  setenv("NACRE_TOKEN", "short", 1);
  ExpectFails(Run(Changed(&Shown::token_file, "")), kUsage,
              HasSubstr("NACRE_TOKEN: line 1: the token has 5 bytes"));
  unsetenv("NACRE_TOKEN");
}

INSTANTIATE_TEST_SUITE_P(Commands, SecureCommandsTest,
                         ::testing::Values("generate", "bench"),
                         [](const auto& info) { return info.param; });

// Operators have no command of their own: what their clients get.
TEST(SecureOperatorsTest, NeedACertificateAndATokenOfTheirs) {
  World world;
  const auto drain = [&](const rpc::TlsFiles& files, const std::string& token) {
    const auto channel = rpc::LoadClientTls({false, files, ""});
    EXPECT_TRUE(channel.ok()) << channel.status();
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kCallTimeout));
    tools::ClientSecurity{*channel, token}.Apply(&context);
    v1::DrainWorkerRequest request;
    request.set_address("host:1");
    v1::DrainWorkerResponse response;
    return v1::Admin::NewStub(
               rpc::CreateChannel(world.service->cluster().admin_address(),
                                  *channel))
        ->DrainWorker(&context, request, &response)
        .error_code();
  };
  constexpr char kOperator[] = "operator-secret-0123456789";
  rpc::TlsFiles nameless;
  nameless.ca_file = world.own.ca_file;
  // It got as far as looking for the worker.
  EXPECT_EQ(drain(world.own, kOperator), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(drain(world.own, "client-secret-0123456789"),
            grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(drain(world.own, ""), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(drain(world.own, "wrong-secret-0123456789"),
            grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(drain(nameless, kOperator), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(drain(world.foreign, kOperator), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(drain({}, kOperator), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(world.service->Workers().size(), 2u);
}

}  // namespace
}  // namespace nacre::integration
