#include "coordinator/api/authenticator.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "common/rpc/security.h"
#include "coordinator/api/grpc_peer.h"
#include "tests/coordinator/coordinator_fixture.h"
#include "tests/testing/certificates.h"
#include "tests/testing/health_check.h"
#include "tests/testing/raw_call.h"

namespace nacre::coordinator {
namespace {

using nacre::testing::Authority;
using nacre::testing::WriteFileAtomically;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kClientToken[] = "client-secret-0123456789";
constexpr char kOperatorToken[] = "operator-secret-0123456789";

// Tells who calls.
class WhoService final : public v1::Admin::CallbackService {
 public:
  explicit WhoService(const Authenticator* authenticator)
      : authenticator_(authenticator) {}
  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const v1::GetServerInfoRequest*,
                                          v1::ServerInfo* response) override {
    response->set_version(authenticator_->AuthenticateClient(PeerOf(*context))
                              .value_or("nobody"));
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

 private:
  const Authenticator* const authenticator_;
};

class AuthenticatorTest : public CoordinatorFixture {
 protected:
  ~AuthenticatorTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<rpc::BearerTokens> Tokens(const std::string& name,
                                            const std::string& content) {
    std::filesystem::create_directories(folder_);
    WriteFileAtomically(folder_ + "/" + name, content);
    return *rpc::BearerTokens::Load(folder_ + "/" + name);
  }

  // Calls any method with an empty request.
  grpc::Status Call(const std::string& address, const std::string& method,
                    const std::vector<std::string>& authorizations) {
    grpc::GenericStub stub(rpc::CreateChannel(address));
    grpc::ClientContext context;
    SetDeadline(&context);
    for (const std::string& authorization : authorizations) {
      context.AddMetadata("authorization", authorization);
    }
    grpc::Slice nothing;
    grpc::ByteBuffer request(&nothing, 1);
    grpc::ByteBuffer response;
    grpc::Status status;
    absl::Notification done;
    stub.UnaryCall(&context, method, grpc::StubOptions(), &request, &response,
                   [&](grpc::Status result) {
                     status = std::move(result);
                     done.Notify();
                   });
    done.WaitForNotification();
    return status;
  }

  static std::vector<std::string> MethodsOf(const std::string& service) {
    const auto* descriptor =
        google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(
            service);
    std::vector<std::string> methods;
    for (int i = 0; i < descriptor->method_count(); ++i) {
      methods.push_back("/" + service + "/" + descriptor->method(i)->name());
    }
    return methods;
  }

