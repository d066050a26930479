// Keys and values, and features, from their publisher to their readers: all in
// order, as far as they were asked for, and never in a heap.

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "kernels/dtype.h"
#include "tests/worker/tensors/random_tensor.h"
#include "tests/worker/tensors/recording_sink.h"
#include "worker/tensors/chunk_convert.h"
#include "worker/tensors/publisher_service.h"
#include "worker/tensors/reader_client.h"
#include "worker/tensors/tensor_chunks.h"

namespace nacre::worker {
namespace {

using ::testing::HasSubstr;
using RowsWanted = TensorPublisher::RowsWanted;

constexpr model::TargetRowShape kShape = {2, 1, 3};
constexpr size_t kRowSize = 12;

class RowsTest : public ::testing::Test {
 protected:
  RowsTest() {
    server_ = *rpc::RpcServer::Start({}, {&publisher_});
    stub_ = v1::Tensors::NewStub(rpc::CreateChannel(server_->address()));
  }
  ~RowsTest() override {
    publisher_.EndReaders(absl::UnavailableError("stopping"));
    server_->Shutdown(absl::Seconds(10));
  }

  std::shared_ptr<RecordingSink> Subscribe(TensorReader& reader,
                                           uint64_t channel, int end) {
    return Subscribe(reader, channel, kRowSize,
                     {kShape, "made for this", end, /*epoch=*/9});
  }
  std::shared_ptr<RecordingSink> Subscribe(TensorReader& reader,
                                           uint64_t channel, size_t row_size,
                                           const TensorReader::Rows& rows) {
    auto sink = std::make_shared<RecordingSink>();
    TensorReader::Subscription subscription;
    subscription.address = server_->address();
    subscription.channel = channel;
    subscription.num_values = row_size;
    subscription.sink = sink;
    subscription.rows = rows;
    const int before = publisher_.stats().subscriptions;
    reader.Subscribe(std::move(subscription));
    EXPECT_TRUE(
        Eventually([&] { return publisher_.stats().subscriptions > before; }));
    return sink;
  }
  static model::TargetRowShape Features(int count) {
    model::TargetRowShape shape;
    shape.num_features = count;
    return shape;
  }
  // What the publisher says to these requests on a stream of their own, until
  // it is asked for no more.
  std::vector<v1::ChannelError> Refusals(const v1::TensorRequest& request) {
    grpc::ClientContext context;
    const auto stream = stub_->Read(&context);
    EXPECT_TRUE(stream->Write(request));
    v1::TensorRequest last;
    last.add_subscribe(0);
    EXPECT_TRUE(stream->Write(last));
    std::vector<v1::ChannelError> errors;
    v1::TensorEvent event;
    while (stream->Read(&event) && event.error().channel() != 0) {
      errors.push_back(event.error());
    }
    stream->WritesDone();
    EXPECT_TRUE(stream->Finish().ok());
    return errors;
  }
  static Tensor Rows(uint64_t channel, int first, int count) {
    Tensor tensor;
    tensor.tag.channel = channel;
    tensor.tag.epoch = 9;
    tensor.tag.position = first;
    tensor.tag.is_rows = true;
    tensor.shape = {count, static_cast<int>(kRowSize)};
    std::vector<float> values;
    for (size_t i = 0; i < static_cast<size_t>(count) * kRowSize; ++i) {
      values.push_back(static_cast<float>(first) +
                       static_cast<float>(i) / kRowSize);
    }
    tensor.Own(std::move(values));
    return tensor;
  }
  // As an engine does, when the reader can take some.
  void Publish(uint64_t channel, int first, int count) {
    EXPECT_TRUE(Eventually([&] {
      const auto wanted = publisher_.WantedRows(channel, 1000);
      return wanted.has_value() && wanted->first == first;
    }));
    publisher_.PublishRows(Rows(channel, first, count));
  }

