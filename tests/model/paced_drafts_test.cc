#include "model/paced_drafts.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nacre::model {
namespace {

using ::testing::ElementsAre;

constexpr int kHidden = 3;

// Heads and a draft that take 2 ms a call on a clock of the test's, which
// sleeps a little less than it is told.
class PacedDraftsTest : public ::testing::Test {
 protected:
  class Heads : public FutureHeads {
   public:
    explicit Heads(int64_t* now_ns) : now_ns_(now_ns) {}
    int count() const override { return 2; }
    absl::Span<const float> Run(absl::Span<const float> hidden) override {
      *now_ns_ += 2'000'000;
      said_.assign(hidden.rbegin(), hidden.rend());
      return said_;
    }

   private:
    int64_t* const now_ns_;
    std::vector<float> said_;
  };

  class Drafter : public FeatureDrafter {
   public:
    explicit Drafter(int64_t* now_ns) : now_ns_(now_ns) {}
    absl::Span<const FeatureTap> taps() const override { return taps_; }
    int feature_size() const override { return 7; }
    int max_depth() const override { return 5; }
    absl::StatusOr<std::unique_ptr<FeatureSequence>> NewSequence(int,
                                                                 int) override {
      return absl::ResourceExhaustedError("no room");
    }
    absl::StatusOr<absl::Span<const float>> Forward(
        absl::Span<const FeatureRows> batch) override {
      *now_ns_ += 2'000'000;
      if (batch.empty()) return absl::ResourceExhaustedError("no room");
      return absl::Span<const float>(logits_);
    }

   private:
    int64_t* const now_ns_;
    const std::vector<FeatureTap> taps_ = std::vector<FeatureTap>(3);
    const std::vector<float> logits_ = {0.5f, -1.0f};
  };

  PaceOfCalls Pace() {
    return PaceOfCalls(StepTimes({{1, 10e6}, {3, 12e6}}),
                       {[this] { return now_ns_; },
                        [this](int64_t ns) { now_ns_ += ns - ns / 4; }});
  }

  int64_t now_ns_ = 5;
};

TEST_F(PacedDraftsTest, ACallOfHeadsTakesTheTimeOfItsRows) {
  PacedHeads heads(std::make_unique<Heads>(&now_ns_), kHidden, Pace());
  EXPECT_EQ(heads.count(), 2);
  const std::vector<float> hidden = {1, 2, 3, 4, 5, 6};
  const int64_t start_ns = now_ns_;
  EXPECT_THAT(heads.Run(absl::MakeConstSpan(hidden).first(3)),
              ElementsAre(3, 2, 1));
  EXPECT_EQ(now_ns_ - start_ns, 10'000'000);
  EXPECT_THAT(heads.Run(hidden), ElementsAre(6, 5, 4, 3, 2, 1));
  EXPECT_EQ(now_ns_ - start_ns, 21'000'000);
}

TEST_F(PacedDraftsTest, ACallOfADraftTakesTheTimeOfAllItsRows) {
  PacedDrafter drafter(std::make_unique<Drafter>(&now_ns_), Pace());
  EXPECT_EQ(drafter.taps().size(), 3);
  EXPECT_EQ(drafter.feature_size(), 7);
  EXPECT_EQ(drafter.max_depth(), 5);
  EXPECT_TRUE(absl::IsResourceExhausted(drafter.NewSequence(1, 1).status()));
  const std::vector<int32_t> ids = {4, 5};
  const FeatureRows two = {.token_ids = ids};
  const FeatureRows one = {.token_ids = absl::MakeConstSpan(ids).first(1)};
  const int64_t start_ns = now_ns_;
  const auto said = drafter.Forward({two, one});
  ASSERT_TRUE(said.ok()) << said.status();
  EXPECT_THAT(*said, ElementsAre(0.5f, -1.0f));
  EXPECT_EQ(now_ns_ - start_ns, 12'000'000);
}

TEST_F(PacedDraftsTest, ACallThatFailsWaitsForNothing) {
  PacedDrafter drafter(std::make_unique<Drafter>(&now_ns_), Pace());
  const int64_t start_ns = now_ns_;
  EXPECT_TRUE(absl::IsResourceExhausted(drafter.Forward({}).status()));
  EXPECT_EQ(now_ns_ - start_ns, 2'000'000);
}

TEST_F(PacedDraftsTest, ASlowerCallWaitsForNothing) {
  PacedHeads heads(
      std::make_unique<Heads>(&now_ns_), kHidden,
      PaceOfCalls(StepTimes::Flat(1e6),
                  {[this] { return now_ns_; }, [](int64_t) { FAIL(); }}));
  const std::vector<float> hidden = {1, 2, 3};
  heads.Run(hidden);
  EXPECT_EQ(now_ns_, 2'000'005);
}

}  // namespace
}  // namespace nacre::model
