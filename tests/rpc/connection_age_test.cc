// A server that sends old connections away, and the calls on them.

#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "proto/inference.grpc.pb.h"

namespace nacre::rpc {
namespace {

constexpr int kHeldChunks = 20;

std::chrono::system_clock::time_point InTwoMinutes() {
  return std::chrono::system_clock::now() + std::chrono::minutes(2);
}

// Says which connection a call came on, and streams an answer of which the
// second half waits.
class AgingService : public v1::Inference::Service {
 public:
  grpc::Status GetModel(grpc::ServerContext* context,
                        const v1::GetModelRequest*,
                        v1::Model* response) override {
    response->set_name(context->peer());
    return grpc::Status::OK;
  }
  grpc::Status Generate(
      grpc::ServerContext* context, const v1::GenerateRequest*,
      grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    for (int i = 0; i < kHeldChunks; ++i) {
      if (i == kHeldChunks / 2) goes_on.WaitForNotification();
      v1::GenerateResponse response;
      response.set_request_id(context->peer());
      response.mutable_chunk()->set_first_index(i);
      writer->Write(response);
    }
    return grpc::Status::OK;
  }

  absl::Notification goes_on;
};

// With gRPC's listener (0) and with ours.
class ConnectionAgeTest : public ::testing::TestWithParam<int> {
 protected:
  std::string Peer() {
    grpc::ClientContext context;
    context.set_deadline(InTwoMinutes());
    v1::Model model;
    const grpc::Status status = stub_->GetModel(&context, {}, &model);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return model.name();
  }

  AgingService service_;
  const std::unique_ptr<RpcServer> server_ = [this] {
    RpcServer::Options options;
    options.max_connections = GetParam();
    options.max_age = absl::Milliseconds(100);
    return *RpcServer::Start(options, {&service_});
  }();
  const std::unique_ptr<v1::Inference::Stub> stub_ =
      v1::Inference::NewStub(CreateChannel(server_->address()));
};

TEST_P(ConnectionAgeTest, ALongStreamEndsWholeAndTheNextCallTakesAnother) {
  grpc::ClientContext context;
  context.set_deadline(InTwoMinutes());
  const auto reader = stub_->Generate(&context, {});
  v1::GenerateResponse response;
  int next = 0;
  std::string peer;
  const auto read = [&] {
    ASSERT_TRUE(reader->Read(&response)) << next;
    ASSERT_EQ(response.chunk().first_index(), static_cast<uint32_t>(next++));
    peer = response.request_id();
  };
  while (next < kHeldChunks / 2) ASSERT_NO_FATAL_FAILURE(read());
  const std::string first = peer;
  // Each call succeeds, at whatever moment the connection gets too old.
  const absl::Time deadline = absl::Now() + absl::Minutes(1);
  while (Peer() == first && absl::Now() < deadline) {
  }
  EXPECT_NE(Peer(), first);
  service_.goes_on.Notify();
  while (next < kHeldChunks) ASSERT_NO_FATAL_FAILURE(read());
  EXPECT_FALSE(reader->Read(&response));
  const grpc::Status status = reader->Finish();
  // gRPC closes the connection with its last call: a client that writes at that
  // moment may miss the status, and has every message.
  EXPECT_TRUE(status.ok() ||
              status.error_code() == grpc::StatusCode::UNAVAILABLE)
      << status.error_message();
  EXPECT_EQ(peer, first);
}

INSTANTIATE_TEST_SUITE_P(Listeners, ConnectionAgeTest, ::testing::Values(0, 8),
                         [](const auto& info) {
                           return absl::StrCat("Of", info.param);
                         });

}  // namespace
}  // namespace nacre::rpc