  TensorPublisherService publisher_;
  std::unique_ptr<rpc::RpcServer> server_;
  std::unique_ptr<v1::Tensors::Stub> stub_;
};

TEST_F(RowsTest, AllComeInOrderAsFarAsTheyAreWanted) {
  EXPECT_EQ(publisher_.WantedRows(5, 1000), absl::nullopt);
  TensorReaderClient reader({});
  const auto sink = Subscribe(reader, 5, 7);
  const RowsWanted wanted = {kShape, "made for this", 0, 7, 9};
  EXPECT_EQ(publisher_.WantedRows(5, 1000), wanted);
  EXPECT_EQ(publisher_.WantedRows(6, 1000), absl::nullopt);
  EXPECT_FALSE(publisher_.HasReaders(5)) << "hidden states are not wanted";
  Publish(5, 0, 4);
  Publish(5, 4, 3);
  for (const auto& [first, count] : {std::pair(0, 4), std::pair(4, 3)}) {
    const ReceivedTensor received = sink->AwaitTensor();
    const Tensor sent = Rows(5, first, count);
    EXPECT_EQ(received.tensor.tag, sent.tag);
    EXPECT_EQ(received.tensor.shape, sent.shape);
    EXPECT_EQ(received.tensor.values.host(), sent.values.host());
  }
  EXPECT_EQ(publisher_.WantedRows(5, 1000), absl::nullopt)
      << "no more was asked for";
  reader.WantRows(5, 9);
  Publish(5, 7, 2);
  EXPECT_EQ(sink->AwaitTensor().tensor.tag.position, 7);
  // A smaller end changes nothing. A request for a channel that the reader has
  // not subscribed to is ignored.
  reader.WantRows(5, 3);
  reader.WantRows(6, 3);
  reader.WantRows(5, 10);
  Publish(5, 9, 1);
  EXPECT_EQ(sink->AwaitTensor().tensor.tag.position, 9);
}

TEST_F(RowsTest, FeaturesAreOfADraft) {
  TensorReaderClient reader({});
  const TensorReader::Rows rows = {Features(12), "made for this", 7, 9,
                                   "the draft"};
  const auto sink = Subscribe(reader, 5, kRowSize, rows);
  const RowsWanted wanted = {Features(12), "made for this", 0, 7, 9,
                             "the draft"};
  EXPECT_EQ(publisher_.WantedRows(5, 1000), wanted);
  Publish(5, 0, 7);
  EXPECT_EQ(ValuesOf(sink->AwaitTensor().tensor), ValuesOf(Rows(5, 0, 7)));
  reader.WantRows(5, 9);
  Publish(5, 7, 2);
  EXPECT_EQ(sink->AwaitTensor().tensor.tag.position, 7);
}

// 3 MiB for each of two readers, and rows of the exact numbers beside.
TEST_F(RowsTest, InBF16TheyComeRoundedAndAsHalfTheBytes) {
  constexpr int kCount = 24, kSize = 1 << 16;
  TensorReaderClient reader({}), second({});
  const TensorReader::Rows rows = {Features(kSize), "", 100, 9, "the draft"};
  const auto a = Subscribe(reader, 5, kSize, rows);
  const auto b = Subscribe(second, 5, kSize, rows);
  Tensor sent = RandomTensor(5, 0, kCount * kSize);
  sent.tag = Rows(5, 0, 1).tag;
  sent.shape = {kCount, kSize};
  sent.in_bf16 = true;
  const std::vector<float> exact = ValuesOf(sent);
  std::vector<float> lent = exact;
  sent.owner = nullptr;
  sent.values = kernels::FloatView(lent);
  publisher_.PublishRows(sent);
  lent.assign(lent.size(), 0.0f);  // the engine's next step
  for (const auto& sink : {a, b}) {
    const Tensor came = sink->AwaitTensor().tensor;
    EXPECT_EQ(came.tag, sent.tag);
    EXPECT_EQ(came.shape, sent.shape);
    EXPECT_TRUE(came.in_bf16);
    const std::vector<float> values = ValuesOf(came);
    ASSERT_EQ(values.size(), exact.size());
    size_t num_rounded = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], kernels::FromBF16(kernels::ToBF16(exact[i]))) << i;
      num_rounded += values[i] != exact[i] ? 1 : 0;
    }
    EXPECT_GT(num_rounded, values.size() / 2);
  }
  const size_t bytes = exact.size() * sizeof(uint16_t);
  EXPECT_EQ(reader.stats().received_bytes, bytes);
  EXPECT_TRUE(Eventually([&] { return publisher_.stats().sent == 2; }));
  EXPECT_EQ(publisher_.stats().sent_bytes, 2 * bytes);

  const auto keys = Subscribe(reader, 6, 100);
  Publish(6, 0, 4);
  const Tensor came = keys->AwaitTensor().tensor;
  EXPECT_FALSE(came.in_bf16);
  EXPECT_EQ(ValuesOf(came), ValuesOf(Rows(6, 0, 4)));
  EXPECT_EQ(reader.stats().received_bytes,
            bytes + 4 * kRowSize * sizeof(float));
}

