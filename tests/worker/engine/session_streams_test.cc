#include "worker/engine/session_streams.h"

#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <utility>

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
       },
       [this](uint64_t coordinator, const wire::KvReport& report) {
         reporter = coordinator;
         reported = report.reserved;
       }}};
  std::function<void()> on_first_end;
  std::atomic<int> num_messages{0};
  std::atomic<int> num_ends{0};
  std::atomic<uint64_t> reporter{0};
  std::atomic<int64_t> reported{0};
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
  service.streams.Abandon(0);
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
  service.streams.Abandon(0);
  EXPECT_FALSE(stream->Read(&event)) << event.ShortDebugString();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  server->Shutdown(absl::ZeroDuration());
  EXPECT_EQ(service.num_messages, 1 + 20);
  // Of the other stream, and twice of the abandoned one.
  EXPECT_EQ(service.num_ends, 3);
}

// One coordinator's stream.
class StreamOf {
 public:
  StreamOf(v1::TargetWorker::Stub* stub, uint64_t coordinator)
      : coordinator_(coordinator) {
    context_.set_deadline(std::chrono::system_clock::now() +
                          std::chrono::minutes(1));
    stream_ = stub->Session(&context_);
  }
  // What its ping is answered with: all that was written before has come.
  uint64_t Ping(v1::TargetControl control = {}) {
    return PingAs(coordinator_, std::move(control));
  }
  uint64_t PingAs(uint64_t coordinator, v1::TargetControl control = {}) {
    control.mutable_ping()->set_coordinator(coordinator);
    EXPECT_TRUE(stream_->Write(control));
    v1::TargetEvent event;
    EXPECT_TRUE(stream_->Read(&event));
    return event.pong().attachment();
  }
  grpc::StatusCode End() {
    v1::TargetEvent event;
    EXPECT_FALSE(stream_->Read(&event)) << event.ShortDebugString();
    return stream_->Finish().error_code();
  }

 private:
  const uint64_t coordinator_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::TargetControl, v1::TargetEvent>>
      stream_;
};

TEST(SessionStreamsTest, CoordinatorsAreApart) {
  StreamsService service;
  const auto server = *rpc::RpcServer::Start({}, {&service});
  const auto stub =
      v1::TargetWorker::NewStub(rpc::CreateChannel(server->address()));
  service.streams.SetAttachment(1, 11);
  service.streams.SetAttachment(2, 22);
  StreamOf first(stub.get(), 1);
  StreamOf second(stub.get(), 2);
  EXPECT_EQ(first.Ping(), 11u);
  EXPECT_EQ(second.Ping(), 22u);
  v1::TargetControl control;
  control.mutable_kept();
  control.mutable_kv_report()->set_reserved_tokens(48);
  second.Ping(control);
  second.Ping();
  EXPECT_EQ(service.streams.kept_lists(1), 0u);
  EXPECT_EQ(service.streams.kept_lists(2), 1u);
  EXPECT_EQ(service.reporter, 2u);
  EXPECT_EQ(service.reported, 48);
  service.streams.Abandon(1);
  EXPECT_EQ(first.End(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(second.Ping(), 22u);
  server->Shutdown(absl::ZeroDuration());
}

TEST(SessionStreamsTest, AStreamStaysItsFirstCoordinators) {
  StreamsService service;
  const auto server = *rpc::RpcServer::Start({}, {&service});
  const auto stub =
      v1::TargetWorker::NewStub(rpc::CreateChannel(server->address()));
  service.streams.SetAttachment(1, 11);
  service.streams.SetAttachment(2, 22);
  StreamOf first(stub.get(), 1);
  EXPECT_EQ(first.Ping(), 11u);
  EXPECT_EQ(first.PingAs(2), 11u);
  service.streams.Abandon(2);
  EXPECT_EQ(first.Ping(), 11u);
  // Nothing is kept of a number that no attachment has.
  StreamOf unknown(stub.get(), 3);
  v1::TargetControl control;
  control.mutable_kept();
  EXPECT_EQ(unknown.Ping(control), 0u);
  EXPECT_EQ(unknown.Ping(), 0u);
  EXPECT_EQ(service.streams.kept_lists(3), 0u);
  service.streams.Abandon(1);
  EXPECT_EQ(first.End(), grpc::StatusCode::UNAVAILABLE);
  server->Shutdown(absl::ZeroDuration());
}

}  // namespace
}  // namespace nacre::worker
