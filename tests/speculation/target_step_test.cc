#include "speculation/target_step.h"

#include <vector>

#include "gtest/gtest.h"

namespace nacre::speculation {
namespace {

using Ids = std::vector<int32_t>;

template <typename T>
std::vector<T> Vector(absl::Span<const T> span) {
  return {span.begin(), span.end()};
}

// After the text's last token: 10 - 11 - 12, and below 10 also 21 - 22. The
// path through 21 is the unlikelier one.
class TargetStepTest : public testing::Test {
 protected:
  TargetStepTest() : buffer_(Verification::kExact, 1) {
    Tail tail;
    tail.base_length = tail.first_position = 1;
    tail.token_ids = {10, 11, 21, 12, 22};
    tail.parents = {0, 1, 1, 2, 3};
    tail.scores = {-0.5f, -0.5f, -2, -0.5f, -0.25f};
    tail.first_node = 1;
    EXPECT_EQ(buffer_.Add(tail, text_), DraftBuffer::Outcome::kApplied);
  }

  const Ids text_ = {1};
  DraftBuffer buffer_;
  TargetStep step_;
};

TEST_F(TargetStepTest, TakesAChain) {
  step_.Begin(/*degraded=*/false);
  step_.TakeChain(buffer_, 2);
  EXPECT_EQ(Vector(step_.token_ids()), (Ids{10, 11}));
  EXPECT_EQ(Vector(step_.parents()), (std::vector<int>{0, 1}));
  EXPECT_EQ(step_.path_length(), 2);
  EXPECT_EQ(Vector(step_.numbers()), (Ids{1, 2}));
}

TEST_F(TargetStepTest, TakesATreeWithItsBestPathFirst) {
  step_.Begin(/*degraded=*/true);
  step_.TakeTree(buffer_, {&buffer_.tree(), 8, 64}, 5);
  EXPECT_TRUE(step_.running());
  EXPECT_TRUE(step_.degraded());
  EXPECT_EQ(Vector(step_.token_ids()), (Ids{10, 11, 12, 21, 22}));
  EXPECT_EQ(Vector(step_.parents()), (std::vector<int>{0, 1, 2, 1, 4}));
  EXPECT_EQ(step_.path_length(), 3);
  EXPECT_EQ(step_.RowBehind(0, 10), 1);
  EXPECT_EQ(step_.RowBehind(1, 21), 4);
  EXPECT_EQ(step_.RowBehind(0, 11), absl::nullopt) << "it stands below 10";
  EXPECT_EQ(step_.RowBehind(3, 21), absl::nullopt) << "not below 12";
  EXPECT_TRUE(step_.HasDraftRow(4));
  EXPECT_FALSE(step_.HasDraftRow(5));
  // The limits hold, whatever is asked for.
  step_.Begin(false);
  step_.TakeTree(buffer_, {&buffer_.tree(), 1, 64}, 5);
  EXPECT_EQ(step_.size(), 1);
  step_.Begin(false);
  step_.TakeTree(buffer_, {&buffer_.tree(), 8, 2}, 5);
  EXPECT_EQ(step_.size(), 2);
}

TEST_F(TargetStepTest, KnowsTheTargetsOwnRows) {
  DraftBuffer buffer(Verification::kExact, 1);
  buffer.SetLocal(
      {{.token_id = 7, .probability = 0.9, .given_parent = 0.9},
       {.token_id = 8, .parent = 0, .probability = 0.8, .given_parent = 0.9}});
  step_.Begin(false);
  step_.TakeTree(buffer, {&buffer.tree(), 8, 64}, 2);
  EXPECT_EQ(step_.num_own(), 2);
  EXPECT_TRUE(step_.IsOwn(1));
  EXPECT_FALSE(step_.HasDraftRow(0));
}

TEST_F(TargetStepTest, GivesItsTokensAwayAndGoesOn) {
  step_.Begin(false);
  step_.TakeChain(buffer_, 3);
  EXPECT_EQ(step_.SharedWith(buffer_), 3);
  EXPECT_EQ(step_.TakeTokens(), (Ids{10, 11, 12}));
  EXPECT_EQ(step_.size(), 0);
  EXPECT_EQ(step_.RowBehind(0, 10), absl::nullopt);
  EXPECT_TRUE(step_.running());
  step_.End();
  EXPECT_FALSE(step_.running());
}

TEST_F(TargetStepTest, CopiesWhatTheTreeHeld) {
  step_.Begin(false);
  step_.TakeTree(buffer_, {&buffer_.tree(), 8, 64}, 5);
  buffer_.Attach(1);
  step_.ForgetNumbers();
  EXPECT_EQ(step_.size(), 5);
  EXPECT_TRUE(step_.numbers().empty());
  EXPECT_EQ(step_.SharedWith(buffer_), 0);
}

}  // namespace
}  // namespace nacre::speculation
