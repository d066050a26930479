// Servers whose connections are all taken: which makes room, and for which.

#include "common/rpc/callers.h"

#include <arpa/inet.h>
#include <google/protobuf/wrappers.pb.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/client_callback.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "proto/admin.grpc.pb.h"
#include "tests/testing/health_check.h"

namespace nacre::rpc {
namespace {

constexpr absl::Duration kCallersPatience = absl::Minutes(1);

// A connection from a host of its choice: 127.0.0.`host`.
class Caller {
 public:
  Caller(const std::string& server, int host)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval patience = absl::ToTimeval(kCallersPatience);
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(0x7f000000u | static_cast<uint32_t>(host));
    EXPECT_EQ(
        bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
        0);
    int port = 0;
    EXPECT_TRUE(absl::SimpleAtoi(server.substr(server.rfind(':') + 1), &port));
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&address),
                      sizeof(address)),
              0);
  }
  ~Caller() { close(fd_); }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  // The server says its settings first, or hangs up.
  bool IsWelcome() {
    char byte = 0;
    return recv(fd_, &byte, 1, 0) == 1;
  }
  bool HasEnded() {
    char buffer[4096];
    ssize_t received = 0;
    do {
      received = recv(fd_, buffer, sizeof(buffer), MSG_DONTWAIT);
    } while (received > 0);
    return received == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
  }
  // Waits for that.
  bool Ends() {
    char buffer[4096];
    ssize_t received = 0;
    do {
      received = recv(fd_, buffer, sizeof(buffer), 0);
    } while (received > 0);
    return received == 0 || errno == ECONNRESET;
  }

 private:
  const int fd_;
};

// Its calls end when their clients give up.
class PatientService final : public v1::Admin::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext*,
                                          const v1::GetServerInfoRequest*,
                                          v1::ServerInfo*) override {
    class Reactor final : public grpc::ServerUnaryReactor {
      void OnCancel() override { Finish(grpc::Status::CANCELLED); }
      void OnDone() override { delete this; }
    };
    ++num_calls;
    return new Reactor;
  }
  std::atomic<int> num_calls{0};
};

// A call on a connection of its own, from 127.0.0.1.
class LongCall {
 public:
  LongCall(const std::string& address, PatientService* service)
      : channel_(CreateChannel(address)), stub_(v1::Admin::NewStub(channel_)) {
    const int before = service->num_calls;
    stub_->async()->GetServerInfo(&context_, &request_, &response_,
                                  [this](grpc::Status) { done.Notify(); });
    const absl::Time deadline = absl::Now() + kCallersPatience;
    while (service->num_calls == before && absl::Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    EXPECT_GT(service->num_calls, before);
  }
  ~LongCall() { End(); }
  void End() {
    context_.TryCancel();
    done.WaitForNotification();
  }

  absl::Notification done;

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Admin::Stub> stub_;
  grpc::ClientContext context_;
  const v1::GetServerInfoRequest request_;
  v1::ServerInfo response_;
};

class CallersTest : public ::testing::Test {
 protected:
  void Start(int max_connections) {
    RpcServer::Options options;
    options.max_connections = max_connections;
    server_ = *RpcServer::Start(options, {&service_});
  }
  // Connected and greeted.
  std::unique_ptr<Caller> From(int host) {
    auto caller = std::make_unique<Caller>(server_->address(), host);
    EXPECT_TRUE(caller->IsWelcome()) << "from 127.0.0." << host;
    return caller;
  }