  std::string Who(const std::string& address,
                  const rpc::ChannelSecurity& security,
                  const std::string& token = "") {
    grpc::ClientContext context;
    SetDeadline(&context);
    if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
    v1::ServerInfo response;
    const grpc::Status status =
        v1::Admin::NewStub(rpc::CreateChannel(address, security))
            ->GetServerInfo(&context, {}, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.version();
  }

  const std::string folder_ =
      ::testing::TempDir() + "/nacre_auth_" + std::to_string(getpid());
  const Authenticator guarded_{
      Tokens("clients", std::string("alice:") + kClientToken),
      Tokens("operators", kOperatorToken)};
  InferenceService guarded_inference_{
      &dispatcher_, &tokenizer_, nullptr, {}, &guarded_};
  AdminService guarded_admin_{&dispatcher_, &registry_, &guarded_};
};

// Every method that will ever be added is asked as well.
TEST_F(AuthenticatorTest, NoMethodAnswersWithoutItsToken) {
  const auto server =
      *rpc::RpcServer::Start({}, {&guarded_inference_, &guarded_admin_});
  constexpr auto kUnauthenticated = grpc::StatusCode::UNAUTHENTICATED;
  for (const std::string service : {"nacre.v1.Inference", "nacre.v1.Admin"}) {
    const bool is_admin = service == "nacre.v1.Admin";
    const std::vector<std::string> methods = MethodsOf(service);
    EXPECT_GE(methods.size(), 3u);
    for (const std::string& method : methods) {
      SCOPED_TRACE(method);
      const std::string good =
          std::string("Bearer ") + (is_admin ? kOperatorToken : kClientToken);
      for (const std::vector<std::string>& shown :
           {std::vector<std::string>(),
            {"Bearer"},
            {"Bearer "},
            {std::string("Basic ") + kClientToken},
            {kClientToken},
            {"Bearer wrong-secret-0123456789"},
            {std::string("Bearer ") + kClientToken + "x"},
            // Two, whichever of them is good: which one counts?
            {good, good},
            {good, "Bearer wrong-secret-0123456789"},
            {"Bearer wrong-secret-0123456789", good}}) {
        const grpc::Status status = Call(server->address(), method, shown);
        EXPECT_EQ(status.error_code(), kUnauthenticated) << shown.size();
        EXPECT_THAT(status.error_message(), Not(HasSubstr("secret")));
      }
      const grpc::Status client = Call(server->address(), method,
                                       {std::string("Bearer ") + kClientToken});
      const grpc::Status op = Call(server->address(), method,
                                   {std::string("bearer ") + kOperatorToken});
      EXPECT_EQ(client.error_code() == grpc::StatusCode::PERMISSION_DENIED,
                is_admin);
      EXPECT_EQ(op.error_code() == kUnauthenticated, !is_admin);
      EXPECT_NE((is_admin ? op : client).error_code(), kUnauthenticated);
      EXPECT_THAT(client.error_message(), Not(HasSubstr("secret")));
    }
  }
}

// It sends no byte of a request, and would wait for its answer otherwise.
TEST_F(AuthenticatorTest, AStrangerIsRefusedBeforeItsRequestIsRead) {
  const Authority authority("authority");
  const auto peer =
      rpc::LoadPeerSecurity({authority.Issue(folder_, "bob", {.name = "bob"})});
  ASSERT_TRUE(peer.ok()) << peer.status();
  for (const bool tls : {false, true}) {
    SCOPED_TRACE(tls);
    rpc::RpcServer::Options options;
    if (tls) options.credentials = peer->server;
    const auto server = *rpc::RpcServer::Start(options, {&guarded_inference_});
    const auto channel = rpc::CreateChannel(
        server->address(), tls ? peer->channel : rpc::ChannelSecurity());
    for (const std::string& method : MethodsOf("nacre.v1.Inference")) {
      EXPECT_EQ(nacre::testing::CallWithBytes(channel, method, std::nullopt)
                    .error_code(),
                grpc::StatusCode::UNAUTHENTICATED)
          << method;
    }
  }
}

TEST_F(AuthenticatorTest, HealthNeedsNoToken) {
  const auto server = *rpc::RpcServer::Start({}, {&guarded_inference_});
  server->SetServing("readiness", true);
  const auto health =
      nacre::testing::CheckHealth(server->address(), "readiness");
  ASSERT_TRUE(health.ok()) << health.status();
  EXPECT_EQ(*health, nacre::testing::kServing);
}

TEST_F(AuthenticatorTest, TokensNameTheirHolder) {
  WhoService who(&guarded_);
  const auto server = *rpc::RpcServer::Start({}, {&who});
  EXPECT_EQ(Who(server->address(), {}, kClientToken), "alice");
  EXPECT_EQ(Who(server->address(), {}, kOperatorToken), "nobody");
}

// What a front end that is no gRPC would fill in.
TEST_F(AuthenticatorTest, APeerIsAllItLooksAt) {
  const Peer alice{"ipv4:10.0.0.1:4711", "bob", std::string(kClientToken)};
  const Peer op{"", "", std::string(kOperatorToken)};
  const Peer nobody{"ipv4:10.0.0.1:4711", "",
                    absl::UnauthenticatedError("show a token")};
  EXPECT_EQ(*guarded_.AuthenticateClient(alice), "alice");
  EXPECT_EQ(guarded_.AuthenticateClient(op).status(),
            absl::UnauthenticatedError("the token is not accepted"));
  EXPECT_EQ(guarded_.AuthenticateClient(nobody).status(),
            absl::UnauthenticatedError("show a token"));
  EXPECT_TRUE(guarded_.AuthenticateOperator(op).ok());
  EXPECT_EQ(guarded_.AuthenticateOperator(alice).code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(guarded_.AuthenticateOperator(nobody),
            absl::UnauthenticatedError("show a token"));
  const Authenticator open;
  EXPECT_EQ(*open.AuthenticateClient(alice), "bob");
  EXPECT_EQ(*open.AuthenticateClient(nobody), "ipv4:10.0.0.1");
  EXPECT_TRUE(open.AuthenticateOperator(nobody).ok());
}

// What is kept of one client's texts must not be shown to another.
TEST_F(AuthenticatorTest, OnlyANameThatATokenProvesOwnsTexts) {
  const speculation::TextOwner none = {};
  EXPECT_NE(guarded_.TextOwnerOf("alice"), none);
  EXPECT_EQ(guarded_.TextOwnerOf("alice"), guarded_.TextOwnerOf("alice"));
  EXPECT_NE(guarded_.TextOwnerOf("alice"), guarded_.TextOwnerOf("carol"));
  const Authenticator open;
  EXPECT_EQ(open.TextOwnerOf("ipv4:10.0.0.1"), none);
  EXPECT_EQ(open.TextOwnerOf("bob"), none) << "perhaps a gateway's certificate";
}

TEST_F(AuthenticatorTest, TheTargetIsToldWhoseTextsARequestMayUse) {
  const Authenticator two(
      Tokens("two", absl::StrCat("alice:", kClientToken,
                                 "\nbob:another-secret-0123456789\n")),
      nullptr);
  InferenceService inference(&dispatcher_, &tokenizer_, nullptr, {}, &two);
  const auto server = *rpc::RpcServer::Start({}, {&inference});
  FakeWorker worker(v1::WORKER_ROLE_TARGET);
  worker.target.SetScript([&](const v1::TargetControl& control) {
    for (const v1::OpenTarget& open : control.open()) {
      v1::TargetEvent event;
      v1::Verdict* verdict = event.add_verdicts();
      verdict->set_session_id(open.session_id());
      verdict->set_base_length(open.token_ids_size());
      verdict->add_token_ids('x');
      verdict->set_finish(v1::FINISH_REASON_EOS);
      worker.target.Send(std::move(event));
    }
  });
  worker.Attach(address());
  ASSERT_TRUE(worker.AwaitAccepted());
  const auto ask = [&](const std::string& at, const std::string& token,
                       absl::optional<bool> suffixes) {
    grpc::ClientContext context;
    SetDeadline(&context);
    if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
    v1::GenerateRequest request;
    request.set_text("hi");
    request.mutable_stop()->set_max_tokens(4);
    if (suffixes) request.mutable_speculation()->set_suffixes(*suffixes);
    const auto stub = v1::Inference::NewStub(rpc::CreateChannel(at));
    const auto reader = stub->Generate(&context, request);
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
    }
    const grpc::Status status = reader->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    v1::OpenTarget last;
    for (const v1::TargetControl& control : worker.target.controls.values()) {
      if (control.open_size() > 0) last = control.open(0);
    }
    return last;
  };
  const auto owner = [](const v1::OpenTarget& open) {
    EXPECT_TRUE(open.has_suffixes());
    return speculation::TextOwner{open.suffixes().owner_high(),
                                  open.suffixes().owner_low()};
  };
  const auto alice = owner(ask(server->address(), kClientToken, {}));
  const auto bob =
      owner(ask(server->address(), "another-secret-0123456789", {}));
  const auto anyone = owner(ask(address(), "", {}));
  EXPECT_EQ(alice, two.TextOwnerOf("alice"));
  EXPECT_EQ(bob, two.TextOwnerOf("bob"));
  EXPECT_NE(alice, bob);
  EXPECT_EQ(anyone, speculation::TextOwner());
  EXPECT_FALSE(ask(server->address(), kClientToken, false).has_suffixes());
}

TEST_F(AuthenticatorTest, WithoutTokensTheConnectionTellsWhoCalls) {
  const Authenticator open;
  WhoService who(&open);
  const auto plain = *rpc::RpcServer::Start({}, {&who});
  EXPECT_EQ(Who(plain->address(), {}), "ipv4:127.0.0.1");

  const Authority authority("authority");
  const auto peer =
      rpc::LoadPeerSecurity({authority.Issue(folder_, "bob", {.name = "bob"})});
  ASSERT_TRUE(peer.ok()) << peer.status();
  const auto secure =
      *rpc::RpcServer::Start({.credentials = peer->server}, {&who});
  EXPECT_EQ(Who(secure->address(), peer->channel), "bob");
}

}  // namespace
}  // namespace nacre::coordinator