TEST_F(RowsTest, ThoseBeforeASkipAreLost) {
  TensorReaderClient first({}), second({});
  const TensorReader::Rows rows = {Features(12), "", 100, 9, "the draft"};
  const auto a = Subscribe(first, 5, kRowSize, rows);
  const RowsWanted wanted = *publisher_.WantedRows(5, 1000);
  RowsWanted another = wanted;
  another.draft_fingerprint = "another draft";
  publisher_.SkipRows(5, another, 40);
  publisher_.SkipRows(6, wanted, 40);
  EXPECT_EQ(publisher_.WantedRows(5, 1000), wanted);
  publisher_.SkipRows(5, wanted, 40);
  EXPECT_EQ(publisher_.WantedRows(5, 40), absl::nullopt);
  Publish(5, 40, 2);
  EXPECT_EQ(a->AwaitTensor().tensor.tag.position, 40);
  // It goes on from there, and never back.
  const RowsWanted next = *publisher_.WantedRows(5, 1000);
  EXPECT_EQ(next.first, 42);
  publisher_.SkipRows(5, next, 10);
  EXPECT_EQ(publisher_.WantedRows(5, 1000), next);
  // Others are where they are.
  const auto b = Subscribe(second, 5, kRowSize, rows);
  publisher_.SkipRows(5, next, 50);
  EXPECT_EQ(publisher_.WantedRows(5, 50), wanted);
  publisher_.PublishRows(Rows(5, 0, 50));
  EXPECT_EQ(b->AwaitTensor().tensor.shape[0], 50);
  // Beyond what it has asked for, too: it gets as many after those.
  const RowsWanted last = *publisher_.WantedRows(5, 1000);
  EXPECT_LT(last.end, 200);
  publisher_.SkipRows(5, last, 200);
  Publish(5, 200, 1);
  EXPECT_EQ(a->AwaitTensor().tensor.tag.position, 200);
  EXPECT_EQ(publisher_.WantedRows(5, 1000)->end, last.end + 200 - last.first);
}

TEST_F(RowsTest, EachReaderIsWhereItIs) {
  TensorReaderClient first({}), second({});
  const auto a = Subscribe(first, 5, 100);
  Publish(5, 0, 6);
  EXPECT_EQ(a->AwaitTensor().tensor.shape[0], 6);
  // A draft in the place of another, from the beginning.
  const auto b = Subscribe(second, 5, 100);
  // What is there is all that the first one has.
  const auto wanted = publisher_.WantedRows(5, 6);
  ASSERT_TRUE(wanted.has_value());
  EXPECT_EQ(wanted->first, 0);
  publisher_.PublishRows(Rows(5, 0, 6));
  EXPECT_EQ(b->AwaitTensor().tensor.shape[0], 6);
  EXPECT_EQ(a->num_tensors(), 0u);
  EXPECT_EQ(publisher_.WantedRows(5, 6), absl::nullopt);
}

TEST_F(RowsTest, WhatIsNotTheNextIsNotSent) {
  TensorReaderClient reader({});
  const auto sink = Subscribe(reader, 5, 100);
  publisher_.PublishRows(Rows(5, 3, 2));
  Tensor other = Rows(5, 0, 2);
  other.shape = {1, 2 * static_cast<int>(kRowSize)};
  publisher_.PublishRows(other);
  other = Rows(5, 0, 2);
  other.tag.epoch = 8;
  publisher_.PublishRows(other);
  publisher_.PublishRows(Rows(6, 0, 2));
  Publish(5, 0, 1);
  EXPECT_EQ(sink->AwaitTensor().tensor.shape[0], 1);
  EXPECT_EQ(sink->num_tensors(), 0u);
}

