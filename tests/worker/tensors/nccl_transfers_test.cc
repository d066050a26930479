#include "worker/tensors/nccl_transfers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "common/status_macros.h"
#include "tests/worker/tensors/nccl_stand_in.h"
#include "tests/worker/tensors/recording_sink.h"
#include "worker/tensors/tensor_chunks.h"

namespace nacre::worker {
namespace {

using ::testing::HasSubstr;

absl::string_view BytesOf(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()),
          values.size() * sizeof(float)};
}

// Both ends, driven by the test's thread.
class TwoEnds {
 public:
  explicit TwoEnds(NcclStandIn* nccl)
      : apis_{nccl->Open(), nccl->Open()},
        lanes_{{apis_[0].get(), NcclTransfers::SlotBytes()},
               {apis_[1].get(), NcclTransfers::SlotBytes()}},
        sender(apis_[0].get(), &lanes_[0], LinkEnd::kSender),
        receiver(apis_[1].get(), &lanes_[1], LinkEnd::kReceiver) {}

  absl::Status Open() {
    for (const auto& api : apis_) NACRE_RETURN_IF_ERROR(api->BindThread());
    NACRE_ASSIGN_OR_RETURN(const std::string id, apis_[0]->GetUniqueId());
    NACRE_ASSIGN_OR_RETURN(std::unique_ptr<NcclLane> lane, lanes_[0].Take());
    NACRE_RETURN_IF_ERROR(sender.Open(std::move(lane), id));
    NACRE_ASSIGN_OR_RETURN(lane, lanes_[1].Take());
    return receiver.Open(std::move(lane), id);
  }

  // Whether it can post, after a wait for that.
  static absl::Status AwaitRoom(NcclTransfers* end) {
    absl::StatusOr<bool> can = false;
    const bool ended = Eventually([&] {
      can = end->CanPost();
      return !can.ok() || *can;
    });
    return ended ? can.status() : absl::DeadlineExceededError("no room");
  }
  // Of one that is through, after a wait for it.
  absl::StatusOr<std::vector<float>> Await(NcclTransfers* end) {
    absl::Status status;
    NcclTransfers::Done done;
    const bool ended = Eventually([&] {
      for (NcclTransfers* const each : {&sender, &receiver}) {
        if (status.ok()) status = each->CanPost().status();
      }
      if (!status.ok()) return true;
      const auto taken = end->TakeDone();
      status = taken.status();
      if (taken.ok()) done = *taken;
      return !status.ok() || done.any;
    });
    if (!ended) return absl::DeadlineExceededError("nothing is through");
    NACRE_RETURN_IF_ERROR(status);
    std::vector<float> values(done.bytes.size() / sizeof(float));
    DecodeValues(done.bytes, /*in_bf16=*/false, values.data());
    return values;
  }
  absl::StatusOr<std::vector<float>> Pass(uint64_t number,
                                          const std::vector<float>& values) {
    NACRE_RETURN_IF_ERROR(AwaitRoom(&sender));
    NACRE_RETURN_IF_ERROR(sender.PostSend(number, BytesOf(values)));
    NACRE_RETURN_IF_ERROR(AwaitRoom(&receiver));
    NACRE_RETURN_IF_ERROR(
        receiver.PostReceive(number, values.size() * sizeof(float)));
    NACRE_ASSIGN_OR_RETURN(std::vector<float> came, Await(&receiver));
    NACRE_RETURN_IF_ERROR(Await(&sender).status());
    return came;
  }

 private:
  const std::unique_ptr<kernels::NcclApi> apis_[2];
  NcclLanes lanes_[2];

 public:
  NcclTransfers sender;
  NcclTransfers receiver;
};

std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float value : values) {
    bits.push_back(std::bit_cast<uint32_t>(value));
  }
  return bits;
}

TEST(NcclTransfers, CarryEveryBit) {
  NcclStandIn nccl;
  TwoEnds ends(&nccl);
  ASSERT_EQ(ends.Open(), absl::OkStatus());
  const std::vector<float> awkward = {
      0.0f,
      -0.0f,
      std::numeric_limits<float>::infinity(),
      std::numeric_limits<float>::denorm_min(),
      std::bit_cast<float>(0x7fc01234u),   // NaNs with a payload
      std::bit_cast<float>(0xffa00001u)};  // and a signalling one
  EXPECT_EQ(Bits(*ends.Pass(0, {})), Bits({}));
  EXPECT_EQ(Bits(*ends.Pass(1, awkward)), Bits(awkward));
  const std::vector<float> most(NcclTransfers::kMaxBytes / sizeof(float), 0.1f);
  EXPECT_EQ(Bits(*ends.Pass(2, most)), Bits(most));
  EXPECT_EQ(Bits(*ends.Pass(3, {3})), Bits({3}));
}

