#include "common/rpc/connections.h"

#include <arpa/inet.h>
#include <grpcpp/server_context.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "proto/admin.grpc.pb.h"

namespace nacre::rpc {
namespace {

// Remembers who called last.
class PeerService final : public v1::Admin::CallbackService {
 public:
  grpc::ServerUnaryReactor* DrainWorker(grpc::CallbackServerContext* context,
                                        const v1::DrainWorkerRequest*,
                                        v1::DrainWorkerResponse*) override {
    {
      absl::MutexLock lock(&mu_);
      peer_ = context->peer();
    }
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  std::string peer() const {
    absl::MutexLock lock(&mu_);
    return peer_;
  }

 private:
  mutable absl::Mutex mu_;
  std::string peer_;
};

class ConnectionsTest : public ::testing::TestWithParam<const char*> {
 protected:
  bool Call(const std::shared_ptr<grpc::Channel>& channel, size_t bytes) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Minutes(1)));
    v1::DrainWorkerRequest request;
    request.set_address(std::string(bytes, 'x'));
    v1::DrainWorkerResponse response;
    return v1::Admin::NewStub(channel)
        ->DrainWorker(&context, request, &response)
        .ok();
  }

  PeerService service_;
  const std::shared_ptr<Connections> connections_ =
      std::make_shared<Connections>();
};

