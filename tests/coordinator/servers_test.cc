#include "coordinator/servers.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "proto/admin.grpc.pb.h"
#include "proto/inference.grpc.pb.h"
#include "tests/coordinator/coordinator_fixture.h"
#include "tests/testing/raw_call.h"

namespace nacre::coordinator {
namespace {

class ServersTest : public CoordinatorFixture {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  CoordinatorServers::Ports Ports() {
    return {{{"127.0.0.1:0", folder_ + "/inference"}, &inference_},
            {{"127.0.0.1:0", folder_ + "/registry"}, &registry_},
            {{"127.0.0.1:0", folder_ + "/admin"}, &admin_}};
  }

  static grpc::StatusCode AskAdmin(const std::string& address) {
    grpc::ClientContext context;
    SetDeadline(&context);
    v1::ServerInfo response;
    return v1::Admin::NewStub(rpc::CreateChannel(address))
        ->GetServerInfo(&context, {}, &response)
        .error_code();
  }
  static grpc::StatusCode AskInference(const std::string& address) {
    grpc::ClientContext context;
    SetDeadline(&context);
    v1::TokenizeResponse response;
    return v1::Inference::NewStub(rpc::CreateChannel(address))
        ->Tokenize(&context, {}, &response)
        .error_code();
  }
  static grpc::StatusCode AskRegistry(const std::string& address) {
    grpc::ClientContext context;
    SetDeadline(&context);
    const auto stub = v1::Registry::NewStub(rpc::CreateChannel(address));
    const auto stream = stub->Attach(&context);
    stream->Write({});  // no Hello: refused where the service is
    return stream->Finish().error_code();
  }

  const std::string folder_ =
      ::testing::TempDir() + "/nacre_servers_" + std::to_string(getpid());
};

TEST_F(ServersTest, EachServiceIsOnItsOwnPortAndOnNoOther) {
  const auto servers = CoordinatorServers::Start(Ports());
  ASSERT_TRUE(servers.ok()) << servers.status();
  const std::string inference = (*servers)->inference().address();
  const std::string registry = (*servers)->registry().address();
  const std::string admin = (*servers)->admin().address();
  constexpr auto kNotHere = grpc::StatusCode::UNIMPLEMENTED;
  EXPECT_EQ(AskInference(inference), grpc::StatusCode::OK);
  EXPECT_EQ(AskInference(registry), kNotHere);
  EXPECT_EQ(AskInference(admin), kNotHere);
  EXPECT_EQ(AskRegistry(inference), kNotHere);
  EXPECT_EQ(AskRegistry(registry), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(AskRegistry(admin), kNotHere);
  EXPECT_EQ(AskAdmin(inference), kNotHere);
  EXPECT_EQ(AskAdmin(registry), kNotHere);
  EXPECT_EQ(AskAdmin(admin), grpc::StatusCode::OK);
}

TEST_F(ServersTest, TheRegistryTakesNoLargeMessages) {
  const auto servers = CoordinatorServers::Start(Ports());
  ASSERT_TRUE(servers.ok()) << servers.status();
  const auto attach = [&servers](size_t size) {
    return nacre::testing::CallWithBytes(
               rpc::CreateChannel((*servers)->registry().address()),
               "/nacre.v1.Registry/Attach", std::string(size, '\0'))
        .error_code();
  };
  EXPECT_EQ(attach(1 << 20), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(attach((1 << 20) + 1), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(ServersTest, WritesEachAddressToItsFile) {
  const auto servers = CoordinatorServers::Start(Ports());
  ASSERT_TRUE(servers.ok()) << servers.status();
  const auto line = [this](const std::string& name) {
    std::string text;
    std::ifstream(folder_ + "/" + name) >> text;
    return text;
  };
  EXPECT_EQ(line("inference"), (*servers)->inference().address());
  EXPECT_EQ(line("registry"), (*servers)->registry().address());
  EXPECT_EQ(line("admin"), (*servers)->admin().address());
}

TEST_F(ServersTest, ATakenPortIsAnError) {
  CoordinatorServers::Ports ports = Ports();
  ports.inference.options.listen = address();  // the fixture's own
  EXPECT_TRUE(absl::IsUnavailable(CoordinatorServers::Start(ports).status()));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/inference"));
}

TEST_F(ServersTest, ShutdownEndsEveryPort) {
  const auto servers = CoordinatorServers::Start(Ports());
  ASSERT_TRUE(servers.ok()) << servers.status();
  (*servers)->SetServing("", true);
  (*servers)->Shutdown(absl::ZeroDuration());
  EXPECT_EQ(AskInference((*servers)->inference().address()),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(AskAdmin((*servers)->admin().address()),
            grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace nacre::coordinator