TEST(NcclTransfers, AFewAreUnderWayAndEndInOrder) {
  NcclStandIn nccl;
  TwoEnds ends(&nccl);
  ASSERT_EQ(ends.Open(), absl::OkStatus());
  nccl.HoldTransfers(true);
  constexpr size_t kMost = NcclTransfers::kMostUnderWay;
  for (size_t round = 0; round < 3; ++round) {
    for (size_t i = 0; i < kMost; ++i) {
      const float value = static_cast<float>(round * kMost + i);
      ASSERT_EQ(TwoEnds::AwaitRoom(&ends.sender), absl::OkStatus());
      ASSERT_EQ(ends.sender.PostSend(i, BytesOf({value, -value})),
                absl::OkStatus());
      ASSERT_EQ(TwoEnds::AwaitRoom(&ends.receiver), absl::OkStatus());
      ASSERT_EQ(ends.receiver.PostReceive(i, 8), absl::OkStatus());
    }
    // The last ones get onto their streams; there is no room for more.
    for (NcclTransfers* const end : {&ends.sender, &ends.receiver}) {
      EXPECT_FALSE(*end->CanPost());
      EXPECT_FALSE(*end->CanPost());
      EXPECT_FALSE(end->TakeDone()->any);
    }
    nccl.HoldTransfers(false);
    for (size_t i = 0; i < kMost; ++i) {
      const float value = static_cast<float>(round * kMost + i);
      EXPECT_EQ(*ends.Await(&ends.receiver),
                (std::vector<float>{value, -value}));
      EXPECT_TRUE(ends.Await(&ends.sender).ok());
    }
    nccl.HoldTransfers(true);
  }
}

TEST(NcclTransfers, AnotherOnesValuesAreNotUsed) {
  NcclStandIn nccl;
  nccl.SwapTransfer(0);
  TwoEnds ends(&nccl);
  ASSERT_EQ(ends.Open(), absl::OkStatus());
  for (uint64_t number = 1; number <= 2; ++number) {
    ASSERT_EQ(TwoEnds::AwaitRoom(&ends.sender), absl::OkStatus());
    ASSERT_EQ(ends.sender.PostSend(number, BytesOf({1, 2, 3})),
              absl::OkStatus());
    ASSERT_EQ(TwoEnds::AwaitRoom(&ends.receiver), absl::OkStatus());
    ASSERT_EQ(ends.receiver.PostReceive(number, 12), absl::OkStatus());
  }
  const absl::Status status = ends.Await(&ends.receiver).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("transfer 2 of 3 values came in the place of 1 of 3"));
}

TEST(NcclTransfers, OfAnotherSizeIsAnotherOne) {
  NcclStandIn nccl;
  TwoEnds ends(&nccl);
  ASSERT_EQ(ends.Open(), absl::OkStatus());
  ASSERT_EQ(TwoEnds::AwaitRoom(&ends.sender), absl::OkStatus());
  ASSERT_EQ(ends.sender.PostSend(7, BytesOf({1, 2, 3})), absl::OkStatus());
  ASSERT_EQ(TwoEnds::AwaitRoom(&ends.receiver), absl::OkStatus());
  ASSERT_EQ(ends.receiver.PostReceive(7, 16), absl::OkStatus());
  EXPECT_THAT(std::string(ends.Await(&ends.receiver).status().message()),
              HasSubstr("transfer 7 of 3 values came in the place of 7 of 4"));
}

TEST(NcclTransfers, WhatIsUnderWayEndsWithThem) {
  NcclStandIn nccl;
  {
    TwoEnds ends(&nccl);
    ASSERT_EQ(ends.Open(), absl::OkStatus());
    ASSERT_EQ(TwoEnds::AwaitRoom(&ends.sender), absl::OkStatus());
    ASSERT_EQ(ends.sender.PostSend(1, BytesOf({1})), absl::OkStatus());
    EXPECT_FALSE(*ends.sender.CanPost());
    EXPECT_TRUE(Eventually([&] { return ends.sender.CanPost().value(); }));
  }
  EXPECT_EQ(nccl.num_aborts(), 2);
}

TEST(NcclTransfers, AnErrorOfThePeerIsPassedOn) {
  NcclStandIn nccl;
  TwoEnds ends(&nccl);
  ASSERT_EQ(ends.Open(), absl::OkStatus());
  ASSERT_TRUE(ends.Pass(1, {1}).ok());
  nccl.FailRank(0, absl::UnavailableError("the peer is gone"));
  EXPECT_EQ(ends.sender.CanPost().status(),
            absl::UnavailableError("the peer is gone"));
}

// Whichever call fails: it is said, and nothing is left behind (~NcclStandIn).
TEST(NcclTransfers, NoFailedCallGoesUnnoticed) {
  int num_calls = 0;
  {
    NcclStandIn nccl;
    TwoEnds ends(&nccl);
    ASSERT_EQ(ends.Open(), absl::OkStatus());
    num_calls = nccl.num_calls();
    ASSERT_TRUE(ends.Pass(1, {1, 2}).ok());
    // Of the passing alone it is not known how often they ask.
    num_calls += 12;
  }
  for (int index = 0; index < num_calls; ++index) {
    NcclStandIn nccl;
    nccl.FailCall(index);
    TwoEnds ends(&nccl);
    absl::Status status = ends.Open();
    if (status.ok()) status = ends.Pass(1, {1, 2}).status();
    EXPECT_EQ(status, absl::InternalError("a call that was told to fail"))
        << index;
  }
}

}  // namespace
}  // namespace nacre::worker
