#include "common/rpc/channel.h"

#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "common/rpc/server.h"
#include "proto/admin.grpc.pb.h"

namespace nacre::rpc {
namespace {

std::chrono::system_clock::time_point InAMinute() {
  return std::chrono::system_clock::now() + std::chrono::minutes(1);
}

// One call tells how many bytes arrived, the other answers with 8 MiB.
class EchoService : public v1::Admin::CallbackService {
 public:
  grpc::ServerUnaryReactor* ListSessions(
      grpc::CallbackServerContext* context, const v1::ListSessionsRequest*,
      v1::ListSessionsResponse* response) override {
    response->add_sessions()->set_request_id(std::string(size_t{8} << 20, 'x'));
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  grpc::ServerUnaryReactor* DrainWorker(grpc::CallbackServerContext* context,
                                        const v1::DrainWorkerRequest* request,
                                        v1::DrainWorkerResponse*) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status(grpc::StatusCode::ABORTED,
                                 std::to_string(request->address().size())));
    return reactor;
  }
};

class ChannelTest : public ::testing::Test {
 protected:
  ChannelTest()
      : server_(*RpcServer::Start({"127.0.0.1:0", ""}, {&service_})),
        stub_(v1::Admin::NewStub(CreateChannel(server_->address()))) {}

  grpc::Status SendBytes(size_t size) {
    grpc::ClientContext context;
    context.set_deadline(InAMinute());
    v1::DrainWorkerRequest request;
    request.set_address(std::string(size, 'x'));
    v1::DrainWorkerResponse response;
    return stub_->DrainWorker(&context, request, &response);
  }

  EchoService service_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<v1::Admin::Stub> stub_;
};

TEST_F(ChannelTest, MessagesOverTheDefaultOf4MiBPassBothWays) {
  const grpc::Status sent = SendBytes(size_t{8} << 20);
  EXPECT_EQ(sent.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(sent.error_message(), "8388608");

  grpc::ClientContext context;
  context.set_deadline(InAMinute());
  v1::ListSessionsResponse response;
  ASSERT_TRUE(stub_->ListSessions(&context, {}, &response).ok());
  EXPECT_EQ(response.sessions(0).request_id().size(), size_t{8} << 20);
}

TEST_F(ChannelTest, AMessageOverTheLimitIsResourceExhausted) {
  EXPECT_EQ(SendBytes(kMaxMessageBytes).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
}

// What a few bytes would become is not known before.
TEST_F(ChannelTest, CompressedMessagesAreUnimplemented) {
  for (const auto algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    grpc::ClientContext context;
    context.set_deadline(InAMinute());
    context.set_compression_algorithm(algorithm);
    v1::DrainWorkerRequest request;
    request.set_address(std::string(size_t{1} << 20, 'x'));
    v1::DrainWorkerResponse response;
    EXPECT_EQ(stub_->DrainWorker(&context, request, &response).error_code(),
              grpc::StatusCode::UNIMPLEMENTED);
  }
}

TEST_F(ChannelTest, ReconnectsToAServerThatComesBack) {
  EXPECT_EQ(SendBytes(1).error_code(), grpc::StatusCode::ABORTED);
  const std::string address = server_->address();
  server_->Shutdown(absl::ZeroDuration());
  EXPECT_EQ(SendBytes(1).error_code(), grpc::StatusCode::UNAVAILABLE);
  server_ = *RpcServer::Start({address, ""}, {&service_});
  grpc::ClientContext context;
  context.set_deadline(InAMinute());
  context.set_wait_for_ready(true);
  v1::DrainWorkerResponse response;
  EXPECT_EQ(stub_->DrainWorker(&context, {}, &response).error_code(),
            grpc::StatusCode::ABORTED);
}

TEST_F(ChannelTest, NobodyThereIsUnavailable) {
  const std::string address = server_->address();
  server_->Shutdown(absl::ZeroDuration());
  const auto stub = v1::Admin::NewStub(CreateChannel(address));
  grpc::ClientContext context;
  context.set_deadline(InAMinute());
  v1::ServerInfo response;
  EXPECT_EQ(stub->GetServerInfo(&context, {}, &response).error_code(),
            grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace nacre::rpc
