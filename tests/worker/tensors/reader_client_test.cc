// The reading end against peers that say what they should not, and none.

#include "worker/tensors/reader_client.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>

#include "absl/synchronization/notification.h"
#include "common/rpc/server.h"
#include "tests/testing/fault_proxy.h"
#include "tests/worker/tensors/random_tensor.h"
#include "tests/worker/tensors/recording_sink.h"
#include "worker/tensors/chunk_convert.h"
#include "worker/tensors/publisher_service.h"

namespace nacre::worker {
namespace {

using nacre::testing::FaultProxy;
using ::testing::HasSubstr;

// Says what a test wants once a reader has subscribed.
class ScriptedPeer final : public v1::Tensors::Service {
 public:
  using Stream = grpc::ServerReaderWriter<v1::TensorEvent, v1::TensorRequest>;
  explicit ScriptedPeer(std::function<grpc::Status(Stream*)> script)
      : script_(std::move(script)),
        server_(*rpc::RpcServer::Start({}, {this})) {}
  ~ScriptedPeer() override { server_->Shutdown(absl::ZeroDuration()); }

  grpc::Status Read(grpc::ServerContext*, Stream* stream) override {
    v1::TensorRequest request;
    if (!stream->Read(&request)) return grpc::Status::OK;
    const grpc::Status status = script_(stream);
    while (status.ok() && stream->Read(&request)) {
    }
    return status;
  }
  const std::string& address() const { return server_->address(); }

  static v1::TensorEvent Chunk(const Tensor& tensor) {
    v1::TensorEvent event;
    FillChunk(ChunkAt(Encode(tensor), 0), event.mutable_chunk());
    return event;
  }

