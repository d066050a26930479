// Both ends of the transport over a real server, and readers that the other end
// did not bargain for.

#include "worker/tensors/publisher_service.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "tests/testing/device_backend.h"
#include "tests/testing/raw_call.h"
#include "tests/worker/tensors/random_tensor.h"
#include "tests/worker/tensors/recording_sink.h"
#include "worker/tensors/chunk_convert.h"
#include "worker/tensors/reader_client.h"

namespace nacre::worker {
namespace {

class PublisherServiceTest : public ::testing::Test {
 protected:
  PublisherServiceTest() {
    server_ = *rpc::RpcServer::Start({}, {&publisher_});
    stub_ = v1::Tensors::NewStub(rpc::CreateChannel(server_->address()));
  }
  ~PublisherServiceTest() override { Stop(); }
  void Stop() {
    publisher_.EndReaders(absl::UnavailableError("stopping"));
    server_->Shutdown(absl::Seconds(10));
    EXPECT_EQ(publisher_.stats().readers, 0);
  }

  std::shared_ptr<RecordingSink> Subscribe(TensorReader& reader,
                                           uint64_t channel, size_t size) {
    auto sink = std::make_shared<RecordingSink>();
    const int before = publisher_.stats().subscriptions;
    reader.Subscribe({server_->address(), channel, size, sink});
    EXPECT_TRUE(
        Eventually([&] { return publisher_.stats().subscriptions > before; }));
    return sink;
  }
  static v1::TensorRequest Request(const std::vector<uint64_t>& subscribe) {
    v1::TensorRequest request;
    for (const uint64_t id : subscribe) request.add_subscribe(id);
    return request;
  }

