// The reader's end against publishers that say what they should and what they
// should not. The test is the publisher.

#include "worker/tensors/link_receiver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/worker/tensors/nccl_stand_in.h"
#include "tests/worker/tensors/random_tensor.h"
#include "tests/worker/tensors/recording_sink.h"
#include "worker/tensors/nccl_link.h"

namespace nacre::worker {
namespace {

using ::testing::HasSubstr;

class OfferingEnd final : public LinkListener {
 public:
  void OnId(const std::string& id) override {
    absl::MutexLock lock(&mu_);
    id_ = id;
  }
  void OnFailed(const absl::Status&) override {}
  std::string id() const {
    absl::MutexLock lock(&mu_);
    return id_;
  }

 private:
  mutable absl::Mutex mu_;
  std::string id_ ABSL_GUARDED_BY(mu_);
};

class LinkReceiverTest : public ::testing::Test {
 protected:
  LinkReceiverTest()
      : links_(nccl_.Open(), {absl::Hours(1), absl::Hours(1)}),
        peer_(nccl_.Open(), {absl::Hours(1), absl::Hours(1)}),
        receiver_(Parts()) {}
  ~LinkReceiverTest() override {
    receiver_.Close();
    if (link_ != nullptr) link_->Close();
    EXPECT_EQ(counts_.up, 0);
  }

  static v1::TensorLink Message(v1::LinkStep step, const std::string& id = "") {
    v1::TensorLink message;
    message.set_step(step);
    message.set_id(id);
    return message;
  }
  // As a publisher that offers one.
  void Offer() {
    EXPECT_EQ(receiver_.Question().step(), v1::LINK_STEP_ASKED);
    EXPECT_EQ(receiver_.Question().kind(), "NCCL");
    EXPECT_TRUE(receiver_.Question().rows());
    EXPECT_EQ(receiver_.Question().version(), "2.28.9");
    link_ = peer_.Open(LinkEnd::kSender, "", &end_);
    EXPECT_TRUE(Eventually([this] { return !end_.id().empty(); }));
    receiver_.OnMessage(Message(v1::LINK_STEP_OFFERED, end_.id()));
  }
  void AwaitUp() {
    Offer();
    EXPECT_EQ(AwaitTold().step(), v1::LINK_STEP_UP);
    EXPECT_EQ(counts_.up, 1);
  }
  v1::TensorLink AwaitTold() {
    v1::TensorLink first;
    EXPECT_TRUE(Eventually([&] {
      absl::MutexLock lock(&mu_);
      if (told_.empty()) return false;
      first = told_.front();
      told_.erase(told_.begin());
      return true;
    }));
    return first;
  }
  Tensor AwaitTensor() { return sink_.AwaitTensor().tensor; }
  size_t num_told() {
    absl::MutexLock lock(&mu_);
    return told_.size();
  }

  // Of a tensor whose values come over the link.
  static TensorChunk HeaderOf(const Tensor& tensor) {
    TensorChunk header = ChunkAt(Encode(tensor), 0);
    header.data = {};
    return header;
  }
  void ExpectRefusal(const TensorChunk& header, uint64_t number,
                     const std::string& reason) {
    EXPECT_FALSE(receiver_.OnHeader(header, number));
    const v1::TensorLink told = AwaitTold();
    EXPECT_EQ(told.step(), v1::LINK_STEP_FAILED);
    EXPECT_THAT(told.message(), HasSubstr(reason));
    EXPECT_EQ(counts_.failures, 1u);
    EXPECT_EQ(counts_.up, 0);
  }

  NcclStandIn nccl_;
  OfferingEnd end_;
  LinkReceiverCounts counts_;
  RecordingSink sink_;
  absl::Mutex mu_;
  std::vector<v1::TensorLink> told_ ABSL_GUARDED_BY(mu_);
  NcclLinks links_, peer_;
  std::shared_ptr<SideLink> link_;
  LinkReceiver receiver_;

