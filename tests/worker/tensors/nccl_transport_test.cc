// Hidden states by a NCCL that is late, loses, reorders and aborts. What gRPC
// brings is the yardstick.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "tests/worker/tensors/nccl_pair.h"
#include "worker/tensors/chunk_convert.h"

namespace nacre::worker {
namespace {

class NcclTransportTest : public NcclPair {
 protected:
  // Whatever has become of the link.
  void ExpectNewestArrives(RecordingSink* sink, int position, int size) {
    const Tensor sent = AnyBits(5, position, size);
    publisher_->Publish(sent);
    Tensor came;
    do {
      came = sink->AwaitTensor().tensor;
      EXPECT_EQ(BitsOf(came), BitsOf(AnyBits(5, came.tag.position, size)));
    } while (came.tag.position < position && !HasFailure());
    EXPECT_EQ(came.tag, sent.tag);
    EXPECT_EQ(came.shape, sent.shape);
  }
};

// One reader has NCCL, the other has not: each tensor is the same in every bit.
TEST_F(NcclTransportTest, ValuesAreThoseOfGrpcBitForBit) {
  Start();
  TensorReaderClient by_grpc({});
  const auto sink = Subscribe(*reader_, 5, 1000);
  const auto yardstick = Subscribe(by_grpc, 5, 1000);
  AwaitUp();
  constexpr int kCount = 200;
  for (int position = 0; position < kCount; ++position) {
    publisher_->Publish(AnyBits(5, position, 1000));
    const ReceivedTensor expected = yardstick->AwaitTensor();
    const ReceivedTensor came = sink->AwaitTensor();
    ASSERT_EQ(came.tensor.tag, expected.tensor.tag);
    ASSERT_EQ(came.tensor.shape, expected.tensor.shape);
    ASSERT_EQ(BitsOf(came.tensor), BitsOf(expected.tensor));
    EXPECT_GT(came.received_ns, 0);
  }
  EXPECT_EQ(reader_->stats().received, uint64_t{kCount});
  EXPECT_EQ(reader_->stats().received_over_links, uint64_t{kCount});
  EXPECT_EQ(reader_->stats().received_bytes, kCount * 1000 * sizeof(float));
  EXPECT_EQ(by_grpc.stats().received, uint64_t{kCount});
  EXPECT_EQ(by_grpc.stats().received_over_links, 0u);
  EXPECT_TRUE(Eventually(
      [this] { return publisher_->stats().sent == 2 * uint64_t{kCount}; }));
  EXPECT_EQ(publisher_->stats().sent_over_links, uint64_t{kCount});
  EXPECT_EQ(publisher_->stats().sent_bytes, 2 * kCount * 1000 * sizeof(float));
}

// The first tensors are not kept back until the link is there.
TEST_F(NcclTransportTest, UntilTheLinkIsUpTensorsComeOverGrpc) {
  nccl_.HoldJoins(true);
  Start();
  const auto sink = Subscribe(*reader_, 5, 10);
  ExpectNewestArrives(sink.get(), 1, 10);
  EXPECT_EQ(reader_->stats().received_over_links, 0u);
  nccl_.HoldJoins(false);
  AwaitUp();
  ExpectNewestArrives(sink.get(), 2, 10);
  EXPECT_EQ(reader_->stats().received_over_links, 1u);
}

// As a slow reader of gRPC's: those under way, and then the newest. Nothing
// that an engine calls waits for them.
TEST_F(NcclTransportTest, LateTransfersHoldNobodyUp) {
  Start();
  TensorReaderClient by_grpc({});
  const auto sink = Subscribe(*reader_, 5, 10);
  AwaitUp();
  const auto other = Subscribe(by_grpc, 6, 10);
  nccl_.HoldTransfers(true);
  constexpr int kCount = 100;
  for (int position = 0; position < kCount; ++position) {
    publisher_->Publish(AnyBits(5, position, 10));
    EXPECT_TRUE(publisher_->HasReaders(5));
  }
  publisher_->Publish(AnyBits(6, 1, 10));
  EXPECT_EQ(other->AwaitTensor().tensor.tag.position, 1);
  reader_->Subscribe({server_->address(), 7, 10, other});
  reader_->Unsubscribe(7);
  EXPECT_EQ(sink->num_tensors(), 0u);
  nccl_.HoldTransfers(false);
  std::vector<int> positions;
  do {
    const Tensor came = sink->AwaitTensor().tensor;
    positions.push_back(came.tag.position);
    EXPECT_EQ(BitsOf(came), BitsOf(AnyBits(5, positions.back(), 10)));
  } while (positions.back() < kCount - 1 && !HasFailure());
  EXPECT_TRUE(std::is_sorted(positions.begin(), positions.end()));
  EXPECT_LE(positions.size(), NcclTransfers::kMostUnderWay + 1);
  EXPECT_EQ(publisher_->stats().replaced, kCount - positions.size());
  EXPECT_EQ(publisher_->stats().link_failures, 0u);
}

TEST_F(NcclTransportTest, WithAnotherVersionOfNcclTensorsComeOverGrpc) {
  Start();
  TensorReaderClient other(
      {}, std::make_unique<NcclLinks>(nccl_.Open("3.0.1"), options_));
  const auto sink = Subscribe(other, 5, 10);
  EXPECT_TRUE(Eventually([&] { return other.stats().link_failures == 1; }));
  ExpectNewestArrives(sink.get(), 1, 10);
  EXPECT_EQ(other.stats().received_over_links, 0u);
  EXPECT_EQ(nccl_.num_transfers(), 0);
}

TEST_F(NcclTransportTest, ALostTransferEndsTheLinkAndGrpcGoesOn) {
  nccl_.LoseTransfer(3);  // 0 is the empty one
  Start({kNever, absl::Milliseconds(200)});
  const auto sink = Subscribe(*reader_, 5, 10);
  AwaitUp();
  ExpectNewestArrives(sink.get(), 1, 10);
  ExpectNewestArrives(sink.get(), 2, 10);
  publisher_->Publish(AnyBits(5, 3, 10));
  AwaitFailure();
  for (int position = 4; position < 10; ++position) {
    ExpectNewestArrives(sink.get(), position, 10);
  }
  EXPECT_EQ(sink->num_tensors(), 0u);  // the third is gone, none came twice
  EXPECT_EQ(reader_->stats().received_over_links, 2u);
  EXPECT_EQ(reader_->stats().lost_with_links, 1u);
  EXPECT_EQ(reader_->stats().received, 8u);
  EXPECT_EQ(reader_->stats().lost_channels, 0u);
  EXPECT_TRUE(Eventually([this] { return nccl_.num_aborts() == 2; }));
}

// Values that come under another tensor's header are never given to it.
TEST_F(NcclTransportTest, ReorderedTransfersEndTheLink) {
  nccl_.SwapTransfer(2);
  Start();
  const auto sink = Subscribe(*reader_, 5, 10);
  const auto other = Subscribe(*reader_, 6, 10);
  AwaitUp();
  ExpectNewestArrives(sink.get(), 1, 10);
  publisher_->Publish(AnyBits(5, 2, 10));
  publisher_->Publish(AnyBits(6, 2, 10));
  AwaitFailure();
  EXPECT_EQ(sink->num_tensors() + other->num_tensors(), 0u);
  // The second one's header may come after the failure.
  EXPECT_TRUE(
      Eventually([this] { return reader_->stats().lost_with_links == 2; }));
  ExpectNewestArrives(sink.get(), 3, 10);
}

// By whichever end notices; the other one hears of it over gRPC.
TEST_F(NcclTransportTest, AnAbortAtTheReaderEndsTheLink) {
  Start();
  const auto sink = Subscribe(*reader_, 5, 10);
  AwaitUp();
  ExpectNewestArrives(sink.get(), 1, 10);
  nccl_.FailRank(1, absl::InternalError("remote process exited"));
  AwaitFailure();
  ExpectNewestArrives(sink.get(), 2, 10);
}

TEST_F(NcclTransportTest, AnAbortAtThePublisherEndsTheLink) {
  Start();
  const auto sink = Subscribe(*reader_, 5, 10);
  AwaitUp();
  ExpectNewestArrives(sink.get(), 1, 10);
  nccl_.HoldTransfers(true);
  publisher_->Publish(AnyBits(5, 2, 10));
  EXPECT_TRUE(Eventually([this] { return nccl_.num_transfers() == 3; }));
  nccl_.FailRank(0, absl::InternalError("unhandled system error"));
  AwaitFailure();
  ExpectNewestArrives(sink.get(), 3, 10);
  EXPECT_EQ(reader_->stats().lost_with_links, 1u);
}

TEST_F(NcclTransportTest, ALinkThatNeverComesUpLeavesGrpc) {
  nccl_.HoldJoins(true);
  Start({absl::Milliseconds(100), kNever});
  const auto sink = Subscribe(*reader_, 5, 10);
  AwaitFailure();
  ExpectNewestArrives(sink.get(), 1, 10);
}

TEST_F(NcclTransportTest, TensorsThatAreTooLargeGoOverGrpc) {
  Start();
  constexpr int kSize = int{NcclTransfers::kMaxBytes / sizeof(float)} + 1;
  const auto sink = Subscribe(*reader_, 5, kSize);
  AwaitUp();
  ExpectNewestArrives(sink.get(), 1, kSize);
  AwaitFailure();
  ExpectNewestArrives(sink.get(), 2, kSize);
}

// The stream that is lost takes its link along; the next one has its own.
TEST_F(NcclTransportTest, AReaderThatDiesLeavesNothingBehind) {
  Start();
  {
    TensorReaderClient dying({}, Links());
    Subscribe(dying, 5, 10);
    AwaitUp();
    nccl_.HoldTransfers(true);
    publisher_->Publish(AnyBits(5, 1, 10));
  }
  EXPECT_TRUE(Eventually([this] { return nccl_.num_aborts() == 2; }));
  AwaitUp(0);
  nccl_.HoldTransfers(false);
  const auto sink = Subscribe(*reader_, 5, 10);
  AwaitUp();
  ExpectNewestArrives(sink.get(), 2, 10);
  EXPECT_EQ(reader_->stats().received_over_links, 1u);
}

// Values of a channel that was given up come all the same: the next ones are
// not taken for them.
TEST_F(NcclTransportTest, AChannelThatIsGivenUpLeavesTheOthersInStep) {
  Start();
  const auto gone = Subscribe(*reader_, 5, 10);
  const auto sink = Subscribe(*reader_, 6, 20);
  AwaitUp();
  nccl_.HoldTransfers(true);
  publisher_->Publish(AnyBits(5, 1, 10));
  EXPECT_TRUE(Eventually([this] { return nccl_.num_transfers() == 2; }));
  reader_->Unsubscribe(5);
  nccl_.HoldTransfers(false);
  publisher_->Publish(AnyBits(6, 1, 20));
  EXPECT_EQ(BitsOf(sink->AwaitTensor().tensor), BitsOf(AnyBits(6, 1, 20)));
  EXPECT_EQ(gone->num_tensors(), 0u);
}

TEST_F(NcclTransportTest, ATensorOfAnotherSizeEndsItsChannelAlone) {
  Start();
  const auto wrong = Subscribe(*reader_, 5, 10);
  const auto right = Subscribe(*reader_, 6, 20);
  AwaitUp();
  publisher_->Publish(AnyBits(5, 1, 11));
  const auto [channel, status] = wrong->AwaitLoss();
  EXPECT_EQ(channel, 5u);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  publisher_->Publish(AnyBits(6, 1, 20));
  EXPECT_EQ(BitsOf(right->AwaitTensor().tensor), BitsOf(AnyBits(6, 1, 20)));
  EXPECT_EQ(reader_->stats().received_over_links, 2u);
}

TEST_F(NcclTransportTest, WhatCallsItselfRowsIsNoHiddenState) {
  Start();
  const auto hidden = Subscribe(*reader_, 5, 100);
  AwaitUp();
  ExpectNewestArrives(hidden.get(), 1, 100);
  Tensor sent = AnyBits(5, 2, 100);
  sent.tag.is_rows = true;
  publisher_->Publish(sent);
  EXPECT_EQ(hidden->AwaitLoss().second.code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(hidden->num_tensors(), 0u);
}

// A reader with NCCL and a publisher without.
TEST_F(NcclTransportTest, APublisherWithoutNcclIsReadOverGrpc) {
  Start();
  TensorPublisherService without;
  const auto server = *rpc::RpcServer::Start({}, {&without});
  const auto sink = std::make_shared<RecordingSink>();
  reader_->Subscribe({server->address(), 5, 10, sink});
  ASSERT_TRUE(Eventually([&] { return without.HasReaders(5); }));
  EXPECT_TRUE(
      Eventually([this] { return reader_->stats().link_failures == 1; }));
  without.Publish(AnyBits(5, 1, 10));
  EXPECT_EQ(BitsOf(sink->AwaitTensor().tensor), BitsOf(AnyBits(5, 1, 10)));
  EXPECT_EQ(without.stats().link_failures, 0u);
  reader_ = nullptr;
  without.EndReaders(absl::OkStatus());
  server->Shutdown(absl::Seconds(10));
}

// Headers without a link that the reader asked for.
TEST_F(NcclTransportTest, AHeaderWithoutALinkIsMalformed) {
  Start();
  class OddPeer final : public v1::Tensors::Service {
    grpc::Status Read(
        grpc::ServerContext*,
        grpc::ServerReaderWriter<v1::TensorEvent, v1::TensorRequest>* stream)
        override {
      v1::TensorRequest request;
      stream->Read(&request);
      v1::TensorEvent event;
      FillChunk(ChunkAt(Encode(AnyBits(5, 1, 10)), 0), event.mutable_chunk());
      event.mutable_chunk()->set_link_transfer(1);
      stream->Write(event);
      event.mutable_link()->set_step(v1::LINK_STEP_OFFERED);
      event.mutable_link()->set_id("another's");
      stream->Write(event);
      FillChunk(ChunkAt(Encode(AnyBits(5, 2, 10)), 0), event.mutable_chunk());
      stream->Write(event);
      while (stream->Read(&request)) {
      }
      return grpc::Status::OK;
    }
  } peer;
  const auto server = *rpc::RpcServer::Start({}, {&peer});
  TensorReaderClient by_grpc({});
  for (TensorReaderClient* const reader : {reader_.get(), &by_grpc}) {
    const auto sink = std::make_shared<RecordingSink>();
    reader->Subscribe({server->address(), 5, 10, sink});
    EXPECT_EQ(sink->AwaitTensor().tensor.tag.position, 2);
    EXPECT_EQ(reader->stats().malformed, 1u);
  }
  EXPECT_EQ(reader_->stats().link_failures, 1u);
  EXPECT_EQ(by_grpc.stats().link_failures, 0u);
  reader_ = nullptr;
  server->Shutdown(absl::ZeroDuration());
}

}  // namespace
}  // namespace nacre::worker
