// The publisher's end against readers that say what they should and what they
// should not. The test is the reader.

#include "worker/tensors/link_sender.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/worker/tensors/nccl_stand_in.h"
#include "tests/worker/tensors/random_tensor.h"
#include "tests/worker/tensors/recording_sink.h"
#include "worker/tensors/nccl_link.h"

namespace nacre::worker {
namespace {

using ::testing::HasSubstr;
using Way = LinkSender::Way;

class IgnoringEnd final : public LinkListener {
  void OnFailed(const absl::Status&) override {}
};

class LinkSenderTest : public ::testing::Test {
 protected:
  LinkSenderTest()
      : links_(nccl_.Open(), {absl::Hours(1), absl::Hours(1)}),
        peer_(nccl_.Open(), {absl::Hours(1), absl::Hours(1)}),
        sender_(&links_, &counts_, [this] { ++changes_; }) {}
  ~LinkSenderTest() override {
    sender_.Close();
    if (link_ != nullptr) link_->Close();
    EXPECT_EQ(counts_.up, 0);
  }

  static v1::TensorLink Message(v1::LinkStep step,
                                const std::string& text = "") {
    v1::TensorLink message;
    message.set_step(step);
    message.set_message(text);
    return message;
  }
  static v1::TensorLink Question(const std::string& kind = "NCCL",
                                 bool rows = false) {
    v1::TensorLink message = Message(v1::LINK_STEP_ASKED);
    message.set_kind(kind);
    message.set_rows(rows);
    return message;
  }
  v1::TensorLink AwaitMessage(LinkSender* sender) {
    v1::TensorLink message;
    EXPECT_TRUE(Eventually([&] { return sender->TakeMessage(&message); }));
    return message;
  }
  // As a reader that joins.
  void AwaitUp(bool rows = false) {
    sender_.OnMessage(Question("NCCL", rows), "reader");
    const v1::TensorLink offer = AwaitMessage(&sender_);
    EXPECT_EQ(offer.step(), v1::LINK_STEP_OFFERED);
    link_ = peer_.Open(LinkEnd::kReceiver, offer.id(), &end_);
    EXPECT_EQ(sender_.NextWay(), Way::kStream);
    sender_.OnMessage(Message(v1::LINK_STEP_UP), "reader");
    EXPECT_EQ(sender_.NextWay(), Way::kLink);
    EXPECT_EQ(counts_.up, 1);
  }
  static std::shared_ptr<const WireTensor> OfSize(int size) {
    return OnWire(RandomTensor(5, 1, size));
  }

