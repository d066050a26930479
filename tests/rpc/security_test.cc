#include "common/rpc/security.h"

#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/server.h"
#include "proto/admin.grpc.pb.h"
#include "tests/testing/certificates.h"

namespace nacre::rpc {
namespace {

using testing::Authority;
using ::testing::HasSubstr;
using testing::WriteFileAtomically;

class AdminService : public v1::Admin::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const v1::GetServerInfoRequest*,
                                          v1::ServerInfo* response) override {
    response->set_version("1");
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

class SecurityTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override {
    server_.reset();
    std::filesystem::remove_all(folder_);
  }

  void Serve(std::shared_ptr<grpc::ServerCredentials> credentials) {
    server_ = *RpcServer::Start({"127.0.0.1:0", "", std::move(credentials)},
                                {&service_});
  }
  static PeerSecurity Peer(const TlsFiles& files,
                           const std::string& client_auth = "",
                           const std::string& server_name = "") {
    const auto peer =
        LoadPeerSecurity({files, client_auth, server_name, absl::Seconds(1)});
    EXPECT_TRUE(peer.ok()) << peer.status();
    return peer.value_or(PeerSecurity());
  }
  static ChannelSecurity Client(const TlsFiles& files) {
    const auto security = LoadClientTls({false, files, ""});
    EXPECT_TRUE(security.ok()) << security.status();
    return security.value_or(ChannelSecurity());
  }

  static absl::Status Call(const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::minutes(1));
    v1::ServerInfo response;
    return FromGrpcStatus(
        v1::Admin::NewStub(channel)->GetServerInfo(&context, {}, &response));
  }
  // Over a connection of its own.
  absl::Status Call(const ChannelSecurity& security) {
    return Call(CreateChannel(server_->address(), security));
  }

  // Polls: only a new handshake shows which files are in use.
  template <typename Condition>
  static bool Eventually(const Condition& condition) {
    const absl::Time deadline = absl::Now() + absl::Minutes(1);
    while (!condition()) {
      if (absl::Now() > deadline) return false;
      absl::SleepFor(absl::Milliseconds(50));
    }
    return true;
  }

  const std::string folder_ =
      ::testing::TempDir() + "/nacre_security_" + std::to_string(getpid());
  const Authority authority_{"authority"};
  const Authority stranger_{"stranger"};
  AdminService service_;
  std::unique_ptr<RpcServer> server_;
};