  PatientService service_;
  std::unique_ptr<RpcServer> server_;
};

TEST_F(CallersTest, TheOldestOfTheHostThatHasMostMakesRoom) {
  Start(4);
  const auto alone = From(3);
  std::vector<std::unique_ptr<Caller>> many;
  for (int i = 0; i < 3; ++i) many.push_back(From(2));
  const auto another = From(4);
  EXPECT_TRUE(many[0]->Ends());
  const auto next = From(5);
  EXPECT_TRUE(many[1]->Ends());
  for (Caller* stays :
       {alone.get(), many[2].get(), another.get(), next.get()}) {
    EXPECT_FALSE(stays->HasEnded());
  }
}

TEST_F(CallersTest, AHostThatHasAllMakesRoomForItself) {
  Start(2);
  const auto first = From(1);
  const auto second = From(1);
  EXPECT_TRUE(nacre::testing::CheckHealth(server_->address(), "").ok());
  EXPECT_TRUE(first->Ends());
  EXPECT_FALSE(second->HasEnded());
}

TEST_F(CallersTest, AConnectionWithACallStays) {
  Start(3);
  auto first = std::make_unique<LongCall>(server_->address(), &service_);
  const auto second = std::make_unique<LongCall>(server_->address(), &service_);
  const auto idle = From(2);
  {
    // In the place of the one without a call, although its host has fewer.
    const LongCall third(server_->address(), &service_);
    EXPECT_TRUE(idle->Ends());
    for (int i = 0; i < 5; ++i) {
      Caller refused(server_->address(), 2);
      EXPECT_FALSE(refused.IsWelcome());
    }
    EXPECT_FALSE(third.done.HasBeenNotified());
  }
  EXPECT_FALSE(first->done.HasBeenNotified());
  // A call that has ended leaves a connection that can make room.
  first->End();
  const absl::Time deadline = absl::Now() + kCallersPatience;
  bool is_welcome = false;
  while (!is_welcome && absl::Now() < deadline) {
    Caller next(server_->address(), 2);
    is_welcome = next.IsWelcome();
  }
  EXPECT_TRUE(is_welcome);
  EXPECT_FALSE(second->done.HasBeenNotified());
}

// It opens again what is closed, as fast as it can.
TEST_F(CallersTest, AHostThatWantsAllConnectionsKeepsNobodyOut) {
  constexpr size_t kMost = 16;
  Start(kMost);
  const LongCall call(server_->address(), &service_);
  std::atomic<bool> over{false};
  std::atomic<int> num_opened{0};
  std::thread hostile([&] {
    std::vector<std::unique_ptr<Caller>> callers(2 * kMost);
    while (!over) {
      for (auto& caller : callers) {
        if (caller != nullptr && !caller->HasEnded()) continue;
        caller = std::make_unique<Caller>(server_->address(), 2);
        ++num_opened;
      }
    }
  });
  while (num_opened < static_cast<int>(4 * kMost)) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  const auto friendly = From(3);
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(nacre::testing::CheckHealth(server_->address(), "").ok());
  }
  EXPECT_FALSE(friendly->HasEnded());
  EXPECT_FALSE(call.done.HasBeenNotified());
  over = true;
  hostile.join();
}

// A stream of health, as balancers keep it for ever.
class HealthWatch final
    : public grpc::ClientBidiReactor<google::protobuf::StringValue,
                                     google::protobuf::UInt32Value> {
 public:
  explicit HealthWatch(const std::string& address)
      : stub_(CreateChannel(address)) {
    stub_.PrepareBidiStreamingCall(&context_, "/grpc.health.v1.Health/Watch",
                                   grpc::StubOptions(), this);
    StartWriteLast(&request_, grpc::WriteOptions());
    StartRead(&response_);
    StartCall();
  }
  ~HealthWatch() override {
    context_.TryCancel();
    done.WaitForNotification();
  }
  void OnReadDone(bool ok) override {
    if (ok) begun.Notify();
  }
  void OnDone(const grpc::Status&) override { done.Notify(); }

  absl::Notification begun, done;

 private:
  grpc::TemplatedGenericStub<google::protobuf::StringValue,
                             google::protobuf::UInt32Value>
      stub_;
  grpc::ClientContext context_;
  const google::protobuf::StringValue request_;
  google::protobuf::UInt32Value response_;
};

