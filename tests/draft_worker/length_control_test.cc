#include "draft_worker/length_control.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace nacre::draft_worker {
namespace {

using speculation::DraftRow;
using speculation::LengthDecision;
using speculation::LengthPolicy;
using speculation::RowNeeds;

class Looking final : public LengthPolicy {
 public:
  Looking(RowNeeds needs, std::function<void(const DraftRow&)> look)
      : needs_(needs), look_(std::move(look)) {}
  RowNeeds needs() const override { return needs_; }
  bool looks_at_token() const override { return needs_.token_probability; }
  LengthDecision Decide(const DraftRow& row) override {
    look_(row);
    return LengthDecision::kStop;
  }

 private:
  const RowNeeds needs_;
  const std::function<void(const DraftRow&)> look_;
};

// Shows what a policy with these needs sees of one row.
void Look(RowNeeds needs, const std::function<void(const DraftRow&)>& look) {
  const std::vector<float> hidden = {0.5f, -0.5f};
  const float ln2 = std::log(2.0f);
  // 1/2, 1/4, 1/4, and a padded id that must not count.
  const std::vector<float> logits = {0.0f, ln2, 0.0f, 50.0f};
  LengthControl control(std::make_unique<speculation::DraftLength>(
                            std::make_unique<Looking>(needs, look), 8),
                        /*prompt_length=*/5, /*vocab_limit=*/3);
  EXPECT_EQ(control.needs_hidden(), needs.draft_hidden);
  EXPECT_EQ(control.looks_at_token(), needs.token_probability);
  absl::optional<int32_t> token_id;
  if (control.looks_at_token()) token_id = 2;
  EXPECT_EQ(control.Decide(/*position=*/7, token_id, logits, hidden),
            LengthDecision::kStop);
}

TEST(LengthControl, ComputesWhatThePolicyReads) {
  bool looked = false;
  Look({.token_probability = true,
        .entropy = true,
        .top_probabilities = true,
        .draft_hidden = true},
       [&](const DraftRow& row) {
         looked = true;
         EXPECT_EQ(row.generated, 2);
         EXPECT_EQ(row.token->token_id, 2);
         EXPECT_NEAR(row.token->probability, 0.25, 1e-6);
         EXPECT_NEAR(row.entropy, 1.5 * std::log(2.0), 1e-6);
         ASSERT_EQ(row.top_probabilities.size(), 10u);
         EXPECT_NEAR(row.top_probabilities[0], 0.5, 1e-6);
         EXPECT_NEAR(row.top_probabilities[1], 0.25, 1e-6);
         EXPECT_EQ(row.top_probabilities[3], 0.0f);
         ASSERT_EQ(row.draft_hidden.size(), 2u);
         EXPECT_EQ(row.draft_hidden[1], -0.5f);
       });
  EXPECT_TRUE(looked);
}

TEST(LengthControl, ComputesNothingElse) {
  bool looked = false;
  Look({}, [&](const DraftRow& row) {
    looked = true;
    EXPECT_FALSE(row.token.has_value());
    EXPECT_EQ(row.entropy, 0.0f);
    EXPECT_TRUE(row.top_probabilities.empty());
    EXPECT_TRUE(row.draft_hidden.empty());
  });
  EXPECT_TRUE(looked);
}

}  // namespace
}  // namespace nacre::draft_worker