  TensorPublisherService publisher_;
  std::unique_ptr<rpc::RpcServer> server_;
  std::unique_ptr<v1::Tensors::Stub> stub_;
};

TEST_F(PublisherServiceTest, EveryReaderOfAChannelGetsItsTensors) {
  TensorReaderClient first({}), second({});
  EXPECT_FALSE(publisher_.HasReaders(5));
  const auto a = Subscribe(first, 5, 100);
  const auto b = Subscribe(second, 5, 100);
  const auto other = Subscribe(second, 6, 100);
  EXPECT_TRUE(publisher_.HasReaders(5));
  for (int position = 0; position < 20; ++position) {
    const Tensor sent = RandomTensor(5, position, 100);
    publisher_.Publish(sent);
    for (const auto& sink : {a, b}) {
      const ReceivedTensor received = sink->AwaitTensor();
      EXPECT_EQ(received.tensor.tag, sent.tag);
      EXPECT_EQ(received.tensor.shape, sent.shape);
      EXPECT_EQ(ValuesOf(received.tensor), ValuesOf(sent));
      EXPECT_GT(received.received_ns, 0);
    }
  }
  publisher_.Publish(RandomTensor(6, 1, 100));
  EXPECT_EQ(other->AwaitTensor().tensor.tag.channel, 6u);
  EXPECT_EQ(other->num_tensors(), 0u);
  // Each reader's is one; a write is counted after its bytes have left.
  EXPECT_TRUE(Eventually([&] { return publisher_.stats().sent == 41; }));
  EXPECT_EQ(publisher_.stats().sent_bytes, 41 * 100 * sizeof(float));
  EXPECT_EQ(first.stats().received, 20u);
  EXPECT_EQ(first.stats().received_bytes, 20 * 100 * sizeof(float));
  EXPECT_EQ(second.stats().received, 21u);
}

// One copy for all readers, before Publish returns; none where none reads.
TEST_F(PublisherServiceTest, WhatLiesOnADeviceIsCopiedOnce) {
  nacre::testing::DeviceBackend device;
  std::vector<float> memory = {1, 2, 3, 4};
  Tensor tensor = RandomTensor(5, 3, 3);
  tensor.values = kernels::FloatView(&device, memory.data() + 1, 3);
  tensor.owner = nullptr;
  publisher_.Publish(tensor);
  EXPECT_EQ(device.num_copies, 0);
  TensorReaderClient first({}), second({});
  const auto a = Subscribe(first, 5, 3);
  const auto b = Subscribe(second, 5, 3);
  publisher_.Publish(tensor);
  memory = {0, 0, 0, 0};
  EXPECT_EQ(device.num_copies, 1);
  EXPECT_EQ(device.num_bytes, 3 * sizeof(float));
  for (const auto& sink : {a, b}) {
    EXPECT_EQ(ValuesOf(sink->AwaitTensor().tensor),
              (std::vector<float>{2, 3, 4}));
  }
}

TEST_F(PublisherServiceTest, LargeTensorsComeInPieces) {
  TensorReaderClient reader({});
  constexpr int kSize = (9 << 18) + 1;  // over 9 MiB
  const auto sink = Subscribe(reader, 5, kSize);
  const Tensor sent = RandomTensor(5, 3, kSize);
  publisher_.Publish(sent);
  EXPECT_EQ(ValuesOf(sink->AwaitTensor().tensor), ValuesOf(sent));
  EXPECT_TRUE(Eventually([&] { return publisher_.stats().sent == 1; }));
  EXPECT_EQ(publisher_.stats().sent_bytes, kSize * sizeof(float));
  EXPECT_EQ(reader.stats().received_bytes, kSize * sizeof(float));

  // gRPC's default limit of 4 MiB is enough for every message.
  grpc::ClientContext context;
  const auto stub = v1::Tensors::NewStub(grpc::CreateChannel(
      server_->address(), grpc::InsecureChannelCredentials()));
  const auto stream = stub->Read(&context);
  ASSERT_TRUE(stream->Write(Request({6})));
  ASSERT_TRUE(Eventually([&] { return publisher_.HasReaders(6); }));
  publisher_.Publish(RandomTensor(6, 3, kSize));
  size_t bytes = 0;
  v1::TensorEvent event;
  while (bytes < kSize * sizeof(float) && stream->Read(&event)) {
    EXPECT_EQ(event.chunk().offset(), bytes);
    bytes += event.chunk().data().size();
  }
  EXPECT_EQ(bytes, kSize * sizeof(float));
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

// Publishing goes on at its own pace; what the reader then reads is the tensor
// that was begun and the newest ones.
TEST_F(PublisherServiceTest, ASlowReaderGetsOnlyTheNewest) {
  constexpr int kCount = 24, kSize = 1 << 20;  // 4 MiB each
  grpc::ClientContext context;
  const auto stream = stub_->Read(&context);
  ASSERT_TRUE(stream->Write(Request({5})));
  ASSERT_TRUE(Eventually([&] { return publisher_.HasReaders(5); }));
  for (int position = 0; position < kCount; ++position) {
    publisher_.Publish(RandomTensor(5, position, kSize));
  }
  std::vector<int> positions;
  TensorAssembler assembler;
  v1::TensorEvent event;
  while ((positions.empty() || positions.back() < kCount - 1) &&
         stream->Read(&event)) {
    TensorChunk chunk;
    ASSERT_TRUE(ToChunk(event.chunk(), &chunk));
    const auto outcome = assembler.Add(chunk, kSize);
    if (outcome == TensorAssembler::Outcome::kPart) continue;
    ASSERT_EQ(outcome, TensorAssembler::Outcome::kWhole);
    const Tensor tensor = assembler.TakeTensor();
    positions.push_back(tensor.tag.position);
    EXPECT_EQ(ValuesOf(tensor),
              ValuesOf(RandomTensor(5, positions.back(), kSize)));
  }
  ASSERT_FALSE(positions.empty());
  EXPECT_EQ(positions.back(), kCount - 1);
  EXPECT_LT(positions.size(), size_t{kCount} / 2);
  EXPECT_EQ(publisher_.stats().replaced, kCount - positions.size());
  context.TryCancel();
}

TEST_F(PublisherServiceTest, WhatWaitsOnAChannelThatIsGivenUpIsForgotten) {
  constexpr int kCount = 24, kSize = 1 << 20;  // the last waits, as above
  grpc::ClientContext context;
  const auto stream = stub_->Read(&context);
  ASSERT_TRUE(stream->Write(Request({5, 6})));
  ASSERT_TRUE(Eventually([&] { return publisher_.HasReaders(6); }));
  for (int position = 0; position < kCount; ++position) {
    publisher_.Publish(RandomTensor(5, position, kSize));
  }
  v1::TensorRequest request;
  request.add_unsubscribe(5);
  ASSERT_TRUE(stream->Write(request));
  ASSERT_TRUE(Eventually([&] { return !publisher_.HasReaders(5); }));
  publisher_.Publish(RandomTensor(6, 0, 10));
  v1::TensorEvent event;
  ASSERT_TRUE(stream->Read(&event));
  while (event.chunk().channel() == 5) {
    ASSERT_LT(event.chunk().position(), uint32_t{kCount} - 1);
    ASSERT_TRUE(stream->Read(&event));
  }
  EXPECT_EQ(event.chunk().channel(), 6u);
  context.TryCancel();
}

TEST_F(PublisherServiceTest, AReaderThatDiesLeavesNothingBehind) {
  TensorReaderClient survivor({});
  const auto sink = Subscribe(survivor, 5, 1 << 20);
  {
    TensorReaderClient dying({});
    Subscribe(dying, 5, 1 << 20);
    Subscribe(dying, 6, 1 << 20);
    // Perhaps in the middle of one.
    publisher_.Publish(RandomTensor(5, 0, 1 << 20));
    publisher_.Publish(RandomTensor(6, 0, 1 << 20));
  }
  EXPECT_TRUE(Eventually([&] {
    const auto stats = publisher_.stats();
    return stats.readers == 1 && stats.subscriptions == 1;
  }));
  EXPECT_FALSE(publisher_.HasReaders(6));
  sink->AwaitTensor();
  publisher_.Publish(RandomTensor(5, 1, 1 << 20));
  EXPECT_EQ(sink->AwaitTensor().tensor.tag.position, 1);
}

TEST_F(PublisherServiceTest, WhoUnsubscribesGetsNothingMore) {
  TensorReaderClient reader({});
  const auto sink = Subscribe(reader, 5, 10);
  const auto other = Subscribe(reader, 6, 10);
  reader.Unsubscribe(5);
  reader.Unsubscribe(77);
  EXPECT_TRUE(Eventually([&] { return !publisher_.HasReaders(5); }));
  publisher_.Publish(RandomTensor(5, 0, 10));
  publisher_.Publish(RandomTensor(6, 0, 10));
  other->AwaitTensor();
  EXPECT_EQ(sink->num_tensors(), 0u);
  // It may come back.
  const auto again = Subscribe(reader, 5, 10);
  publisher_.Publish(RandomTensor(5, 4, 10));
  EXPECT_EQ(again->AwaitTensor().tensor.tag.position, 4);
}

TEST_F(PublisherServiceTest, ChannelsThatCannotBeAreRefusedOneByOne) {
  grpc::ClientContext context;
  const auto stream = stub_->Read(&context);
  std::vector<uint64_t> ids = {0};
  for (uint64_t i = 1; i <= TensorPublisherService::kMaxChannels; ++i) {
    ids.push_back(i);
  }
  ids.push_back(1);  // repeated
  ids.push_back(1 << 20);
  ASSERT_TRUE(stream->Write(Request(ids)));
  v1::TensorEvent event;
  ASSERT_TRUE(stream->Read(&event));
  EXPECT_EQ(event.error().channel(), 0u);
  EXPECT_EQ(event.error().code(), grpc::StatusCode::INVALID_ARGUMENT);
  ASSERT_TRUE(stream->Read(&event));
  EXPECT_EQ(event.error().channel(), 1u << 20);
  EXPECT_EQ(event.error().code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(publisher_.stats().subscriptions,
            int{TensorPublisherService::kMaxChannels});
  publisher_.Publish(RandomTensor(9, 4, 10));  // the others go on
  ASSERT_TRUE(stream->Read(&event));
  EXPECT_EQ(event.chunk().channel(), 9u);
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(PublisherServiceTest, BytesThatAreNoMessageEndTheStream) {
  const grpc::Status status = nacre::testing::CallWithBytes(
      rpc::CreateChannel(server_->address()), "/nacre.v1.Tensors/Read",
      nacre::testing::kNoMessage);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(PublisherServiceTest, StoppingEndsTheStreams) {
  TensorReaderClient reader({});
  const auto sink = Subscribe(reader, 5, 10);
  Stop();
  const auto [channel, status] = sink->AwaitLoss();
  EXPECT_EQ(channel, 5u);
  EXPECT_EQ(status, absl::UnavailableError("stopping"));
}

}  // namespace
}  // namespace nacre::worker
