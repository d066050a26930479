// Rows of a target by a NCCL that is late, loses, reorders and aborts: a draft
// gets each of them once, in order, with the bits that gRPC brings. The
// target's engine does not wait for the draft.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/rpc/channel.h"
#include "tests/worker/tensors/nccl_pair.h"
#include "tests/worker/tensors/row_ends.h"
#include "worker/tensors/chunk_convert.h"

namespace nacre::worker {
namespace {

// Sizes of no power of two; the second one's rows have an odd number of words.
const RowKind kKeys = {"Keys", {2, 3, 100}, false};
const RowKind kFeatures = {"Features", FeatureShape(1001), true};

class NcclRows : public NcclPair {
 protected:
  ~NcclRows() override {
    engine_ = nullptr;  // before what it publishes to
    by_grpc_ = nullptr;
  }
  void StartEngine(std::vector<RowEngine::Session> sessions,
                   const NcclLinks::Options& options = {kNever, kNever}) {
    Start(options);
    by_grpc_ = std::make_unique<TensorReaderClient>(rpc::ChannelSecurity());
    engine_ =
        std::make_unique<RowEngine>(publisher_.get(), std::move(sessions));
  }
  std::shared_ptr<RowSession> Read(TensorReader& reader, uint64_t channel,
                                   const RowKind& kind, int end = 10000) {
    return RowSession::Subscribe(&reader, server_->address(), channel, kind,
                                 end);
  }
  // Subscribes at both readers; the link is up.
  void ReadByBoth(uint64_t channel, const RowKind& kind) {
    rows_[channel] = {Read(*reader_, channel, kind),
                      Read(*by_grpc_, channel, kind)};
    AwaitUp();
  }
  // Both have all, and the same.
  void ExpectAll(int end) {
    for (const auto& [channel, both] : rows_) {
      both.by_link->Await(end);
      both.by_grpc->Await(end);
      EXPECT_EQ(both.by_link->first(), both.by_grpc->first());
      EXPECT_EQ(both.by_link->next(), both.by_grpc->next());
      EXPECT_TRUE(both.by_link->bits() == both.by_grpc->bits()) << channel;
    }
    EXPECT_EQ(by_grpc_->stats().received_over_links, 0u);
    EXPECT_EQ(reader_->stats().lost_channels, 0u);
  }
  // The link was lost with rows under way, and gRPC brought them.
  void ExpectFallBack(int end) {
    ExpectAll(end);
    AwaitFailure();
    EXPECT_GT(reader_->stats().lost_with_links, 0u);
    EXPECT_GT(publisher_->stats().rows_sent_again, 0u);
  }

