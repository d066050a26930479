#include "speculation/target_text.h"

#include <vector>

#include "gtest/gtest.h"

namespace nacre::speculation {
namespace {

TEST(TargetText, EndsWithItsTokensAndItsLength) {
  TargetText text({2, 3, {9}, {8}}, {9, 8});
  EXPECT_FALSE(text.finished()) << "a prompt ends nothing";
  EXPECT_EQ(text.EndsWith(9), FinishReason::kEos);
  EXPECT_EQ(text.EndsWith(8), FinishReason::kStop);
  EXPECT_FALSE(text.IsEnd(7));
  text.CommitInside(std::vector<int32_t>{1, 2});
  EXPECT_EQ(text.generated(), 2);
  EXPECT_EQ(text.remaining(), 1);
  EXPECT_FALSE(text.finished());
  text.Commit(3);
  EXPECT_EQ(text.finish(), FinishReason::kLength);
  EXPECT_EQ(text.committed(), (std::vector<int32_t>{9, 8, 1, 2, 3}));
}

TEST(TargetText, AnEndTokenAtTheLastPlaceIsTheReason) {
  TargetText text({1, 1, {9}, {8}}, {5});
  text.Commit(8);
  EXPECT_EQ(text.finish(), FinishReason::kStop);
}

TEST(TargetText, MayHaveEndedBefore) {
  EXPECT_EQ(TargetText({1, 9, {9}, {8}}, {5, 9}).finish(), FinishReason::kEos);
  EXPECT_EQ(TargetText({1, 9, {9}, {8}}, {5, 8}).finish(), FinishReason::kStop);
  EXPECT_EQ(TargetText({1, 1, {9}, {8}}, {5, 9}).finish(),
            FinishReason::kLength);
  EXPECT_FALSE(TargetText({2, 9, {9}, {8}}, {5, 9}).finished());
}

}  // namespace
}  // namespace nacre::speculation
