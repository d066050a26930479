#include "worker/engine/session_streams.h"

#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>

#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "proto/worker.grpc.pb.h"

namespace nacre::worker {
namespace {

// Whenever a stream ends, it tries to say so there.
class StreamsService final : public v1::TargetWorker::CallbackService {
 public:
  grpc::ServerBidiReactor<v1::TargetControl, v1::TargetEvent>* Session(
      grpc::CallbackServerContext*) override {
    return streams.Open();
  }

  SessionStreams<v1::TargetControl, v1::TargetEvent> streams{
      {[](StreamId, const wire::TargetCommands&) {},
       [this](StreamId id) {
         wire::TargetEvents events;
         events.common.closed.push_back(7);
         streams.Send(id, events);
       }}};
};

// It is not open any more for the engine, which hears of it first.
TEST(SessionStreamsTest, AnAbandonedStreamIsGoneWhenItsEndIsTold) {
  StreamsService service;
  const auto server = *rpc::RpcServer::Start({}, {&service});
  const auto stub =
      v1::TargetWorker::NewStub(rpc::CreateChannel(server->address()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::minutes(1));
  const auto stream = stub->Session(&context);
  v1::TargetControl control;
  control.mutable_ping()->set_coordinator_ns(3);
  ASSERT_TRUE(stream->Write(control));
  v1::TargetEvent event;
  ASSERT_TRUE(stream->Read(&event));
  EXPECT_EQ(event.pong().coordinator_ns(), 3u);
  service.streams.Abandon();
  EXPECT_FALSE(stream->Read(&event)) << event.ShortDebugString();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  server->Shutdown(absl::ZeroDuration());
}

}  // namespace
}  // namespace nacre::worker