  struct Both {
    std::shared_ptr<RowSession> by_link;
    std::shared_ptr<RowSession> by_grpc;
  };
  std::map<uint64_t, Both> rows_;
  std::unique_ptr<TensorReaderClient> by_grpc_;
  std::unique_ptr<RowEngine> engine_;
};

class NcclRowsOfAKind : public NcclRows,
                        public ::testing::WithParamInterface<RowKind> {};

TEST_P(NcclRowsOfAKind, AreThoseOfGrpcBitForBit) {
  StartEngine({{5, GetParam()}});
  ReadByBoth(5, GetParam());
  engine_->StepTo(300);
  ExpectAll(300);
  const TensorReader::Stats stats = reader_->stats();
  EXPECT_EQ(stats.received_over_links, stats.received);
  const size_t element = GetParam().in_bf16 ? 2 : 4;
  EXPECT_EQ(stats.received_bytes, 300 * rows_[5].by_link->size() * element);
  EXPECT_EQ(stats.received_bytes_over_links, stats.received_bytes);
  EXPECT_TRUE(Eventually([&] {
    return publisher_->stats().sent_over_links == stats.received &&
           publisher_->stats().sent_bytes_over_links == stats.received_bytes;
  }));
  EXPECT_EQ(publisher_->stats().rows_sent_again, 0u);
  EXPECT_EQ(publisher_->stats().links, 1);
}

// A draft that joins late is given all that there is at once.
TEST_P(NcclRowsOfAKind, RunsThatATransferDoesNotHoldAreCut) {
  StartEngine({{5, GetParam()}});
  engine_->StepTo(900, absl::ZeroDuration());
  engine_->AwaitSteps();
  const auto hidden = Subscribe(*reader_, 4, 10);
  AwaitUp();
  ReadByBoth(5, GetParam());
  ExpectAll(900);
  EXPECT_LE(rows_[5].by_link->largest(), NcclTransfers::kMaxBytes);
  EXPECT_GT(rows_[5].by_grpc->largest(), NcclTransfers::kMaxBytes);
  EXPECT_EQ(reader_->stats().received_over_links, reader_->stats().received);
}

// Beside another one that goes on.
TEST_P(NcclRowsOfAKind, ADraftThatJoinsLateGetsAllOfThem) {
  StartEngine({{5, GetParam()}, {6, GetParam()}});
  ReadByBoth(5, GetParam());
  engine_->StepTo(200);
  rows_[5].by_link->Await(100);
  TensorReaderClient late({}, Links());
  const auto again = Read(late, 5, GetParam());
  const auto other = Read(*reader_, 6, GetParam());
  again->Await(200);
  other->Await(200);
  ExpectAll(200);
  EXPECT_TRUE(again->bits() == rows_[5].by_grpc->bits());
  EXPECT_EQ(reader_->stats().received_over_links, reader_->stats().received);
}

// Steps go on, and other readers are served.
TEST_P(NcclRowsOfAKind, LateTransfersHoldNobodyUp) {
  StartEngine({{5, GetParam()}, {6, GetParam()}});
  ReadByBoth(5, GetParam());
  nccl_.HoldTransfers(true);
  engine_->StepTo(200);
  engine_->AwaitSteps();
  rows_[5].by_grpc->Await(200);
  const auto other = Read(*by_grpc_, 6, GetParam());
  other->Await(200);
  // A channel that is not on the link waits for it, too.
  const auto joined = Read(*reader_, 6, GetParam());
  engine_->AwaitTurn();
  EXPECT_EQ(rows_[5].by_link->next(), 0);
  EXPECT_EQ(joined->next(), 0);
  nccl_.HoldTransfers(false);
  joined->Await(200);
  ExpectAll(200);
  EXPECT_EQ(publisher_->stats().link_failures, 0u);
  EXPECT_EQ(publisher_->stats().rows_sent_again, 0u);
}

TEST_P(NcclRowsOfAKind, OfALostTransferTheyComeAgain) {
  for (const int index : {1, 2, 5, 15}) {
    nccl_.LoseTransfer(nccl_.num_transfers() + index);
    StartEngine({{5, GetParam()}, {6, GetParam()}},
                {kNever, absl::Milliseconds(150)});
    ReadByBoth(5, GetParam());
    ReadByBoth(6, GetParam());
    for (int there = 10; there <= 100; there += 10) {
      engine_->StepTo(there);
      ExpectAll(there);
    }
    ExpectFallBack(100);
    EXPECT_GE(nccl_.num_aborts(), 2);
    engine_ = nullptr;
    by_grpc_ = nullptr;
    Stop();
  }
}

TEST_P(NcclRowsOfAKind, ReorderedOnesAreNeverTakenForOthers) {
  for (const int index : {1, 7}) {
    nccl_.SwapTransfer(nccl_.num_transfers() + index);
    StartEngine({{5, GetParam()}, {6, GetParam()}});
    ReadByBoth(5, GetParam());
    ReadByBoth(6, GetParam());
    for (int there = 2; there <= 100; there += 7) {
      engine_->StepTo(there);
      engine_->AwaitSteps();
    }
    engine_->StepTo(100);
    ExpectFallBack(100);
    engine_ = nullptr;
    by_grpc_ = nullptr;
    Stop();
  }
}

// By whichever end notices.
TEST_P(NcclRowsOfAKind, OfAnAbortedLinkTheyComeAgain) {
  for (const int rank : {0, 1}) {
    StartEngine({{5, GetParam()}});
    ReadByBoth(5, GetParam());
    engine_->StepTo(50);
    rows_[5].by_link->Await(20);
    nccl_.HoldTransfers(true);
    engine_->StepTo(120);
    engine_->AwaitSteps();
    const int before = rows_[5].by_link->next();
    EXPECT_LT(before, 120);
    nccl_.FailRank(rank, absl::InternalError("remote process exited"));
    ExpectFallBack(120);
    EXPECT_GE(publisher_->stats().rows_sent_again, 1u);
    nccl_.HoldTransfers(false);
    engine_->StepTo(150);
    ExpectAll(150);
    nccl_.FailRank(rank, absl::OkStatus());
    engine_ = nullptr;
    by_grpc_ = nullptr;
    Stop();
  }
}

TEST_P(NcclRowsOfAKind, WithoutALinkTheyComeOverGrpc) {
  nccl_.HoldJoins(true);
  StartEngine({{5, GetParam()}}, {absl::Milliseconds(100), kNever});
  rows_[5] = {Read(*reader_, 5, GetParam()), Read(*by_grpc_, 5, GetParam())};
  engine_->StepTo(100);
  ExpectAll(100);
  AwaitFailure();
  engine_->StepTo(120);
  ExpectAll(120);
  EXPECT_EQ(reader_->stats().received_over_links, 0u);
  EXPECT_EQ(publisher_->stats().rows_sent_again, 0u);
}

// Whichever call to the library fails, at whichever end.
TEST_P(NcclRowsOfAKind, NoFailedCallCostsARow) {
  for (int index = 0; index < 120; index += 3) {
    nccl_.FailCall(nccl_.num_calls() + index);
    StartEngine({{5, GetParam()}, {6, GetParam()}});
    for (const uint64_t channel : {5, 6}) {
      rows_[channel] = {Read(*reader_, channel, GetParam()),
                        Read(*by_grpc_, channel, GetParam())};
    }
    engine_->StepTo(40);
    ExpectAll(40);
    engine_ = nullptr;
    by_grpc_ = nullptr;
    Stop();
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, NcclRowsOfAKind,
                         ::testing::Values(kKeys, kFeatures),
                         [](const auto& info) { return info.param.name; });

// Such rows are few; hidden states beside them keep the link.
TEST_F(NcclRows, ARowThatNoTransferHoldsComesOverGrpc) {
  const RowKind large = {"Large", {64, 2, 512}, false};
  StartEngine({{5, large}});
  const auto hidden = Subscribe(*reader_, 6, 10);
  AwaitUp();
  ReadByBoth(5, large);
  engine_->StepTo(8);
  ExpectAll(8);
  EXPECT_EQ(reader_->stats().received_over_links, 0u);
  publisher_->Publish(AnyBits(6, 1, 10));
  EXPECT_EQ(BitsOf(hidden->AwaitTensor().tensor), BitsOf(AnyBits(6, 1, 10)));
  EXPECT_EQ(reader_->stats().received_over_links, 1u);
  EXPECT_EQ(reader_->stats().links, 1);
}

// Of what the target has no features, none are sent again either: the draft
// gets as many as it has asked for.
TEST_F(NcclRows, WhatIsLostBeforeThemIsToldAgain) {
  StartEngine({{5, kFeatures, 300}});
  const auto rows = Read(*reader_, 5, kFeatures, /*end=*/100);
  AwaitUp();
  nccl_.HoldTransfers(true);
  engine_->StepTo(1000, absl::ZeroDuration());
  engine_->AwaitSteps();
  EXPECT_TRUE(Eventually([&] { return nccl_.num_transfers() > 1; }));
  EXPECT_EQ(rows->next(), 0);
  nccl_.FailRank(1, absl::InternalError("remote process exited"));
  rows->Await(400);
  AwaitFailure();
  EXPECT_EQ(rows->first(), 300);
  EXPECT_EQ(publisher_->stats().rows_sent_again, 100u);
  engine_->AwaitTurn();
  engine_->AwaitTurn();
  EXPECT_EQ(rows->next(), 400);
  // What it asks for later counts.
  rows->Ask(410);
  rows->Await(410);
}

// What has come before the link is lost was after such a gap: the draft is
// still owed as many as it has asked for, whatever it says before it knows.
TEST_F(NcclRows, WhatItIsOwedDoesNotShrinkWithTheLink) {
  StartEngine({{5, kFeatures, 300}});
  const auto rows = Read(*reader_, 5, kFeatures, /*end=*/100);
  AwaitUp();
  engine_->StepTo(350, absl::ZeroDuration());
  rows->Await(350);
  EXPECT_EQ(rows->first(), 300);
  reader_->WantRows(5, 120);
  nccl_.HoldTransfers(true);
  engine_->StepTo(1000, absl::ZeroDuration());
  engine_->AwaitSteps();
  EXPECT_EQ(rows->next(), 350);
  nccl_.FailRank(1, absl::InternalError("remote process exited"));
  rows->Await(400);
  AwaitFailure();
  engine_->AwaitTurn();
  EXPECT_EQ(rows->next(), 400);
}

// Rows and hidden states share the link, and leave it together.
TEST_F(NcclRows, HiddenStatesGoOnBesideThem) {
  StartEngine({{5, kKeys}});
  const auto hidden = Subscribe(*reader_, 6, 10);
  ReadByBoth(5, kKeys);
  engine_->StepTo(2000);
  for (int position = 1; position < 50; ++position) {
    if (position == 25) nccl_.FailRank(0, absl::InternalError("gone"));
    if (position == 26) AwaitFailure();
    publisher_->Publish(AnyBits(6, position, 10));
    // Those that were under way are lost.
    if (position == 25) continue;
    int came = 0;
    while (came < position && !HasFailure()) {
      const Tensor state = hidden->AwaitTensor().tensor;
      came = state.tag.position;
      EXPECT_EQ(BitsOf(state), BitsOf(AnyBits(6, came, 10)));
    }
  }
  engine_->AwaitSteps();
  ExpectAll(2000);
}

// A draft that has left the link, as the target sees it. The test says what it
// likes.
class OddReader final : public LinkListener {
 public:
  OddReader(const std::string& address, SideLinks* links)
      : links_(links),
        stub_(v1::Tensors::NewStub(rpc::CreateChannel(address))),
        stream_(stub_->Read(&context_)) {}
  ~OddReader() override {
    if (link_ != nullptr) link_->Close();
    stream_->WritesDone();
    v1::TensorEvent event;
    while (stream_->Read(&event)) {
    }
    EXPECT_TRUE(stream_->Finish().ok());
  }
  void OnFailed(const absl::Status&) override {}

  // It is up, and `request` is said.
  void Join(v1::TensorRequest request) {
    v1::TensorRequest question;
    question.mutable_link()->set_step(v1::LINK_STEP_ASKED);
    question.mutable_link()->set_rows(true);
    ASSERT_TRUE(stream_->Write(question));
    v1::TensorEvent event;
    ASSERT_TRUE(stream_->Read(&event));
    ASSERT_EQ(event.link().step(), v1::LINK_STEP_OFFERED);
    link_ = links_->Open(LinkEnd::kReceiver, event.link().id(), this);
    request.mutable_link()->set_step(v1::LINK_STEP_UP);
    ASSERT_TRUE(stream_->Write(request));
  }
  void Say(const v1::TensorRequest& request) {
    ASSERT_TRUE(stream_->Write(request));
  }
  // The next header or tensor.
  v1::TensorChunk AwaitChunk() {
    v1::TensorEvent event;
    EXPECT_TRUE(stream_->Read(&event));
    return event.chunk();
  }

 private:
  SideLinks* const links_;
  const std::unique_ptr<v1::Tensors::Stub> stub_;
  grpc::ClientContext context_;
  const std::unique_ptr<
      grpc::ClientReaderWriter<v1::TensorRequest, v1::TensorEvent>>
      stream_;
  std::shared_ptr<SideLink> link_;
};

v1::TensorRequest RequestOf(uint64_t channel, const RowKind& kind, int first,
                            int end, uint32_t epoch = kRowsEpoch) {
  v1::TensorRequest request;
  v1::RowsRequest* const rows = request.add_rows();
  rows->set_channel(channel);
  rows->set_epoch(epoch);
  rows->set_first(static_cast<uint32_t>(first));
  rows->set_end(static_cast<uint32_t>(end));
  rows->set_num_layers(static_cast<uint32_t>(kind.shape.num_layers));
  rows->set_num_key_value_heads(
      static_cast<uint32_t>(kind.shape.num_key_value_heads));
  rows->set_head_dim(static_cast<uint32_t>(kind.shape.head_dim));
  return request;
}
v1::TensorRequest Failed(v1::TensorRequest request) {
  request.mutable_link()->set_step(v1::LINK_STEP_FAILED);
  return request;
}

// Where the draft is counts for the channel that it has opened, and for no
// other one of that name.
TEST_F(NcclRows, TheyGoOnWhereTheReaderSays) {
  StartEngine({{5, kKeys}});
  NcclLinks links(nccl_.Open(), options_);
  struct Case {
    v1::TensorRequest word;
    int goes_on = 0;
  };
  for (const Case& each :
       {Case{RequestOf(5, kKeys, 2, 20), 2},
        Case{RequestOf(5, kKeys, 2, 20, kRowsEpoch + 1), 10},
        Case{RequestOf(6, kKeys, 2, 20), 10}, Case{v1::TensorRequest(), 10}}) {
    OddReader reader(server_->address(), &links);
    reader.Join(RequestOf(5, kKeys, 0, 10));
    engine_->StepTo(1000, absl::ZeroDuration());
    for (int come = 0; come < 10;) {
      const v1::TensorChunk header = reader.AwaitChunk();
      EXPECT_NE(header.link_transfer(), 0u);
      EXPECT_EQ(header.position(), static_cast<uint32_t>(come));
      come += static_cast<int>(header.shape(0));
    }
    reader.Say(Failed(each.word));
    reader.Say(RequestOf(5, kKeys, 0, 30));
    int next = each.goes_on;
    while (next < 30 && !HasFailure()) {
      const v1::TensorChunk chunk = reader.AwaitChunk();
      EXPECT_EQ(chunk.link_transfer(), 0u);
      EXPECT_EQ(chunk.position(), static_cast<uint32_t>(next));
      next += static_cast<int>(chunk.shape(0));
    }
    EXPECT_EQ(next, 30);
  }
}

// The reader has not read what came over the stream when it says where it is.
TEST_F(NcclRows, ThoseOfBeforeTheLinkDoNotComeTwice) {
  StartEngine({{5, kKeys}});
  NcclLinks links(nccl_.Open(), options_);
  OddReader reader(server_->address(), &links);
  reader.Say(RequestOf(5, kKeys, 0, 10));
  engine_->StepTo(5, absl::ZeroDuration());
  for (int come = 0; come < 5;) {
    const v1::TensorChunk chunk = reader.AwaitChunk();
    EXPECT_EQ(chunk.link_transfer(), 0u);
    come += static_cast<int>(chunk.shape(0));
  }
  reader.Join({});
  AwaitUp();
  engine_->StepTo(8, absl::ZeroDuration());
  EXPECT_NE(reader.AwaitChunk().link_transfer(), 0u);
  reader.Say(Failed(RequestOf(5, kKeys, 2, 10)));
  const v1::TensorChunk chunk = reader.AwaitChunk();
  EXPECT_EQ(chunk.link_transfer(), 0u);
  EXPECT_EQ(chunk.position(), 5u);
  EXPECT_EQ(publisher_->stats().rows_sent_again, 3u);
}

// The publisher has seen the failure. What the reader has is known only once
// it says so.
TEST_F(NcclRows, UntilTheReaderSaysWhereItIsTheyWait) {
  StartEngine({{5, kKeys}, {6, kKeys}});
  NcclLinks links(nccl_.Open(), options_);
  OddReader reader(server_->address(), &links);
  reader.Join(RequestOf(5, kKeys, 0, 10));
  engine_->StepTo(5, absl::ZeroDuration());
  EXPECT_NE(reader.AwaitChunk().link_transfer(), 0u);
  nccl_.FailRank(0, absl::InternalError("gone"));
  EXPECT_TRUE(
      Eventually([&] { return publisher_->stats().link_failures == 1; }));
  engine_->StepTo(8);
  engine_->AwaitSteps();
  // Another channel does not wait.
  reader.Say(RequestOf(6, kKeys, 0, 8));
  v1::TensorChunk chunk = reader.AwaitChunk();
  while (chunk.channel() == 0) chunk = reader.AwaitChunk();  // of the failure
  EXPECT_EQ(chunk.channel(), 6u);
  EXPECT_EQ(chunk.link_transfer(), 0u);
  reader.Say(Failed(RequestOf(5, kKeys, 4, 10)));
  chunk = reader.AwaitChunk();
  EXPECT_EQ(chunk.channel(), 5u);
  EXPECT_EQ(chunk.link_transfer(), 0u);
  EXPECT_EQ(chunk.position(), 4u);
  EXPECT_EQ(publisher_->stats().rows_sent_again, 1u) << "the others had waited";
}

// What a peer says of channels that are not its own changes nothing.
TEST_F(NcclRows, OddWordsOfAReaderChangeNothing) {
  StartEngine({{5, kKeys}, {6, kKeys}});
  ReadByBoth(5, kKeys);
  engine_->StepTo(20);
  ExpectAll(20);
  const auto stub =
      v1::Tensors::NewStub(rpc::CreateChannel(server_->address()));
  grpc::ClientContext context;
  const auto stream = stub->Read(&context);
  v1::TensorRequest request = Failed({});
  for (const uint64_t channel : {5, 6, 7}) {
    *request.add_rows() = RequestOf(channel, kKeys, 3, 9000).rows(0);
  }
  const int before = publisher_->stats().subscriptions;
  ASSERT_TRUE(stream->Write(request));
  ASSERT_TRUE(stream->Write(request));
  stream->WritesDone();
  v1::TensorEvent event;
  EXPECT_FALSE(stream->Read(&event));
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(publisher_->stats().subscriptions, before);
  EXPECT_EQ(publisher_->stats().rows_sent_again, 0u);
  engine_->StepTo(40);
  ExpectAll(40);
  EXPECT_EQ(reader_->stats().links, 1);
}

}  // namespace
}  // namespace nacre::worker