 private:
  const std::function<grpc::Status(Stream*)> script_;
  const std::unique_ptr<rpc::RpcServer> server_;
};

TEST(TensorReaderClient, WhatMakesNoSenseIsCountedAndDropped) {
  ScriptedPeer peer([](ScriptedPeer::Stream* stream) {
    const v1::TensorEvent good = ScriptedPeer::Chunk(RandomTensor(5, 1, 8));
    v1::TensorEvent bad = good;
    bad.mutable_chunk()->set_type(v1::ELEMENT_TYPE_UNSPECIFIED);
    stream->Write(bad);
    bad = good;
    bad.mutable_chunk()->set_offset(4);
    stream->Write(bad);
    bad = good;
    bad.mutable_chunk()->set_type(v1::ELEMENT_TYPE_BF16);
    bad.mutable_chunk()->mutable_data()->resize(15);
    stream->Write(bad);
    bad = good;
    bad.mutable_chunk()->clear_data();
    stream->Write(bad);
    stream->Write(v1::TensorEvent());  // nothing
    // Of a channel that is not read: no fault.
    stream->Write(ScriptedPeer::Chunk(RandomTensor(6, 1, 8)));
    stream->Write(good);
    return grpc::Status::OK;
  });
  TensorReaderClient reader({});
  const auto sink = std::make_shared<RecordingSink>();
  reader.Subscribe({peer.address(), 5, 8, sink});
  EXPECT_EQ(ValuesOf(sink->AwaitTensor().tensor),
            ValuesOf(RandomTensor(5, 1, 8)));
  EXPECT_EQ(sink->num_tensors(), 0u);
  const TensorReader::Stats stats = reader.stats();
  EXPECT_EQ(stats.malformed, 4u);
  EXPECT_EQ(stats.received, 1u);
  EXPECT_EQ(stats.received_bytes, 8 * sizeof(float));
  EXPECT_EQ(stats.lost_channels, 0u);
}

TEST(TensorReaderClient, ATensorOfAnotherSizeEndsItsChannelAlone) {
  ScriptedPeer peer([](ScriptedPeer::Stream* stream) {
    v1::TensorRequest second;
    stream->Read(&second);
    stream->Write(ScriptedPeer::Chunk(RandomTensor(5, 1, 9)));
    stream->Write(ScriptedPeer::Chunk(RandomTensor(6, 1, 9)));
    return grpc::Status::OK;
  });
  TensorReaderClient reader({});
  const auto wrong = std::make_shared<RecordingSink>();
  const auto right = std::make_shared<RecordingSink>();
  reader.Subscribe({peer.address(), 5, 8, wrong});
  reader.Subscribe({peer.address(), 6, 9, right});
  const auto [channel, status] = wrong->AwaitLoss();
  EXPECT_EQ(channel, 5u);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("8 values"));
  right->AwaitTensor();
  EXPECT_EQ(reader.stats().received, 1u);
  EXPECT_EQ(reader.stats().lost_channels, 1u);
}

// A session may have moved: its channel is another worker's now.
TEST(TensorReaderClient, WhatAnotherWorkerSaysOfAChannelIsNothing) {
  absl::Notification moved;
  ScriptedPeer former([&moved](ScriptedPeer::Stream* stream) {
    moved.WaitForNotification();
    stream->Write(ScriptedPeer::Chunk(RandomTensor(5, 1, 8)));
    stream->Write(ScriptedPeer::Chunk(RandomTensor(6, 1, 8)));
    return grpc::Status::OK;
  });
  ScriptedPeer present([](ScriptedPeer::Stream*) { return grpc::Status::OK; });
  TensorReaderClient reader({});
  const auto sink = std::make_shared<RecordingSink>();
  const auto other = std::make_shared<RecordingSink>();
  reader.Subscribe({former.address(), 5, 8, sink});
  reader.Subscribe({former.address(), 6, 8, other});
  reader.Unsubscribe(5);
  reader.Subscribe({present.address(), 5, 8, sink});
  moved.Notify();
  other->AwaitTensor();
  EXPECT_EQ(sink->num_tensors(), 0u);
  EXPECT_EQ(reader.stats().malformed, 0u);
}

TEST(TensorReaderClient, AnErrorEndsItsChannelAlone) {
  ScriptedPeer peer([](ScriptedPeer::Stream* stream) {
    v1::TensorRequest second;
    stream->Read(&second);
    v1::TensorEvent event;
    event.mutable_error()->set_channel(5);
    event.mutable_error()->set_code(grpc::StatusCode::RESOURCE_EXHAUSTED);
    event.mutable_error()->set_message("too many");
    stream->Write(event);
    event.mutable_error()->set_channel(99);
    stream->Write(event);
    stream->Write(ScriptedPeer::Chunk(RandomTensor(6, 1, 9)));
    return grpc::Status::OK;
  });
  TensorReaderClient reader({});
  const auto refused = std::make_shared<RecordingSink>();
  const auto other = std::make_shared<RecordingSink>();
  reader.Subscribe({peer.address(), 5, 8, refused});
  reader.Subscribe({peer.address(), 6, 9, other});
  EXPECT_EQ(refused->AwaitLoss().second,
            absl::ResourceExhaustedError("too many"));
  other->AwaitTensor();
}

TEST(TensorReaderClient, AnAddressThatNobodyServesIsALoss) {
  FaultProxy nobody([] { return ""; });  // resets every connection
  TensorReaderClient reader({});
  const auto sink = std::make_shared<RecordingSink>();
  reader.Subscribe({nobody.address(), 5, 8, sink});
  EXPECT_EQ(sink->AwaitLoss().second.code(), absl::StatusCode::kUnavailable);
  // A worker that does not publish.
  const auto server = *rpc::RpcServer::Start({}, {});
  reader.Subscribe({server->address(), 5, 8, sink});
  EXPECT_EQ(sink->AwaitLoss().second.code(), absl::StatusCode::kUnimplemented);
}

TEST(TensorReaderClient, ALostConnectionEndsItsChannelsAndTheNextDialsAnew) {
  TensorPublisherService publisher;
  const auto server = *rpc::RpcServer::Start({}, {&publisher});
  FaultProxy proxy([&] { return server->address(); });
  TensorReaderClient reader({});
  const auto sink = std::make_shared<RecordingSink>();
  reader.Subscribe({proxy.address(), 5, 8, sink});
  reader.Subscribe({proxy.address(), 6, 8, sink});
  ASSERT_TRUE(Eventually([&] { return publisher.stats().subscriptions == 2; }));
  EXPECT_EQ(proxy.connections(), 1);
  proxy.Cut();
  EXPECT_EQ(sink->AwaitLoss().first + sink->AwaitLoss().first, 11u);
  reader.Subscribe({proxy.address(), 5, 8, sink});
  ASSERT_TRUE(Eventually([&] { return publisher.HasReaders(5); }));
  ASSERT_TRUE(Eventually([&] { return publisher.stats().subscriptions == 1; }));
  publisher.Publish(RandomTensor(5, 4, 8));
  EXPECT_EQ(sink->AwaitTensor().tensor.tag.position, 4);
  publisher.EndReaders(absl::OkStatus());
  sink->AwaitLoss();
  server->Shutdown(absl::Seconds(10));
}

TEST(TensorReaderClient, WithoutItNoSinkIsCalled) {
  const auto sink = std::make_shared<RecordingSink>();
  TensorPublisherService publisher;
  const auto server = *rpc::RpcServer::Start({}, {&publisher});
  {
    TensorReaderClient reader({});
    reader.Subscribe({server->address(), 5, 8, sink});
  }
  EXPECT_EQ(sink.use_count(), 1);
  server->Shutdown(absl::ZeroDuration());
}

}  // namespace
}  // namespace nacre::worker
