#include "worker/tensors/nccl_link.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/worker/tensors/nccl_stand_in.h"
#include "tests/worker/tensors/random_tensor.h"
#include "tests/worker/tensors/recording_sink.h"

namespace nacre::worker {
namespace {

// What one end is told.
class RecordingEnd final : public LinkListener {
 public:
  void OnId(const std::string& id) override {
    absl::MutexLock lock(&mu_);
    id_ = id;
  }
  void OnUp() override {
    absl::MutexLock lock(&mu_);
    ++ups_;
  }
  void OnSent(size_t num_bytes) override {
    absl::MutexLock lock(&mu_);
    sent_.push_back(num_bytes);
  }
  void OnReceived(absl::string_view bytes) override {
    std::vector<float> values(bytes.size() / sizeof(float));
    DecodeValues(bytes, /*in_bf16=*/false, values.data());
    absl::MutexLock lock(&mu_);
    received_.push_back(std::move(values));
  }
  void OnFailed(const absl::Status& reason) override {
    absl::MutexLock lock(&mu_);
    failures_.push_back(reason);
  }

  std::string AwaitId() {
    EXPECT_TRUE(Eventually([this] { return !id().empty(); }));
    return id();
  }
  absl::Status AwaitFailure() {
    EXPECT_TRUE(Eventually([this] { return num_failures() > 0; }));
    absl::MutexLock lock(&mu_);
    return failures_.empty() ? absl::OkStatus() : failures_.front();
  }
  void AwaitReceived(size_t count) {
    EXPECT_TRUE(Eventually([&] { return received().size() >= count; }));
  }

  std::string id() const {
    absl::MutexLock lock(&mu_);
    return id_;
  }
  int ups() const {
    absl::MutexLock lock(&mu_);
    return ups_;
  }
  size_t num_failures() const {
    absl::MutexLock lock(&mu_);
    return failures_.size();
  }
  std::vector<size_t> sent() const {
    absl::MutexLock lock(&mu_);
    return sent_;
  }
  std::vector<std::vector<float>> received() const {
    absl::MutexLock lock(&mu_);
    return received_;
  }

 private:
  mutable absl::Mutex mu_;
  std::string id_ ABSL_GUARDED_BY(mu_);
  int ups_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<size_t> sent_ ABSL_GUARDED_BY(mu_);
  std::vector<std::vector<float>> received_ ABSL_GUARDED_BY(mu_);
  std::vector<absl::Status> failures_ ABSL_GUARDED_BY(mu_);
};

// Two workers with a link.
class NcclLinkTest : public ::testing::Test {
 protected:
  static constexpr absl::Duration kNever = absl::Hours(1);

  void Start(const NcclLinks::Options& options = {kNever, kNever}) {
    target_ = std::make_unique<NcclLinks>(nccl_.Open(), options);
    draft_ = std::make_unique<NcclLinks>(nccl_.Open(), options);
    sender_ = target_->Open(LinkEnd::kSender, "", &at_sender_);
    receiver_ =
        draft_->Open(LinkEnd::kReceiver, at_sender_.AwaitId(), &at_receiver_);
  }
  // A second link between the two.
  void StartOther() {
    other_sender_ = target_->Open(LinkEnd::kSender, "", &at_other_sender_);
    other_receiver_ = draft_->Open(
        LinkEnd::kReceiver, at_other_sender_.AwaitId(), &at_other_receiver_);
  }
  void AwaitUp() {
    EXPECT_TRUE(Eventually(
        [this] { return at_receiver_.ups() == 1 && at_sender_.ups() == 1; }));
  }
  static Tensor Numbered(int number) { return RandomTensor(5, number, 3); }
  static std::shared_ptr<const WireTensor> Wire(int number) {
    return OnWire(Numbered(number));
  }

