#include "common/rpc/server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/rpc/channel.h"
#include "proto/admin.grpc.pb.h"
#include "tests/testing/health_check.h"

namespace nacre::rpc {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using nacre::testing::CheckHealth;
using nacre::testing::kNotServing;
using nacre::testing::kServing;

std::chrono::system_clock::time_point InAMinute() {
  return std::chrono::system_clock::now() + std::chrono::minutes(1);
}

TEST(RpcServerTest, PortZeroPicksAPortAndSaysWhich) {
  const auto server = RpcServer::Start({"127.0.0.1:0", ""}, {});
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_THAT((*server)->address(), StartsWith("127.0.0.1:"));
  EXPECT_THAT((*server)->address(), ::testing::Not(EndsWith(":0")));
  EXPECT_TRUE(CheckHealth((*server)->address(), "").ok());
}

TEST(RpcServerTest, WritesItsAddressToTheFile) {
  const std::string path =
      ::testing::TempDir() + "/rpc_server_address_" + std::to_string(getpid());
  std::ofstream(path) << "an old address\n";
  const auto server = RpcServer::Start({"127.0.0.1:0", path}, {});
  ASSERT_TRUE(server.ok()) << server.status();
  std::ifstream file(path);
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  EXPECT_EQ(line, (*server)->address());
  EXPECT_FALSE(std::getline(file, line));
}

TEST(RpcServerTest, AConnectionThatSaysNothingIsClosed) {
  RpcServer::Options options;
  options.handshake_timeout = absl::Milliseconds(100);
  // A ping that is not answered would be its end, too.
  options.keepalive.time = absl::Hours(1);
  const auto server = RpcServer::Start(options, {});
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string& address = (*server)->address();
  int port = 0;
  ASSERT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
  sockaddr_in peer = {};
  peer.sin_family = AF_INET;
  peer.sin_port = htons(static_cast<uint16_t>(port));
  peer.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&peer), sizeof(peer)), 0);
  // Well below the two minutes that gRPC gives.
  const timeval patience = {.tv_sec = 60, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  char answer[256];
  ssize_t received = 0;
  do {  // its own settings come first
    received = recv(fd, answer, sizeof(answer), 0);
  } while (received > 0);
  EXPECT_EQ(received, 0);
  close(fd);
}

TEST(RpcServerTest, AnAddressFileThatCannotBeWrittenIsPermissionDenied) {
  const auto server =
      RpcServer::Start({"127.0.0.1:0", "/nonexistent-folder/address"}, {});
  EXPECT_EQ(server.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(server.status().message()),
              HasSubstr("/nonexistent-folder/address"));
}

TEST(RpcServerTest, ATakenPortIsUnavailable) {
  const auto first = RpcServer::Start({"127.0.0.1:0", ""}, {});
  ASSERT_TRUE(first.ok());
  const auto second = RpcServer::Start({(*first)->address(), ""}, {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr((*first)->address()));
}

TEST(RpcServerTest, APortIsFreeAfterShutdown) {
  auto first = RpcServer::Start({"127.0.0.1:0", ""}, {});
  ASSERT_TRUE(first.ok());
  const std::string address = (*first)->address();
  (*first)->Shutdown(absl::ZeroDuration());
  EXPECT_TRUE(RpcServer::Start({address, ""}, {}).ok());
}

TEST(RpcServerTest, AnAddressThatIsNotHostAndPortIsInvalid) {
  for (const char* listen :
       {"", "localhost", "127.0.0.1:", ":50050", "127.0.0.1:http",
        "127.0.0.1:65536", "127.0.0.1:-1", "unix:"}) {
    const auto server = RpcServer::Start({listen, ""}, {});
    EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument)
        << listen;
    EXPECT_THAT(std::string(server.status().message()),
                HasSubstr(std::string("\"") + listen + "\""));
  }
}

