#include "common/rpc/connections.h"

#include <grpcpp/server_context.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

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
  EXPECT_EQ(connections_->size(), 1u);
  connections_->Sweep();
  EXPECT_EQ(connections_->size(), 0u);
}

}  // namespace
}  // namespace nacre::rpc
