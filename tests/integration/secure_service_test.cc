// The real processes over TLS: they understand each other, and no others.

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "common/files.h"
#include "proto/worker.grpc.pb.h"
#include "tests/integration/service_fixture.h"
#include "tests/testing/certificates.h"
#include "tools/cluster/child_process.h"

namespace nacre::integration {
namespace {

namespace fs = std::filesystem;
using nacre::testing::Authority;

class SecureServiceTest : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  static tools::Cluster::Options TlsOptions(const rpc::TlsFiles& files) {
    tools::Cluster::Options options = Service::Options();
    options.tls = files;
    return options;
  }

  static rpc::ChannelSecurity Security(const rpc::TlsFiles& files) {
    const auto security = rpc::LoadClientTls({false, files, ""});
    EXPECT_TRUE(security.ok()) << security.status();
    return security.value_or(rpc::ChannelSecurity());
  }

  // Opens a session stream on a worker, as its coordinator does.
  static grpc::Status DialWorker(const v1::WorkerInfo& worker,
                                 const rpc::ChannelSecurity& security) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kCallTimeout));
    const auto channel = rpc::CreateChannel(worker.hello().address(), security);
    if (worker.hello().role() == v1::WORKER_ROLE_TARGET) {
      const auto stub = v1::TargetWorker::NewStub(channel);
      const auto stream = stub->Session(&context);
      stream->WritesDone();
      return stream->Finish();
    }
    const auto stub = v1::DraftWorker::NewStub(channel);
    const auto stream = stub->Session(&context);
    stream->WritesDone();
    return stream->Finish();
  }

  static grpc::StatusCode AskAdmin(const std::string& address,
                                   const rpc::ChannelSecurity& security) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kCallTimeout));
    v1::ServerInfo response;
    return v1::Admin::NewStub(rpc::CreateChannel(address, security))
        ->GetServerInfo(&context, {}, &response)
        .error_code();
  }

  const std::string folder_ = fs::path(::testing::TempDir()) /
                              ("nacre_secure_" + std::to_string(getpid()));
  const Authority authority_{"authority"};
  const Authority stranger_{"stranger"};
  // Long enough that a draft on a busy machine gets its word in.
  const v1::GenerateRequest request_ = [] {
    v1::GenerateRequest request = Request("def main():", v1::METHOD_ASYNC, 600);
    request.mutable_stop()->set_ignore_eos(true);
    return request;
  }();
};

TEST_F(SecureServiceTest, OnlyTheRightCertificateOpensADoor) {
  const rpc::TlsFiles files = authority_.Issue(folder_, "own");
  Service service(TlsOptions(files));
  const auto complete = service.Generate(request_);
  ASSERT_TRUE(complete.ok()) << complete.status();
  EXPECT_GT(complete->speculation().drafted(), 0);

  rpc::TlsFiles foreign = stranger_.Issue(folder_, "foreign");
  foreign.ca_file = files.ca_file;
  rpc::TlsFiles nameless;
  nameless.ca_file = files.ca_file;
  const std::vector<v1::WorkerInfo> workers = service.Workers();
  ASSERT_EQ(workers.size(), 2u);
  constexpr auto kRefused = grpc::StatusCode::UNAVAILABLE;
  for (const v1::WorkerInfo& worker : workers) {
    SCOPED_TRACE(worker.hello().address());
    EXPECT_EQ(DialWorker(worker, Security(foreign)).error_code(), kRefused);
    EXPECT_EQ(DialWorker(worker, Security(nameless)).error_code(), kRefused);
    EXPECT_EQ(DialWorker(worker, {}).error_code(), kRefused) << "plaintext";
    EXPECT_TRUE(DialWorker(worker, Security(files)).ok());
  }
  // Operators and workers need a certificate too; clients need none.
  for (const std::string& address : {service.cluster().admin_address(),
                                     service.cluster().registry_address()}) {
    EXPECT_EQ(AskAdmin(address, Security(nameless)), kRefused);
    EXPECT_EQ(AskAdmin(address, Security(foreign)), kRefused);
    EXPECT_EQ(AskAdmin(address, {}), kRefused);
  }
  tools::GenerationClient client(service.cluster().address(),
                                 {Security(nameless)});
  const auto again =
      client.Generate(request_, kCallTimeout, [](const v1::Chunk&) {});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->text(), complete->text());
  EXPECT_GT(again->speculation().drafted(), 0);
  EXPECT_EQ(service.Workers().size(), 2u);

  // The same tokens as in the clear.
  Service plain;
  const auto expected = plain.Generate(request_);
  ASSERT_TRUE(expected.ok()) << expected.status();
  EXPECT_EQ(again->text(), expected->text());
}