TEST_F(RowsTest, ARefusalSaysWhy) {
  TensorReaderClient reader({});
  const auto sink = Subscribe(reader, 5, 100);
  const RowsWanted wanted = *publisher_.WantedRows(5, 1000);
  RowsWanted another = wanted;
  another.target_fingerprint = "other";
  publisher_.RefuseRows(5, another, absl::InternalError("not this one"));
  publisher_.RefuseRows(5, wanted, absl::FailedPreconditionError("not yours"));
  EXPECT_EQ(publisher_.WantedRows(5, 1000), absl::nullopt);
  const auto [channel, status] = sink->AwaitLoss();
  EXPECT_EQ(channel, 5u);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.ToString(), HasSubstr("not yours"));
}

TEST_F(RowsTest, AReaderThatLeavesIsForgotten) {
  {
    TensorReaderClient reader({});
    const auto sink = Subscribe(reader, 5, 100);
    reader.Unsubscribe(5);
    EXPECT_TRUE(Eventually(
        [&] { return !publisher_.WantedRows(5, 1000).has_value(); }));
    Subscribe(reader, 6, 100);
  }
  EXPECT_TRUE(
      Eventually([&] { return !publisher_.WantedRows(6, 1000).has_value(); }));
}

// The owner hears of whoever comes, wants more, or can take more.
TEST_F(RowsTest, ItsOwnerIsWoken) {
  std::atomic<int> wakes{0};
  publisher_.SetRowsWanted([&wakes] { ++wakes; });
  TensorReaderClient reader({});
  const auto sink = Subscribe(reader, 5, 100);
  EXPECT_TRUE(Eventually([&] { return wakes == 1; }));
  constexpr int kMany = 1 << 20;
  reader.WantRows(5, kMany);
  EXPECT_TRUE(Eventually([&] { return wakes == 2; }));
  // As fast as it can: at some time a tensor waits to be sent. Then whoever
  // asks gets none, and hears when it has been.
  int first = 0;
  while (publisher_.WantedRows(5, kMany).has_value() && first < kMany) {
    publisher_.PublishRows(Rows(5, first, 1));
    ++first;
  }
  ASSERT_LT(first, kMany);
  EXPECT_TRUE(Eventually([&] { return wakes == 3; }));
  EXPECT_TRUE(publisher_.WantedRows(5, kMany).has_value());
  publisher_.SetRowsWanted(nullptr);
  const int before = wakes;
  Subscribe(reader, 6, 100);
  EXPECT_EQ(wakes, before);
}

