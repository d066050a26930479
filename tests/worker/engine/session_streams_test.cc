#include "worker/engine/session_streams.h"

#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
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
      {[this](StreamId, const wire::TargetCommands&) { ++num_messages; },
       [this](StreamId id) {
         wire::TargetEvents events;
         events.common.closed.push_back(7);
         streams.Send(id, events);
         if (++num_ends == 1 && on_first_end) on_first_end();
       }}};
  std::function<void()> on_first_end;
  std::atomic<int> num_messages{0};
  std::atomic<int> num_ends{0};
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

// Of a stream whose end the engine knows it would open sessions that none
// closes.
TEST(SessionStreamsTest, AnAbandonedStreamBringsNothingMore) {
  StreamsService service;
  const auto server = *rpc::RpcServer::Start({}, {&service});
  const auto stub =
      v1::TargetWorker::NewStub(rpc::CreateChannel(server->address()));
  const auto deadline =
      std::chrono::system_clock::now() + std::chrono::minutes(1);
  grpc::ClientContext context;
  context.set_deadline(deadline);
  const auto stream = stub->Session(&context);
  v1::TargetControl control;
  control.mutable_ping()->set_coordinator_ns(3);
  ASSERT_TRUE(stream->Write(control));
  v1::TargetEvent event;
  ASSERT_TRUE(stream->Read(&event));
  service.on_first_end = [&] {
    v1::TargetControl close;
    close.add_close()->set_session_id(7);
    EXPECT_TRUE(stream->Write(close));
    // What comes later on the same connection is answered, again and again.
    grpc::ClientContext other_context;
    other_context.set_deadline(deadline);
    const auto other = stub->Session(&other_context);
    for (int i = 0; i < 20; ++i) {
      EXPECT_TRUE(other->Write(control));
      EXPECT_TRUE(other->Read(&event));
    }
    EXPECT_TRUE(other->WritesDone());
    EXPECT_TRUE(other->Finish().ok());
  };
  service.streams.Abandon();
  EXPECT_FALSE(stream->Read(&event)) << event.ShortDebugString();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  server->Shutdown(absl::ZeroDuration());
  EXPECT_EQ(service.num_messages, 1 + 20);
  // Of the other stream, and twice of the abandoned one.
  EXPECT_EQ(service.num_ends, 3);
}

}  // namespace
}  // namespace nacre::worker
