// What may come in on all connections of a server together.

#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "proto/admin.grpc.pb.h"

namespace nacre::rpc {
namespace {

class TakingService final : public v1::Admin::CallbackService {
 public:
  grpc::ServerUnaryReactor* DrainWorker(grpc::CallbackServerContext* context,
                                        const v1::DrainWorkerRequest*,
                                        v1::DrainWorkerResponse*) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

grpc::Status SendTo(int64_t max_memory_bytes, size_t request_bytes) {
  TakingService service;
  RpcServer::Options options;
  options.max_memory_bytes = max_memory_bytes;
  const auto server = *RpcServer::Start(options, {&service});
  const auto stub = v1::Admin::NewStub(CreateChannel(server->address()));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Minutes(1)));
  v1::DrainWorkerRequest request;
  request.set_address(std::string(request_bytes, 'x'));
  v1::DrainWorkerResponse response;
  return stub->DrainWorker(&context, request, &response);
}

TEST(RpcServerMemoryTest, WhatDoesNotFitEndsItsCall) {
  constexpr size_t kRequest = size_t{12} << 20;
  const grpc::Status fits = SendTo(int64_t{64} << 20, kRequest);
  EXPECT_TRUE(fits.ok()) << fits.error_message();
  const grpc::Status does_not = SendTo(int64_t{1} << 20, kRequest);
  EXPECT_FALSE(does_not.ok());
  EXPECT_NE(does_not.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(SendTo(int64_t{1} << 20, 1000).ok());
}

}  // namespace
}  // namespace nacre::rpc
