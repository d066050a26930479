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

TEST(RefusalTest, OthersHaveNone) {
  EXPECT_FALSE(RefusalOf(absl::OkStatus()).has_value());
  EXPECT_FALSE(RefusalOf(absl::ResourceExhaustedError("x")).has_value());
  EXPECT_FALSE(IsRefusedFor(absl::ResourceExhaustedError("x"), kQueueFull));
}

}  // namespace
}  // namespace nacre