// A peer may say anything.
TEST_F(RowsTest, StrangeRequestsAreBoundedOrRefused) {
  grpc::ClientContext context;
  const auto stream = stub_->Read(&context);
  v1::TensorRequest request;
  v1::RowsRequest* rows = request.add_rows();
  rows->set_channel(5);
  rows->set_first(0xffffffffu);
  rows->set_end(0xffffffffu);
  rows->set_num_layers(0xffffffffu);
  rows->set_num_key_value_heads(0xffffffffu);
  rows->set_head_dim(0xffffffffu);
  request.add_rows()->set_channel(0);
  ASSERT_TRUE(stream->Write(request));
  v1::TensorEvent event;
  ASSERT_TRUE(stream->Read(&event));
  EXPECT_EQ(event.error().channel(), 0u);
  EXPECT_EQ(event.error().code(), 3u);
  // It wants nothing, and what it expects is no overflow.
  EXPECT_EQ(publisher_.WantedRows(5, 1000), absl::nullopt);
  publisher_.PublishRows(Rows(5, 1 << 30, 1));
  // Another request for it is of the same shape.
  rows->set_end(7);
  rows->set_first(0);
  request.mutable_rows()->RemoveLast();
  ASSERT_TRUE(stream->Write(request));
  stream->WritesDone();
  EXPECT_FALSE(stream->Read(&event));
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(RowsTest, LongFingerprintsAreRefused) {
  v1::TensorRequest request;
  for (uint64_t channel = 1; channel <= 4; ++channel) {
    v1::RowsRequest* const rows = request.add_rows();
    rows->set_channel(channel);
    rows->set_num_features(12);
    const std::string name(channel % 2 == 0 ? 64 : 65, 'f');
    if (channel <= 2) rows->set_target_fingerprint(name);
    if (channel > 2) rows->set_draft_fingerprint(name);
  }
  const std::vector<v1::ChannelError> errors = Refusals(request);
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_EQ(errors[0].channel(), 1u);
  EXPECT_EQ(errors[0].code(), 3u);
  EXPECT_THAT(errors[0].message(),
              HasSubstr("target_fingerprint of 65 characters"));
  EXPECT_EQ(errors[1].channel(), 3u);
  EXPECT_EQ(errors[1].code(), 3u);
  EXPECT_THAT(errors[1].message(),
              HasSubstr("draft_fingerprint of 65 characters"));
}

TEST_F(RowsTest, RowsOfBothKindsOrOfNoneAreRefused) {
  v1::TensorRequest request;
  const auto add = [&request](uint32_t layers, uint32_t heads, uint32_t dim,
                              uint32_t features) {
    v1::RowsRequest* const rows = request.add_rows();
    rows->set_channel(static_cast<uint64_t>(request.rows_size()));
    rows->set_num_layers(layers);
    rows->set_num_key_value_heads(heads);
    rows->set_head_dim(dim);
    rows->set_num_features(features);
  };
  add(0, 0, 0, 0);
  add(2, 0, 3, 0);
  add(2, 1, 3, 12);
  add(0, 0, 3, 12);
  const size_t num_refused = static_cast<size_t>(request.rows_size());
  add(2, 1, 3, 0);
  add(0, 0, 0, 12);
  const std::vector<v1::ChannelError> errors = Refusals(request);
  ASSERT_EQ(errors.size(), num_refused);
  for (size_t i = 0; i < errors.size(); ++i) {
    EXPECT_EQ(errors[i].channel(), i + 1);
    EXPECT_EQ(errors[i].code(), 3u);
  }
  EXPECT_THAT(errors[3].message(),
              HasSubstr("0 layers, 0 heads, 3 elements a head and 12 feat"));
}

TEST_F(RowsTest, FeaturesAreBounded) {
  TensorReaderClient reader({});
  const auto sink = Subscribe(
      reader, 5, kRowSize,
      {Features(std::numeric_limits<int>::max()), "", 7, 9, "the draft"});
  EXPECT_EQ(publisher_.WantedRows(5, 1000)->shape, Features(1 << 16));
}

// Rows of another size than was asked for end the channel.
TEST_F(RowsTest, TheReaderRefusesWhatItDidNotAskFor) {
  const auto answered = [](const Tensor& tensor) {
    class Peer final : public v1::Tensors::Service {
     public:
      explicit Peer(const Tensor& tensor) : tensor_(tensor) {}
      grpc::Status Read(
          grpc::ServerContext*,
          grpc::ServerReaderWriter<v1::TensorEvent, v1::TensorRequest>* stream)
          override {
        v1::TensorRequest request;
        stream->Read(&request);
        v1::TensorEvent event;
        FillChunk(ChunkAt(Encode(tensor_), 0), event.mutable_chunk());
        stream->Write(event);
        while (stream->Read(&request)) {
        }
        return grpc::Status::OK;
      }

     private:
      const Tensor& tensor_;
    };
    Peer peer(tensor);
    const auto server = *rpc::RpcServer::Start({}, {&peer});
    TensorReaderClient reader({});
    auto sink = std::make_shared<RecordingSink>();
    TensorReader::Subscription subscription;
    subscription.address = server->address();
    subscription.channel = 5;
    subscription.num_values = kRowSize;
    subscription.sink = sink;
    subscription.rows = {kShape, "", 100};
    reader.Subscribe(std::move(subscription));
    const absl::Status status = sink->AwaitLoss().second;
    server->Shutdown(absl::ZeroDuration());
    return status;
  };
  Tensor tensor = Rows(5, 0, 2);
  tensor.shape = {1, 2 * static_cast<int>(kRowSize)};
  EXPECT_EQ(answered(tensor).code(), absl::StatusCode::kInvalidArgument);
  tensor = Rows(5, 0, 2);
  tensor.tag.is_rows = false;
  EXPECT_EQ(answered(tensor).code(), absl::StatusCode::kInvalidArgument);
  tensor = Rows(5, 0, TensorReader::kMaxRows + 1);
  EXPECT_EQ(answered(tensor).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace nacre::worker