// With all that is sent to a running service: prompt, answer and tokens, wrong
// ones too. None of it is in a log.
TEST_F(SecureServiceTest, NoSecretIsInALog) {
  constexpr char kToken[] = "alice-secret-0123456789";
  constexpr char kWrong[] = "mallory-secret-0123456789";
  constexpr char kPrompt[] = "def very_private(name):";
  nacre::testing::WriteFileAtomically(folder_ + "/tokens",
                                      std::string("alice:") + kToken + "\n");
  tools::Cluster::Options options = Service::Options();
  options.auth_tokens_file = folder_ + "/tokens";
  options.log_dir = folder_;
  std::string answer;
  {
    Service service(options);
    const v1::GenerateRequest request = Request(kPrompt, v1::METHOD_ASYNC, 24);
    const auto complete = service.Generate(request);
    ASSERT_TRUE(complete.ok()) << complete.status();
    answer = complete->text();
    for (const std::string& token : {std::string(), std::string(kWrong)}) {
      tools::GenerationClient client(service.cluster().address(), {{}, token});
      const auto refused =
          client.Generate(request, kCallTimeout, [](const v1::Chunk&) {});
      EXPECT_TRUE(absl::IsUnauthenticated(refused.status()));
    }
    v1::GenerateRequest bad = request;
    bad.mutable_sampling()->set_temperature(-1.0f);
    EXPECT_TRUE(absl::IsInvalidArgument(service.Generate(bad).status()));
    kill(service.cluster().supervisor().PidOf("draft-0"), SIGKILL);
    EXPECT_TRUE(service.Generate(request).ok());
  }
  for (const char* name : {"coordinator", "target-0", "draft-0"}) {
    const auto log = ReadFile(folder_ + "/" + name + ".log");
    ASSERT_TRUE(log.ok()) << log.status();
    EXPECT_FALSE(log->empty());
    for (const std::string& secret :
         {std::string("secret"), std::string("very_private"), answer}) {
      EXPECT_EQ(log->find(secret), std::string::npos) << name << ": " << *log;
    }
  }
}

TEST_F(SecureServiceTest, AWorkerWithTheWrongCertificateIsNeverAttached) {
  tools::Cluster::Options options =
      TlsOptions(authority_.Issue(folder_, "own"));
  options.drafts = 0;
  Service service(options);
  rpc::TlsFiles foreign = stranger_.Issue(folder_, "foreign");
  foreign.ca_file = options.tls.ca_file;
  const std::string log = folder_ + "/log";
  auto worker = tools::ChildProcess::Start(
      {.argv = {NACRE_BIN "/nacre-draft-worker", "--model", DraftModel(),
                "--coordinator", service.cluster().registry_address(), "--cpus",
                "0", "--tls-cert", foreign.cert_file, "--tls-key",
                foreign.key_file, "--tls-ca", foreign.ca_file},
       .log_file = log});
  ASSERT_TRUE(worker.ok()) << worker.status();
  EXPECT_TRUE(Service::Eventually([&] {
    const auto text = ReadFile(log);
    return text.ok() && text->find("not registered") != std::string::npos;
  }));
  EXPECT_EQ(service.Workers().size(), 1u);
  EXPECT_FALSE((*worker)->Poll().has_value()) << "it goes on trying";
  EXPECT_TRUE(service.Generate(request_).ok());
}

}  // namespace
}  // namespace nacre::integration
