#include "common/refusal.h"

#include <gtest/gtest.h>

namespace nacre {
namespace {

TEST(RefusalTest, AStatusKeepsIt) {
  const absl::Status status =
      WithRefusal(absl::ResourceExhaustedError("full"), {kQueueFull, 12});
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_EQ(status.message(), "full");
  ASSERT_TRUE(RefusalOf(status).has_value());
  EXPECT_EQ(RefusalOf(status)->reason, kQueueFull);
  EXPECT_EQ(RefusalOf(status)->retry_after_s, 12);
  EXPECT_TRUE(IsRefusedFor(status, kQueueFull));
  EXPECT_FALSE(IsRefusedFor(status, kQueueTimeout));
  EXPECT_TRUE(
      IsRefusedFor(WithRefusal(status, {kQueueTimeout}), kQueueTimeout));
}

TEST(RefusalTest, OtherWordsChangeNothingElse) {
  const absl::Status status = Reworded(
      WithRefusal(absl::ResourceExhaustedError("full"), {kQueueFull, 12}),
      "very full");
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_EQ(status.message(), "very full");
  ASSERT_TRUE(RefusalOf(status).has_value());
  EXPECT_EQ(RefusalOf(status)->reason, kQueueFull);
  EXPECT_EQ(RefusalOf(status)->retry_after_s, 12);
  EXPECT_EQ(Reworded(absl::UnavailableError("gone"), "long gone"),
            absl::UnavailableError("long gone"));
}

TEST(RefusalTest, TheFieldAtFaultIsTheInnermost) {
  const absl::Status status =
      WithField(absl::InvalidArgumentError("top_p is 2"), "sampling.top_p");
  EXPECT_EQ(FieldOf(status), "sampling.top_p");
  EXPECT_EQ(status.message(), "top_p is 2");
  EXPECT_EQ(FieldOf(WithField(status, "sampling")), "sampling.top_p");
  EXPECT_EQ(FieldOf(Reworded(status, "in other words")), "sampling.top_p");
  const absl::Status both = WithField(
      WithRefusal(absl::ResourceExhaustedError("full"), {kQueueFull}), "n");
  EXPECT_EQ(FieldOf(both), "n");
  EXPECT_TRUE(IsRefusedFor(both, kQueueFull));
  EXPECT_TRUE(WithField(absl::OkStatus(), "n").ok());
  EXPECT_EQ(FieldOf(WithField(absl::OkStatus(), "n")), "");
  EXPECT_EQ(WithField(absl::UnavailableError("x"), ""),
            absl::UnavailableError("x"));
}

TEST(RefusalTest, OthersHaveNone) {
  EXPECT_EQ(FieldOf(absl::ResourceExhaustedError("x")), "");
  EXPECT_FALSE(RefusalOf(absl::OkStatus()).has_value());
  EXPECT_FALSE(RefusalOf(absl::ResourceExhaustedError("x")).has_value());
  EXPECT_FALSE(IsRefusedFor(absl::ResourceExhaustedError("x"), kQueueFull));
}

}  // namespace
}  // namespace nacre
