#include "worker/ranks/value_inbox.h"

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nacre::worker {
namespace {

using kernels::NodeCall;
using ::testing::HasSubstr;

constexpr absl::Duration kForever = absl::InfiniteDuration();
const NodeCall kCall = {7, NodeCall::Kind::kSum, 5};

ValuePiece Piece(uint64_t offset, const std::vector<float>& values,
                 const NodeCall& call = kCall) {
  return {call, offset,
          std::string(reinterpret_cast<const char*>(values.data()),
                      values.size() * sizeof(float))};
}

TEST(ValueInboxTest, PutsPiecesTogetherAsTheyCome) {
  ValueInbox inbox(1);
  std::vector<float> values(5);
  std::thread late([&] {
    EXPECT_TRUE(inbox.Push(Piece(0, {1, 2, 3})).ok());
    EXPECT_TRUE(inbox.Push(Piece(3, {4, 5})).ok());
  });
  EXPECT_EQ(inbox.Receive(kCall, kForever, values.data()), absl::OkStatus());
  late.join();
  EXPECT_EQ(values, std::vector<float>({1, 2, 3, 4, 5}));
}

TEST(ValueInboxTest, ReturnsWhyItEnded) {
  ValueInbox inbox(1);
  const absl::Status reason = absl::UnavailableError("lost");
  std::vector<float> values(5);
  std::thread ends([&] {
    EXPECT_TRUE(inbox.Push(Piece(0, {1, 2, 3})).ok());
    inbox.End(reason);
    inbox.End(absl::InternalError("later"));
  });
  EXPECT_EQ(inbox.Receive(kCall, kForever, values.data()), reason);
  ends.join();
  EXPECT_EQ(inbox.Receive(kCall, kForever, values.data()), reason);
}

TEST(ValueInboxTest, APatientOneWaitsNoLonger) {
  ValueInbox inbox(3);
  float value = 0;
  EXPECT_EQ(inbox.Receive(kCall, absl::Milliseconds(1), &value),
            absl::DeadlineExceededError("node 3 has sent nothing for 1ms"));
}

TEST(ValueInboxTest, RefusesPiecesThatDoNotFit) {
  ValuePiece odd = Piece(0, {1, 2});
  odd.bytes.pop_back();
  const std::vector<std::pair<ValuePiece, std::string>> cases = {
      {Piece(0, {1}, {8, NodeCall::Kind::kSum, 5}), "is at call 8"},
      {Piece(0, {1}, {7, NodeCall::Kind::kGather, 5}), "a gather of 5"},
      {Piece(0, {1}, {7, NodeCall::Kind::kSum, 6}), "a sum of 6"},
      {Piece(1, {1}), "node 2 has sent 4 bytes at value 1, expected values 0"},
      {Piece(0, {}), "0 bytes at value 0"},
      {Piece(0, {1, 2, 3, 4, 5, 6}), "24 bytes at value 0"},
      {odd, "7 bytes at value 0"}};
  for (const auto& [piece, said] : cases) {
    ValueInbox inbox(2);
    EXPECT_TRUE(inbox.Push(piece).ok());
    std::vector<float> values(5, -1);
    const absl::Status status = inbox.Receive(kCall, kForever, values.data());
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(status.ToString(), HasSubstr(said));
    EXPECT_EQ(values, std::vector<float>(5, -1));
  }
}

TEST(ValueInboxTest, OneThatSendsOnAndOnIsTold) {
  // Pieces without values take room, too.
  for (const std::vector<float>& more : {std::vector<float>{3}, {}}) {
    const size_t most = 2 * sizeof(ValuePiece) + 2 * sizeof(float) - 1;
    ValueInbox inbox(1, most + more.size() * sizeof(float));
    EXPECT_TRUE(inbox.Push(Piece(0, {1, 2})).ok());
    EXPECT_EQ(inbox.Push(Piece(2, more)).code(),
              absl::StatusCode::kResourceExhausted);
  }
  ValueInbox inbox(1, /*most_bytes=*/8);
  EXPECT_EQ(inbox.Push(Piece(0, {1, 2})),
            absl::ResourceExhaustedError(
                "node 1 has sent more than 8 bytes that no call has asked "
                "for"));
}

}  // namespace
}  // namespace nacre::worker