// The parameter: an address to listen at, and the client's to call.
TEST_P(ConnectionsTest, TellWhatHasComeFromAPeer) {
  RpcServer::Options options;
  options.listen = GetParam();
  options.max_connections = 4;
  options.connections = connections_;
  const auto server = RpcServer::Start(options, {&service_});
  if (!server.ok()) GTEST_SKIP() << "no such address here";
  const auto channel = CreateChannel((*server)->address());
  ASSERT_TRUE(Call(channel, 1000));
  EXPECT_EQ(connections_->size(), 1u);
  const std::string peer = service_.peer();
  const auto before = connections_->Received(peer);
  ASSERT_TRUE(before.has_value()) << peer;
  EXPECT_GE(*before, 1000);
  ASSERT_TRUE(Call(channel, 100'000));
  EXPECT_EQ(service_.peer(), peer);
  const int64_t more = connections_->Received(peer).value_or(0) - *before;
  EXPECT_GE(more, 100'000);
  EXPECT_LE(more, 110'000);
  EXPECT_FALSE(connections_->Received("ipv4:127.0.0.1:1").has_value());
}

INSTANTIATE_TEST_SUITE_P(Addresses, ConnectionsTest,
                         ::testing::Values("127.0.0.1:0", "[::1]:0"));

TEST_F(ConnectionsTest, AreForgottenWhenTheyAreClosed) {
  RpcServer::Options options;
  options.max_connections = 4;
  options.connections = connections_;
  const auto server = *RpcServer::Start(options, {&service_});
  {
    const auto channel = CreateChannel(server->address());
    ASSERT_TRUE(Call(channel, 10));
  }
  const absl::Time deadline = absl::Now() + absl::Minutes(1);
  while (connections_->Received(service_.peer()).has_value() &&
         absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_FALSE(connections_->Received(service_.peer()).has_value());
  connections_->Sweep();
  EXPECT_EQ(connections_->size(), 0u);
}

// Two connected ends: the accepted one has a peer with a port.
class Loopback {
 public:
  // `port` is the client's; 0: any.
  explicit Loopback(int listener, uint16_t port = 0)
      : client_(socket(AF_INET, SOCK_STREAM, 0)) {
    const int reuse = 1;
    setsockopt(client_, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse));
    // The port is free at once when it is closed.
    const linger reset = {1, 0};
    setsockopt(client_, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    sockaddr_in address = {};
    socklen_t size = sizeof(address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    EXPECT_EQ(bind(client_, reinterpret_cast<sockaddr*>(&address), size), 0);
    getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
    EXPECT_EQ(connect(client_, reinterpret_cast<sockaddr*>(&address), size), 0);
    accepted_ = accept(listener, nullptr, nullptr);
    EXPECT_GE(accepted_, 0);
  }
  ~Loopback() {
    close(client_);
    close(accepted_);
  }
  Loopback(const Loopback&) = delete;
  Loopback& operator=(const Loopback&) = delete;
  int fd() const { return accepted_; }
  uint16_t port() const {
    sockaddr_in address = {};
    socklen_t size = sizeof(address);
    getsockname(client_, reinterpret_cast<sockaddr*>(&address), &size);
    return ntohs(address.sin_port);
  }
  std::string peer() const { return absl::StrCat("ipv4:127.0.0.1:", port()); }

 private:
  const int client_;
  int accepted_ = -1;
};

class Listener {
 public:
  Listener() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)),
              0);
    EXPECT_EQ(listen(fd_, 16), 0);
  }
  ~Listener() { close(fd_); }
  int fd() const { return fd_; }

 private:
  const int fd_;
};

// Thousands that come and go between two sweeps leave nothing.
TEST(ConnectionTableTest, ADescriptorIsOneConnectionAtATime) {
  const Listener listener;
  Connections connections;
  int first_fd = -1;
  std::string last_peer;
  for (int i = 0; i < 3; ++i) {
    const Loopback connection(listener.fd());
    if (i == 0) first_fd = connection.fd();
    ASSERT_EQ(connection.fd(), first_fd);  // the lowest that is free
    connections.Add(connection.fd());
    EXPECT_EQ(connections.size(), 1u);
    EXPECT_TRUE(connections.Received(connection.peer()).has_value());
    if (!last_peer.empty()) {
      EXPECT_FALSE(connections.Received(last_peer).has_value());
    }
    last_peer = connection.peer();
  }
  EXPECT_FALSE(connections.Received(last_peer).has_value());
  connections.Sweep();
  EXPECT_EQ(connections.size(), 0u);
}

// A client may come back from the same port before a sweep.
TEST(ConnectionTableTest, WhatClosedTakesNothingFromASuccessorOfItsPeer) {
  const Listener listener;
  Connections connections;
  int former_fd = -1;
  uint16_t port = 0;
  {
    const Loopback former(listener.fd());
    former_fd = former.fd();
    port = former.port();
    connections.Add(former_fd);
  }
  const int another = dup(listener.fd());  // takes a number that is free
  const Loopback connection(listener.fd(), port);
  ASSERT_NE(connection.fd(), former_fd);
  connections.Add(connection.fd());
  connections.Sweep();
  EXPECT_EQ(connections.size(), 1u);
  EXPECT_TRUE(connections.Received(connection.peer()).has_value());
  close(another);
}

// What another connection receives is nothing of a closed one's peer.
TEST(ConnectionTableTest, ANumberThatIsInUseAgainTellsNothingOfItsFormerPeer) {
  const Listener listener;
  Connections connections;
  int former_fd = -1;
  std::string former_peer;
  {
    const Loopback former(listener.fd());
    former_fd = former.fd();
    former_peer = former.peer();
    connections.Add(former_fd);
    EXPECT_TRUE(connections.Received(former_peer).has_value());
  }
  const Loopback connection(listener.fd());
  ASSERT_EQ(connection.fd(), former_fd);
  EXPECT_FALSE(connections.Received(former_peer).has_value());
}

TEST(ConnectionTableTest, WhatIsNoPeerOfTcpIsUnknown) {
  const Connections connections;
  for (const char* peer :
       {"", "unix:", "unix:/tmp/x", "ipv4:", "ipv4:127.0.0.1",
        "ipv4:127.0.0.1:70000", "ipv4:1.2.3:4", "ipv6:::1:4", "ipv6:[::1]",
        "ipv6:[fe80::1%eth0]:4", "ipv6:%5B::1:4"}) {
    EXPECT_FALSE(connections.Received(peer).has_value()) << peer;
  }
}

}  // namespace
}  // namespace nacre::rpc