 private:
  LinkReceiver::Parts Parts() {
    LinkReceiver::Parts parts;
    parts.links = &links_;
    parts.counts = &counts_;
    parts.publisher = "host:1";
    parts.tell = [this](v1::TensorLink message) {
      absl::MutexLock lock(&mu_);
      told_.push_back(std::move(message));
    };
    parts.deliver = [this](Tensor tensor) {
      sink_.OnTensor({std::move(tensor), 1});
    };
    return parts;
  }
};

TEST_F(LinkReceiverTest, PutsHeadersAndValuesTogether) {
  AwaitUp();
  for (int i = 1; i <= 9; ++i) {
    const Tensor sent = RandomTensor(5, i, 40);
    ASSERT_TRUE(Eventually([this] { return link_->HasRoom(); }));
    // Whichever is there first.
    const bool values_first = i % 2 == 0;
    ASSERT_TRUE(!values_first || link_->Send(OnWire(sent)));
    ASSERT_TRUE(receiver_.OnHeader(HeaderOf(sent), static_cast<uint64_t>(i)));
    ASSERT_TRUE(values_first || link_->Send(OnWire(sent)));
    const Tensor came = AwaitTensor();
    EXPECT_EQ(came.tag, sent.tag);
    EXPECT_EQ(came.shape, sent.shape);
    EXPECT_EQ(ValuesOf(came), ValuesOf(sent));
  }
  EXPECT_EQ(counts_.received, 9u);
  EXPECT_EQ(counts_.lost, 0u);
}

TEST_F(LinkReceiverTest, AHeaderBeforeTheLinkIsUpMakesNoSense) {
  nccl_.HoldTransfers(true);
  Offer();
  ExpectRefusal(HeaderOf(RandomTensor(5, 1, 3)), 1, "before the link was up");
}

TEST_F(LinkReceiverTest, HeadersThatSkipATransferMakeNoSense) {
  AwaitUp();
  const TensorChunk header = HeaderOf(RandomTensor(5, 1, 3));
  ASSERT_TRUE(receiver_.OnHeader(header, 1));
  ExpectRefusal(header, 3, "transfer 3 after 1");
  EXPECT_EQ(counts_.lost, 1u);
  // What comes before the publisher has heard of it is lost, too.
  EXPECT_TRUE(receiver_.OnHeader(header, 4));
  EXPECT_EQ(counts_.lost, 2u);
}

TEST_F(LinkReceiverTest, HeadersWithDataMakeNoSense) {
  AwaitUp();
  const Tensor tensor = RandomTensor(5, 1, 3);
  ExpectRefusal(ChunkAt(Encode(tensor), 0), 1, "makes no sense");
}

// In bf16, of an odd number of values.
TEST_F(LinkReceiverTest, RowsComeAsTheyAreSent) {
  AwaitUp();
  Tensor sent = RandomTensor(5, 1, 33);
  sent.tag.is_rows = true;
  sent.shape = {3, 11};
  sent.in_bf16 = true;
  ASSERT_TRUE(link_->Send(OnWire(sent)));
  ASSERT_TRUE(receiver_.OnHeader(HeaderOf(sent), 1));
  const Tensor came = AwaitTensor();
  EXPECT_EQ(came.tag, sent.tag);
  EXPECT_EQ(came.shape, sent.shape);
  EXPECT_TRUE(came.in_bf16);
  std::vector<float> rounded(33);
  DecodeValues(OnWire(sent)->bytes, true, rounded.data());
  EXPECT_EQ(ValuesOf(came), rounded);
  EXPECT_NE(rounded, ValuesOf(sent));
  EXPECT_EQ(counts_.received, 1u);
  EXPECT_EQ(counts_.received_bytes, 66u);
}

TEST_F(LinkReceiverTest, HeadersOfBF16MakeNoSense) {
  AwaitUp();
  TensorChunk header = HeaderOf(RandomTensor(5, 1, 3));
  header.in_bf16 = true;
  ExpectRefusal(header, 1, "makes no sense");
}

TEST_F(LinkReceiverTest, HeadersOfMoreThanATransferHoldsMakeNoSense) {
  AwaitUp();
  TensorChunk header = HeaderOf(RandomTensor(5, 1, 3));
  header.shape = {1 << 16, 2};
  ExpectRefusal(header, 1, "makes no sense");
}

TEST_F(LinkReceiverTest, HeadersWithoutTransfersAreBounded) {
  AwaitUp();
  const TensorChunk header = HeaderOf(RandomTensor(5, 1, 3));
  uint64_t number = 1;
  while (number < 1000 && receiver_.OnHeader(header, number)) ++number;
  EXPECT_EQ(number, 65u);
  EXPECT_THAT(AwaitTold().message(), HasSubstr("more headers than transfers"));
  EXPECT_EQ(counts_.lost, 64u);
}

TEST_F(LinkReceiverTest, AFailedLinkIsSaidAndCounted) {
  AwaitUp();
  ASSERT_TRUE(receiver_.OnHeader(HeaderOf(RandomTensor(5, 1, 3)), 1));
  nccl_.FailRank(1, absl::InternalError("no route"));
  const v1::TensorLink told = AwaitTold();
  EXPECT_EQ(told.step(), v1::LINK_STEP_FAILED);
  EXPECT_EQ(told.message(), "no route");
  EXPECT_EQ(counts_.failures, 1u);
  EXPECT_EQ(counts_.lost, 1u);
  // The publisher's answer, and a second offer, change nothing.
  receiver_.OnMessage(Message(v1::LINK_STEP_FAILED));
  receiver_.OnMessage(Message(v1::LINK_STEP_OFFERED, "id"));
  EXPECT_EQ(counts_.failures, 1u);
  EXPECT_EQ(num_told(), 0u);
}

// It waits for that to know what has come.
TEST_F(LinkReceiverTest, APublisherThatGivesUpIsAnsweredOnce) {
  AwaitUp();
  nccl_.HoldTransfers(true);
  const Tensor sent = RandomTensor(5, 1, 3);
  ASSERT_TRUE(receiver_.OnHeader(HeaderOf(sent), 1));
  ASSERT_TRUE(link_->Send(OnWire(sent)));
  receiver_.OnMessage(Message(v1::LINK_STEP_FAILED));
  receiver_.OnMessage(Message(v1::LINK_STEP_FAILED));
  nccl_.HoldTransfers(false);
  EXPECT_EQ(AwaitTold().step(), v1::LINK_STEP_FAILED);
  EXPECT_EQ(num_told(), 0u);
  EXPECT_EQ(sink_.num_tensors(), 0u);
  EXPECT_EQ(counts_.failures, 1u);
}

TEST_F(LinkReceiverTest, APublisherWithoutLinksIsNotAskedAgain) {
  receiver_.OnMessage(Message(v1::LINK_STEP_FAILED));
  receiver_.OnMessage(Message(v1::LINK_STEP_OFFERED, "id"));
  receiver_.OnStreamTensor();
  EXPECT_EQ(num_told(), 0u);
  EXPECT_EQ(counts_.failures, 1u);
}

TEST_F(LinkReceiverTest, TensorsOfTheStreamAfterAHeaderEndIt) {
  AwaitUp();
  receiver_.OnStreamTensor();  // was sent before the publisher knew
  EXPECT_EQ(counts_.up, 1);
  nccl_.HoldTransfers(true);
  const Tensor sent = RandomTensor(5, 1, 3);
  ASSERT_TRUE(receiver_.OnHeader(HeaderOf(sent), 1));
  ASSERT_TRUE(link_->Send(OnWire(sent)));
  receiver_.OnStreamTensor();
  nccl_.HoldTransfers(false);
  EXPECT_EQ(AwaitTold().step(), v1::LINK_STEP_FAILED);
  EXPECT_EQ(counts_.up, 0);
  EXPECT_EQ(counts_.lost, 1u);
  EXPECT_EQ(sink_.num_tensors(), 0u);  // never after the newer one
}

}  // namespace
}  // namespace nacre::worker