  NcclStandIn nccl_;
  IgnoringEnd end_;
  LinkSenderCounts counts_;
  std::atomic<int> changes_{0};
  NcclLinks links_, peer_;
  std::shared_ptr<SideLink> link_;
  LinkSender sender_;
};

TEST_F(LinkSenderTest, NobodyWhoDoesNotAskHasALink) {
  EXPECT_EQ(sender_.NextWay(), Way::kStream);
  EXPECT_EQ(sender_.Send(OfSize(3)), 0u);
  sender_.OnMessage(Message(v1::LINK_STEP_UP), "reader");
  sender_.OnMessage(Message(v1::LINK_STEP_UNSPECIFIED), "reader");
  EXPECT_EQ(sender_.NextWay(), Way::kStream);
  v1::TensorLink message;
  EXPECT_FALSE(sender_.TakeMessage(&message));
}

TEST_F(LinkSenderTest, APublisherWithoutSuchLinksSaysSo) {
  LinkSender without(nullptr, &counts_, [] {});
  LinkSender of_another_kind(&links_, &counts_, [] {});
  without.OnMessage(Question(), "reader");
  of_another_kind.OnMessage(Question("RDMA"), "reader");
  for (LinkSender* const sender : {&without, &of_another_kind}) {
    const v1::TensorLink answer = AwaitMessage(sender);
    EXPECT_EQ(answer.step(), v1::LINK_STEP_FAILED);
    EXPECT_EQ(answer.message(), "the publisher has no such link");
    sender->OnMessage(Message(v1::LINK_STEP_UP), "reader");
    EXPECT_EQ(sender->NextWay(), Way::kStream);
  }
  EXPECT_EQ(counts_.failures, 0u);  // they have none to fail
}

TEST_F(LinkSenderTest, AReaderWithAnotherVersionIsRefusedWithBoth) {
  v1::TensorLink question = Question();
  for (const char* version : {"3.0.1", "2.28.8"}) {
    LinkSender sender(&links_, &counts_, [] {});
    question.set_version(version);
    sender.OnMessage(question, "reader");
    const v1::TensorLink answer = AwaitMessage(&sender);
    EXPECT_EQ(answer.step(), v1::LINK_STEP_FAILED);
    EXPECT_EQ(answer.message(),
              absl::StrCat("the reader has NCCL \"", version,
                           "\", the publisher has \"2.28.9\": both must be "
                           "the same"));
    sender.OnMessage(Message(v1::LINK_STEP_UP), "reader");
    EXPECT_EQ(sender.NextWay(), Way::kStream);
  }
  LinkSender sender(&links_, &counts_, [] {});
  question.set_version("2.28.9");
  sender.OnMessage(question, "reader");
  EXPECT_EQ(AwaitMessage(&sender).step(), v1::LINK_STEP_OFFERED);
}

// As readers did before links had kinds.
TEST_F(LinkSenderTest, AReaderThatNamesNoKindGetsTheLink) {
  LinkSender sender(&links_, &counts_, [] {});
  sender.OnMessage(Question(""), "reader");
  EXPECT_EQ(AwaitMessage(&sender).step(), v1::LINK_STEP_OFFERED);
}

TEST_F(LinkSenderTest, TensorsAreNumberedUntilThereIsNoRoom) {
  nccl_.HoldTransfers(true);
  AwaitUp();
  for (size_t i = 1; i <= NcclTransfers::kMostUnderWay; ++i) {
    EXPECT_EQ(sender_.NextWay(), Way::kLink);
    EXPECT_EQ(sender_.Send(OfSize(3)), i);
  }
  EXPECT_EQ(sender_.NextWay(), Way::kLater);
  EXPECT_EQ(sender_.Send(OfSize(3)), 0u);
  const int before = changes_;
  nccl_.HoldTransfers(false);
  ASSERT_TRUE(link_->Expect(12));
  EXPECT_TRUE(Eventually([&] { return changes_ > before; }));
  EXPECT_EQ(sender_.NextWay(), Way::kLink);
  EXPECT_EQ(counts_.sent, 1u);
  EXPECT_EQ(counts_.sent_bytes, 12u);
}

// Of before they went over links.
TEST_F(LinkSenderTest, AReaderThatDoesNotSayItTakesRowsHasThemOverTheStream) {
  AwaitUp();
  EXPECT_EQ(sender_.max_row_bytes(), 0u);
  EXPECT_EQ(sender_.RowsWay(12), Way::kStream);
}

TEST_F(LinkSenderTest, RowsShareTheNumbersAndTheRoomOfHiddenStates) {
  nccl_.HoldTransfers(true);
  EXPECT_EQ(sender_.RowsWay(12), Way::kStream);
  EXPECT_EQ(sender_.SendRows(OfSize(3)), 0u);
  AwaitUp(/*rows=*/true);
  constexpr size_t kMost = NcclTransfers::kMaxBytes;
  EXPECT_EQ(sender_.max_row_bytes(), kMost);
  EXPECT_EQ(sender_.RowsWay(kMost), Way::kLink);
  EXPECT_EQ(sender_.RowsWay(kMost + 1), Way::kStream);
  for (uint64_t i = 1; i <= NcclTransfers::kMostUnderWay; ++i) {
    EXPECT_EQ(
        i % 2 == 0 ? sender_.SendRows(OfSize(3)) : sender_.Send(OfSize(3)), i);
  }
  EXPECT_EQ(sender_.RowsWay(12), Way::kLater);
  EXPECT_EQ(sender_.SendRows(OfSize(3)), 0u);
  sender_.OnMessage(Message(v1::LINK_STEP_FAILED, "no"), "reader");
  EXPECT_EQ(sender_.RowsWay(12), Way::kStream);
  EXPECT_EQ(sender_.SendRows(OfSize(3)), 0u);
  EXPECT_EQ(sender_.max_row_bytes(), 0u);
}

TEST_F(LinkSenderTest, AReaderThatGivesUpGetsTheRestOverTheStream) {
  AwaitUp();
  EXPECT_EQ(sender_.Send(OfSize(3)), 1u);
  sender_.OnMessage(Message(v1::LINK_STEP_FAILED, "no"), "reader");
  sender_.OnMessage(Message(v1::LINK_STEP_FAILED, "no"), "reader");
  sender_.OnMessage(Message(v1::LINK_STEP_UP), "reader");
  sender_.OnMessage(Question(), "reader");
  EXPECT_EQ(sender_.NextWay(), Way::kStream);
  EXPECT_EQ(sender_.Send(OfSize(3)), 0u);
  v1::TensorLink message;
  EXPECT_FALSE(sender_.TakeMessage(&message));
  EXPECT_EQ(counts_.failures, 1u);
  EXPECT_EQ(counts_.up, 0);
  EXPECT_TRUE(Eventually([this] { return nccl_.num_aborts() == 1; }));
}

TEST_F(LinkSenderTest, AFailedLinkIsSaidAndCounted) {
  AwaitUp();
  nccl_.FailRank(0, absl::InternalError("no route"));
  const v1::TensorLink message = AwaitMessage(&sender_);
  EXPECT_EQ(message.step(), v1::LINK_STEP_FAILED);
  EXPECT_EQ(message.message(), "no route");
  EXPECT_EQ(sender_.NextWay(), Way::kStream);
  EXPECT_EQ(counts_.failures, 1u);
  EXPECT_EQ(counts_.up, 0);
}

TEST_F(LinkSenderTest, ATensorThatIsTooLargeEndsIt) {
  AwaitUp();
  constexpr int kMost = NcclTransfers::kMaxBytes / sizeof(float);
  EXPECT_EQ(sender_.Send(OfSize(kMost)), 1u);
  EXPECT_EQ(sender_.Send(OfSize(kMost + 1)), 0u);
  EXPECT_EQ(sender_.NextWay(), Way::kStream);
  EXPECT_THAT(AwaitMessage(&sender_).message(),
              HasSubstr("a tensor of 262148 bytes, a transfer has at most "
                        "262144"));
  EXPECT_EQ(counts_.failures, 1u);
}

}  // namespace
}  // namespace nacre::worker