TEST_F(SecurityTest, PeersOfOneAuthorityUnderstandEachOther) {
  Serve(Peer(authority_.Issue(folder_, "server")).server);
  const absl::Status status =
      Call(Peer(authority_.Issue(folder_, "client")).channel);
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(SecurityTest, AStrangerWithoutTheRightCertificateIsRefused) {
  Serve(Peer(authority_.Issue(folder_, "server")).server);
  TlsFiles own = authority_.Issue(folder_, "own");
  const TlsFiles foreign = stranger_.Issue(folder_, "foreign");

  TlsFiles files = foreign;
  files.ca_file = own.ca_file;  // trusts us, is not trusted
  EXPECT_TRUE(absl::IsUnavailable(Call(Client(files)))) << "wrong authority";
  files = own;
  files.cert_file = files.key_file = "";
  EXPECT_TRUE(absl::IsUnavailable(Call(Client(files)))) << "no certificate";
  EXPECT_TRUE(absl::IsUnavailable(Call(ChannelSecurity()))) << "plaintext";
  // Nor does the server suffer.
  EXPECT_TRUE(Call(Client(own)).ok());
}

// The public port asks for certificates where it is told whose.
TEST_F(SecurityTest, APublicPortWithAuthoritiesKnowsItsClients) {
  const TlsFiles server = authority_.Issue(folder_, "server");
  const TlsFiles own = authority_.Issue(folder_, "own");
  TlsFiles nameless = own;
  nameless.cert_file = nameless.key_file = "";
  TlsFiles foreign = stranger_.Issue(folder_, "foreign");
  foreign.ca_file = own.ca_file;
  Serve(*LoadServerTls(server, "--public-tls"));
  EXPECT_TRUE(Call(Client(own)).ok());
  EXPECT_TRUE(absl::IsUnavailable(Call(Client(nameless))));
  EXPECT_TRUE(absl::IsUnavailable(Call(Client(foreign))));
  TlsFiles without = server;
  without.ca_file = "";
  Serve(*LoadServerTls(without, "--public-tls"));
  EXPECT_TRUE(Call(Client(nameless)).ok());
}

TEST_F(SecurityTest, AClientRefusesAServerItCannotBelieve) {
  Serve(Peer(authority_.Issue(folder_, "server"), "none").server);
  TlsFiles trust = authority_.Issue(folder_, "own");
  trust.cert_file = trust.key_file = "";
  EXPECT_TRUE(Call(Client(trust)).ok()) << "no certificate is asked for";
  TlsFiles other = stranger_.Issue(folder_, "foreign");
  other.cert_file = other.key_file = "";
  EXPECT_TRUE(absl::IsUnavailable(Call(Client(other)))) << "wrong authority";
  // The system's authorities do not know ours.
  const auto system = LoadClientTls({true, {}, ""});
  ASSERT_TRUE(system.ok());
  EXPECT_TRUE(absl::IsUnavailable(Call(*system))) << "system authorities";
}

TEST_F(SecurityTest, TheServersNameIsChecked) {
  Serve(Peer(authority_.Issue(folder_, "server",
                              {.alternative_names = "DNS:worker.nacre"}))
            .server);
  const TlsFiles files = authority_.Issue(folder_, "client");
  EXPECT_TRUE(absl::IsUnavailable(Call(Peer(files).channel)));
  EXPECT_TRUE(Call(Peer(files, "", "worker.nacre").channel).ok());
  EXPECT_TRUE(absl::IsUnavailable(Call(Peer(files, "", "other").channel)));
}

TEST_F(SecurityTest, APlaintextServerIsNoTlsServer) {
  Serve(nullptr);
  EXPECT_TRUE(Call(ChannelSecurity()).ok());
  EXPECT_TRUE(absl::IsUnavailable(
      Call(Peer(authority_.Issue(folder_, "client")).channel)));
}

TEST_F(SecurityTest, ReplacedFilesServeTheNextHandshakes) {
  const TlsFiles files = authority_.Issue(folder_, "server");
  Serve(Peer(files, "none").server);
  TlsFiles before = authority_.Issue(folder_, "before");
  before.cert_file = before.key_file = "";
  TlsFiles after = stranger_.Issue(folder_, "after");
  after.cert_file = after.key_file = "";
  const auto channel = CreateChannel(server_->address(), Client(before));
  ASSERT_TRUE(Call(channel).ok());
  ASSERT_TRUE(absl::IsUnavailable(Call(Client(after))));

  stranger_.Issue(folder_, "server");
  EXPECT_TRUE(Eventually([&] { return Call(Client(after)).ok(); }))
      << "the new certificate is not used";
  EXPECT_TRUE(absl::IsUnavailable(Call(Client(before))))
      << "the old certificate is still used";
  EXPECT_TRUE(Call(channel).ok()) << "the old connection is gone";
}

TEST_F(SecurityTest, BothSidesChangeToAnotherAuthority) {
  Serve(Peer(authority_.Issue(folder_, "server")).server);
  const ChannelSecurity security =
      Peer(authority_.Issue(folder_, "client")).channel;
  const ChannelSecurity late = Client(authority_.Issue(folder_, "late"));
  const ChannelSecurity early = Client(stranger_.Issue(folder_, "early"));
  ASSERT_TRUE(Call(security).ok());
  ASSERT_TRUE(Call(late).ok());
  ASSERT_TRUE(absl::IsUnavailable(Call(early)));
  stranger_.Issue(folder_, "server");
  stranger_.Issue(folder_, "client");
  EXPECT_TRUE(Eventually([&] { return Call(early).ok(); })) << "the server";
  EXPECT_TRUE(Eventually([&] { return Call(security).ok(); })) << "the client";
  EXPECT_TRUE(absl::IsUnavailable(Call(late)));
}

// A half-written file must not take a running service down for ever.
TEST_F(SecurityTest, BadFilesAreSurvivedUntilGoodOnesCome) {
  const TlsFiles files = authority_.Issue(folder_, "server");
  Serve(Peer(files, "none").server);
  TlsFiles trust = authority_.Issue(folder_, "client");
  trust.cert_file = trust.key_file = "";
  const auto channel = CreateChannel(server_->address(), Client(trust));
  ASSERT_TRUE(Call(channel).ok());
  WriteFileAtomically(files.key_file, "half a key");
  EXPECT_TRUE(Eventually([&] { return !Call(Client(trust)).ok(); }))
      << "the file is not watched";
  EXPECT_TRUE(Call(channel).ok()) << "the old connection is gone";
  authority_.Issue(folder_, "server");
  EXPECT_TRUE(Eventually([&] { return Call(Client(trust)).ok(); }))
      << "never recovered";
}

TEST_F(SecurityTest, HalfASetNamesTheMissingFlag) {
  const TlsFiles all = authority_.Issue(folder_, "all");
  const auto error = [](const PeerTlsFlags& flags) {
    const absl::Status status = LoadPeerSecurity(flags).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  EXPECT_EQ(error({{all.cert_file, "", all.ca_file}}),
            "--tls-key is missing: --tls-cert needs it");
  EXPECT_EQ(error({{"", all.key_file, ""}}),
            "--tls-cert is missing: --tls-key needs it");
  EXPECT_EQ(error({{"", "", all.ca_file}}),
            "--tls-cert is missing: --tls-ca needs it");
  EXPECT_EQ(error({{all.cert_file, all.key_file, ""}}),
            "--tls-ca is missing: --tls-cert needs it");
  EXPECT_EQ(error({{}, "require"}),
            "--tls-cert is missing: --tls-client-auth needs it");
  EXPECT_EQ(error({{}, "", "name"}),
            "--tls-ca is missing: --tls-server-name needs it");
  EXPECT_EQ(error({all, "maybe"}),
            "--tls-client-auth \"maybe\" is not require or none");
  EXPECT_EQ(
      LoadServerTls({all.cert_file, "", ""}, "--public-tls").status().message(),
      "--public-tls-key is missing: --public-tls-cert needs it");
  EXPECT_EQ(
      LoadClientTls({true, {all.cert_file, "", ""}, ""}).status().message(),
      "--tls-key is missing: --tls-cert needs it");
}

TEST_F(SecurityTest, BadFilesAreErrorsAtTheStart) {
  TlsFiles files = authority_.Issue(folder_, "files");
  WriteFileAtomically(files.ca_file, "no PEM");
  EXPECT_THAT(std::string(LoadPeerSecurity({files}).status().message()),
              HasSubstr(files.ca_file));
  EXPECT_FALSE(LoadServerTls(files, "--public-tls").ok());
  EXPECT_FALSE(LoadClientTls({false, files, ""}).ok());
  std::filesystem::remove(files.key_file);
  EXPECT_TRUE(absl::IsNotFound(LoadPeerSecurity({files}).status()));
}

TEST_F(SecurityTest, WithoutFlagsEverythingIsPlaintext) {
  const auto peer = LoadPeerSecurity({});
  ASSERT_TRUE(peer.ok());
  EXPECT_EQ(peer->server, nullptr);
  EXPECT_EQ(peer->channel.credentials, nullptr);
  const auto client = LoadClientTls({});
  ASSERT_TRUE(client.ok());
  EXPECT_EQ(client->credentials, nullptr);
}

}  // namespace
}  // namespace nacre::rpc