  NcclStandIn nccl_;
  RecordingEnd at_sender_, at_receiver_;
  RecordingEnd at_other_sender_, at_other_receiver_;
  std::unique_ptr<NcclLinks> target_, draft_;
  std::shared_ptr<SideLink> sender_, receiver_;
  std::shared_ptr<SideLink> other_sender_, other_receiver_;
};

TEST_F(NcclLinkTest, WhatIsSentIsReceivedInOrder) {
  Start();
  AwaitUp();
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(Eventually([this] { return sender_->HasRoom(); }));
    ASSERT_TRUE(sender_->Send(Wire(i)));
    ASSERT_TRUE(receiver_->Expect(12));
  }
  at_receiver_.AwaitReceived(20);
  for (size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(at_receiver_.received()[i],
              ValuesOf(Numbered(static_cast<int>(i))));
  }
  EXPECT_TRUE(Eventually([this] { return at_sender_.sent().size() == 20; }));
  EXPECT_EQ(at_sender_.sent().front(), 12u);
  EXPECT_EQ(at_sender_.num_failures() + at_receiver_.num_failures(), 0u);
}

// No call waits; the last of what is left here fits, and no more.
TEST_F(NcclLinkTest, WhoSendsOrExpectsNeverWaits) {
  nccl_.HoldTransfers(true);
  Start();
  for (size_t i = 0; i < NcclTransfers::kMostUnderWay; ++i) {
    EXPECT_TRUE(sender_->HasRoom());
    EXPECT_TRUE(sender_->Send(Wire(static_cast<int>(i))));
  }
  EXPECT_FALSE(sender_->HasRoom());
  EXPECT_FALSE(sender_->Send(Wire(9)));
  int expected = 0;
  while (receiver_->Expect(12)) ++expected;
  EXPECT_EQ(expected, 64);
  EXPECT_FALSE(receiver_->Expect(NcclTransfers::kMaxBytes + 1));
  EXPECT_TRUE(at_receiver_.received().empty());
  nccl_.HoldTransfers(false);
  at_receiver_.AwaitReceived(NcclTransfers::kMostUnderWay);
  EXPECT_TRUE(Eventually([this] { return sender_->HasRoom(); }));
}

TEST_F(NcclLinkTest, ALostTransferEndsTheLinkAtBothEnds) {
  nccl_.LoseTransfer(2);  // after the empty one
  Start({kNever, absl::Milliseconds(200)});
  AwaitUp();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(sender_->Send(Wire(i)));
    ASSERT_TRUE(receiver_->Expect(12));
  }
  for (RecordingEnd* const end : {&at_sender_, &at_receiver_}) {
    EXPECT_EQ(end->AwaitFailure(),
              absl::DeadlineExceededError("a transfer took over 200ms"));
  }
  EXPECT_LE(at_receiver_.received().size(), 1u);
  EXPECT_FALSE(sender_->Send(Wire(3)));
  EXPECT_FALSE(sender_->HasRoom());
  EXPECT_FALSE(receiver_->Expect(12));
  EXPECT_TRUE(Eventually([this] { return nccl_.num_aborts() == 2; }));
  EXPECT_EQ(at_sender_.num_failures(), 1u);
}

TEST_F(NcclLinkTest, APeerThatNeverJoinsIsGivenUp) {
  nccl_.HoldJoins(true);
  Start({absl::Milliseconds(100), kNever});
  EXPECT_EQ(
      at_sender_.AwaitFailure(),
      absl::DeadlineExceededError("the peer has not joined within 100ms"));
  EXPECT_FALSE(at_receiver_.AwaitFailure().ok());
  EXPECT_EQ(at_receiver_.ups(), 0);
}

TEST_F(NcclLinkTest, AnErrorOfACommunicatorIsSeenWhileNothingIsSent) {
  Start();
  AwaitUp();
  nccl_.FailRank(1, absl::InternalError("remote"));
  EXPECT_EQ(at_receiver_.AwaitFailure(), absl::InternalError("remote"));
  EXPECT_EQ(at_sender_.num_failures(), 0u);
}

TEST_F(NcclLinkTest, AClosedOneSaysNothingMore) {
  Start();
  AwaitUp();
  nccl_.HoldTransfers(true);
  ASSERT_TRUE(sender_->Send(Wire(1)));
  ASSERT_TRUE(receiver_->Expect(12));
  receiver_->Close();
  receiver_->Close();
  EXPECT_FALSE(receiver_->Expect(12));
  EXPECT_TRUE(Eventually([this] { return nccl_.num_aborts() == 1; }));
  sender_->Close();
  EXPECT_TRUE(Eventually([this] { return nccl_.num_aborts() == 2; }));
  nccl_.HoldTransfers(false);
  draft_ = nullptr;
  target_ = nullptr;
  EXPECT_TRUE(at_receiver_.received().empty());
  EXPECT_TRUE(at_sender_.sent().empty());
  EXPECT_EQ(at_sender_.num_failures() + at_receiver_.num_failures(), 0u);
}