// A stranger may watch health for ever: that must not keep a place.
TEST_F(CallersTest, WhoOnlyWatchesHealthMakesRoom) {
  Start(1);
  HealthWatch watch(server_->address());
  ASSERT_TRUE(watch.begun.WaitForNotificationWithTimeout(kCallersPatience));
  const auto next = From(2);
  EXPECT_TRUE(watch.done.WaitForNotificationWithTimeout(kCallersPatience));
}

TEST(CallersTableTest, AConnectionIsIdleOnceItsLastCallHasEnded) {
  int fds[2] = {-1, -1};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  sockaddr_storage address = {};
  auto& ipv4 = reinterpret_cast<sockaddr_in&>(address);
  ipv4.sin_family = AF_INET;
  ipv4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ipv4.sin_port = htons(4711);
  constexpr char kPeer[] = "ipv4:127.0.0.1:4711";
  Callers callers;
  callers.Add(fds[0], address);
  callers.OnCall(kPeer);
  callers.OnCall(kPeer);
  callers.OnCallEnd(kPeer);
  EXPECT_EQ(callers.EndOldest(1), 0u);
  callers.OnCallEnd(kPeer);
  EXPECT_EQ(callers.EndOldest(1), 1u);
  char byte = 0;
  EXPECT_EQ(recv(fds[1], &byte, 1, MSG_DONTWAIT), 0);
  for (const int fd : fds) close(fd);
}

TEST(CallersTableTest, AConnectionOfIpv6WithACallStays) {
  int fds[2] = {-1, -1};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  sockaddr_storage address = {};
  auto& ipv6 = reinterpret_cast<sockaddr_in6&>(address);
  ipv6.sin6_family = AF_INET6;
  ipv6.sin6_addr = in6addr_loopback;
  ipv6.sin6_port = htons(4711);
  constexpr char kPeer[] = "ipv6:%5B::1%5D:4711";  // as gRPC writes it
  Callers callers;
  callers.Add(fds[0], address);
  callers.OnCall(kPeer);
  EXPECT_EQ(callers.EndOldest(1), 0u);
  callers.OnCallEnd(kPeer);
  EXPECT_EQ(callers.EndOldest(1), 1u);
  for (const int fd : fds) close(fd);
}

// As a port of IPv6 sees 10.0.0.`host`, calling from port `port`.
sockaddr_storage MappedIpv4(uint8_t host, uint16_t port) {
  sockaddr_storage address = {};
  auto& ipv6 = reinterpret_cast<sockaddr_in6&>(address);
  ipv6.sin6_family = AF_INET6;
  ipv6.sin6_port = htons(port);
  const uint8_t bytes[16] = {0, 0, 0,    0,    0,  0, 0, 0,
                             0, 0, 0xff, 0xff, 10, 0, 0, host};
  std::memcpy(&ipv6.sin6_addr, bytes, sizeof(bytes));
  return address;
}

// gRPC names them by IPv4, and each is a host of its own.
TEST(CallersTableTest, HostsOfIpv4StayApartOnAPortOfBothKinds) {
  int fds[4][2];
  Callers callers;
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds[i]), 0);
    // Two connections each; the first host has a call on its first.
    callers.Add(fds[i][0], MappedIpv4(static_cast<uint8_t>(1 + i / 2),
                                      static_cast<uint16_t>(4711 + i)));
  }
  const auto has_ended = [&fds](int i) {
    char byte = 0;
    return recv(fds[i][1], &byte, 1, MSG_DONTWAIT) == 0;
  };
  callers.OnCall("ipv4:10.0.0.1:4711");
  EXPECT_EQ(callers.EndOldest(1), 1u);
  EXPECT_TRUE(has_ended(2));
  for (const int i : {0, 1, 3}) EXPECT_FALSE(has_ended(i)) << i;
  callers.OnCallEnd("ipv4:10.0.0.1:4711");
  for (const auto& pair : fds) {
    for (const int fd : pair) close(fd);
  }
}

}  // namespace
}  // namespace nacre::rpc