TEST(RpcServerTest, AHostThatCannotBeBoundIsUnavailable) {
  // TEST-NET-1 (RFC 5737): no interface has it.
  const auto server = RpcServer::Start({"192.0.2.1:0", ""}, {});
  EXPECT_EQ(server.status().code(), absl::StatusCode::kUnavailable);
}

TEST(RpcServerTest, ServesOnAUnixSocket) {
  const std::string address = "unix:" + ::testing::TempDir() + "/rpc_server_" +
                              std::to_string(getpid());
  const auto server = RpcServer::Start({address, ""}, {});
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ((*server)->address(), address);
  EXPECT_TRUE(CheckHealth(address, "").ok());
}

TEST(RpcServerTest, HealthServicesAreNotServingUntilTold) {
  const auto server = RpcServer::Start({"127.0.0.1:0", ""}, {});
  ASSERT_TRUE(server.ok());
  const std::string& address = (*server)->address();
  for (const char* service : {"", "startup", "liveness", "readiness"}) {
    EXPECT_EQ(*CheckHealth(address, service), kNotServing) << service;
    (*server)->SetServing(service, true);
    EXPECT_EQ(*CheckHealth(address, service), kServing) << service;
  }
  (*server)->SetServing("readiness", false);
  EXPECT_EQ(*CheckHealth(address, "readiness"), kNotServing);
  EXPECT_EQ(*CheckHealth(address, "liveness"), kServing);
  EXPECT_EQ(CheckHealth(address, "other").status().code(),
            absl::StatusCode::kNotFound);
}

// Each of them would hold a thread for as long as its client likes.
TEST(RpcServerTest, StreamsOfReflectionAreFew) {
  const auto server = *RpcServer::Start({}, {});
  grpc::GenericStub stub(CreateChannel(server->address()));
  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream;
    grpc::Status status;
  };
  grpc::CompletionQueue queue;
  std::vector<std::unique_ptr<Call>> calls;
  for (int i = 0; i < 12; ++i) {
    calls.push_back(std::make_unique<Call>());
    Call& call = *calls.back();
    call.stream = stub.PrepareCall(
        &call.context,
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        &queue);
    call.stream->StartCall(nullptr);
    call.stream->Finish(&call.status, &call);
  }
  void* tag = nullptr;
  bool ok = false;
  while (tag == nullptr) {  // those of StartCall
    ASSERT_EQ(queue.AsyncNext(&tag, &ok, InAMinute()),
              grpc::CompletionQueue::GOT_EVENT);
  }
  EXPECT_EQ(static_cast<Call*>(tag)->status.error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  for (const auto& call : calls) call->context.TryCancel();
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
}

// A service whose call never ends by itself.
class StuckService : public v1::Admin::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext*,
                                          const v1::GetServerInfoRequest*,
                                          v1::ServerInfo*) override {
    class Reactor : public grpc::ServerUnaryReactor {
      void OnCancel() override { Finish(grpc::Status::CANCELLED); }
      void OnDone() override { delete this; }
    };
    auto* reactor = new Reactor;
    started.Notify();
    return reactor;
  }
  absl::Notification started;
};

TEST(RpcServerTest, ShutdownCancelsWhatOutlivesTheGraceAndMayBeRepeated) {
  StuckService service;
  const auto server = RpcServer::Start({"127.0.0.1:0", ""}, {&service});
  ASSERT_TRUE(server.ok());
  const auto stub = v1::Admin::NewStub(CreateChannel((*server)->address()));
  grpc::ClientContext context;
  context.set_deadline(InAMinute());
  v1::GetServerInfoRequest request;
  v1::ServerInfo response;
  grpc::Status status;
  absl::Notification done;
  stub->async()->GetServerInfo(&context, &request, &response,
                               [&](grpc::Status result) {
                                 status = std::move(result);
                                 done.Notify();
                               });
  service.started.WaitForNotification();
  (*server)->Shutdown(absl::ZeroDuration());
  done.WaitForNotification();
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  (*server)->Shutdown(absl::ZeroDuration());
}

}  // namespace
}  // namespace nacre::rpc