TEST_F(NcclLinkTest, AWorkerThatEndsAbortsItsLinks) {
  Start();
  AwaitUp();
  nccl_.HoldTransfers(true);
  ASSERT_TRUE(sender_->Send(Wire(1)));
  target_ = nullptr;
  EXPECT_EQ(nccl_.num_aborts(), 1);
}

// One that has failed leaves the others of its worker alone.
TEST_F(NcclLinkTest, EachLinkIsOnItsOwn) {
  Start();
  AwaitUp();
  RecordingEnd alone;
  const auto bad = draft_->Open(LinkEnd::kReceiver, "", &alone);
  StartOther();
  EXPECT_TRUE(Eventually([&] { return at_other_receiver_.ups() == 1; }));
  bad->Close();
  ASSERT_TRUE(other_sender_->Send(Wire(1)));
  ASSERT_TRUE(other_receiver_->Expect(12));
  ASSERT_TRUE(sender_->Send(Wire(2)));
  ASSERT_TRUE(receiver_->Expect(12));
  at_other_receiver_.AwaitReceived(1);
  at_receiver_.AwaitReceived(1);
  EXPECT_EQ(at_other_receiver_.received()[0], ValuesOf(Numbered(1)));
  EXPECT_EQ(at_receiver_.received()[0], ValuesOf(Numbered(2)));
  other_sender_->Close();
  other_receiver_->Close();
}

// Both wait on one GPU for peers that send nothing. To end either waits for all
// that the GPU does, and so for the other one.
TEST_F(NcclLinkTest, TwoWhosePeersAreGoneEndBoth) {
  const NcclLinks::Options options = {kNever, absl::Milliseconds(200)};
  Start(options);
  StartOther();
  AwaitUp();
  EXPECT_TRUE(Eventually([&] { return at_other_receiver_.ups() == 1; }));
  // Together, so that both are under way when the first is given up.
  ASSERT_TRUE(receiver_->Expect(12));
  ASSERT_TRUE(other_receiver_->Expect(12));
  for (RecordingEnd* const end : {&at_receiver_, &at_other_receiver_}) {
    EXPECT_EQ(end->AwaitFailure(),
              absl::DeadlineExceededError("a transfer took over 200ms"));
  }
  EXPECT_TRUE(Eventually([this] { return nccl_.num_aborts() == 2; }));
}

// A new one takes memory, which waits for all that the GPU does.
TEST_F(NcclLinkTest, OneThatBeginsWhileAnotherWaitsForItsPeer) {
  Start({kNever, absl::Milliseconds(200)});
  AwaitUp();
  ASSERT_TRUE(receiver_->Expect(12));
  StartOther();
  EXPECT_EQ(at_receiver_.AwaitFailure(),
            absl::DeadlineExceededError("a transfer took over 200ms"));
  // Up: a first transfer has gone through.
  EXPECT_TRUE(Eventually([&] { return at_other_receiver_.ups() == 1; }));
}

// As a worker ends: nothing was given up before.
TEST_F(NcclLinkTest, AWorkerEndsWithSeveralThatWait) {
  Start();
  StartOther();
  AwaitUp();
  EXPECT_TRUE(Eventually([&] { return at_other_receiver_.ups() == 1; }));
  ASSERT_TRUE(receiver_->Expect(12));
  ASSERT_TRUE(other_receiver_->Expect(12));
  EXPECT_TRUE(Eventually([this] { return nccl_.num_transfers() == 2; }));
  draft_ = nullptr;
  EXPECT_EQ(nccl_.num_aborts(), 2);
}

TEST_F(NcclLinkTest, AThreadWithoutADeviceFailsItsLinks) {
  nccl_.FailCall(0);
  NcclLinks links(nccl_.Open(), {});
  const auto link = links.Open(LinkEnd::kSender, "", &at_sender_);
  EXPECT_EQ(at_sender_.AwaitFailure(),
            absl::InternalError("a call that was told to fail"));
}

}  // namespace
}  // namespace nacre::worker
