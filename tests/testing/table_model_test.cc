#include "tests/testing/table_model.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "gtest/gtest.h"

namespace nacre::testing {
namespace {

int ArgMax(const std::vector<float>& logits) {
  return static_cast<int>(std::max_element(logits.begin(), logits.end()) -
                          logits.begin());
}

// Of all contexts of two tokens, how often both models prefer the same token.
int Agreements(const TableModel& a, const TableModel& b) {
  int count = 0;
  for (int32_t i = 0; i < 16; ++i) {
    for (int32_t j = 0; j < 16; ++j) {
      count += ArgMax(a.Logits({i, j})) == ArgMax(b.Logits({i, j}));
    }
  }
  return count;
}

TEST(TableModelTest, DraftsAgreeAsMuchAsTheyAreTold) {
  const TableModel target({});
  TableModelOptions options;
  EXPECT_EQ(Agreements(target, TableModel(options)), 256);
  options.disturbance = 0.1f;
  const int good = Agreements(target, TableModel(options));
  options.disturbance = 3.0f;
  const int poor = Agreements(target, TableModel(options));
  EXPECT_LT(good, 256);
  EXPECT_GT(good, 150);
  EXPECT_LT(poor, good);
  options.disturbance = 0.0f;
  options.adversarial = true;
  EXPECT_EQ(Agreements(target, TableModel(options)), 0);
}

TEST(TableModelTest, LogitsAreThoseOfTheTokensBefore) {
  TableModel model({});
  auto sequence = model.NewSequence(10);
  ASSERT_TRUE(sequence.ok());
  const std::vector<int32_t> tokens = {3, 1, 4, 1, 5};
  ASSERT_TRUE(model.Forward({{sequence->get(), {tokens.data(), 3}, 0}}).ok());
  const auto logits =
      model.Forward({{sequence->get(), {tokens.data() + 3, 2}, 2}});
  ASSERT_TRUE(logits.ok());
  const std::vector<float> last = model.Logits(tokens);
  EXPECT_TRUE(std::equal(last.begin(), last.end(), logits->begin() + 16));
  EXPECT_EQ((*sequence)->length(), 5);
  EXPECT_EQ(model.num_forwards(), 2);
  EXPECT_EQ(model.num_rows(), 5);
}

TEST(TableModelTest, NodesSeeTheTextThatTheirPathEnds) {
  TableModel model({});
  const auto sequence = *model.NewTreeSequence(10, 4, {});
  EXPECT_EQ(model.kv_free_tokens(), (1 << 20) - 14);
  // After 3, 1: nodes 4 and 5; 6 after the second.
  const std::vector<int32_t> tokens = {3, 1, 4, 5, 6};
  const std::vector<model::TreeNode> nodes = {
      {2, model::kNoSlot, 2}, {0, model::kNoSlot, 2}, {3, 0, 3}};
  const auto logits = model.Forward({{.sequence = sequence.get(),
                                      .token_ids = tokens,
                                      .num_logits = 3,
                                      .nodes = nodes}});
  ASSERT_TRUE(logits.ok()) << logits.status();
  const std::vector<std::vector<int32_t>> texts = {
      {3, 1, 4}, {3, 1, 5}, {3, 1, 5, 6}};
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::vector<float> expected = model.Logits(texts[i]);
    EXPECT_TRUE(
        std::equal(expected.begin(), expected.end(), &(*logits)[16 * i]));
  }
  EXPECT_EQ(sequence->length(), 2);
  EXPECT_FALSE(sequence->KeepPath(2, {3}).ok());
  ASSERT_TRUE(sequence->KeepPath(2, {0, 3}).ok());
  EXPECT_EQ(sequence->length(), 4);
  ASSERT_TRUE(sequence->KeepPath(2, {0, 3}).ok());
  EXPECT_EQ(sequence->length(), 4);
  const auto after = model.Forward(
      {{sequence.get(), absl::MakeConstSpan(tokens).first(1), 1}});
  ASSERT_TRUE(after.ok());
  const std::vector<float> expected = model.Logits({6, 3});
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), after->begin()));
  const model::TreeNode outside = {4, model::kNoSlot, 5};
  EXPECT_EQ(model
                .Forward({{.sequence = sequence.get(),
                           .token_ids = absl::MakeConstSpan(tokens).first(1),
                           .num_logits = 1,
                           .nodes = {&outside, 1}}})
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(TableModelTest, ReservesAndReportsErrors) {
  TableModelOptions options;
  options.kv_capacity_tokens = 20;
  options.context_length = 18;
  int calls = 0;
  options.on_forward = [&](int) {
    return ++calls == 2 ? absl::InternalError("device lost") : absl::OkStatus();
  };
  TableModel model(options);
  auto sequence = model.NewSequence(18);
  ASSERT_TRUE(sequence.ok());
  EXPECT_EQ(model.kv_free_tokens(), 2);
  EXPECT_EQ(model.NewSequence(3).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(model.NewSequence(19).status().code(),
            absl::StatusCode::kInvalidArgument);
  const std::vector<int32_t> tokens = {1, 2};
  EXPECT_TRUE(model.Forward({{sequence->get(), tokens, 1}}).ok());
  EXPECT_FALSE(model.Forward({{sequence->get(), tokens, 1}}).ok());
  EXPECT_EQ((*sequence)->length(), 2) << "a failed step changes nothing";
  (*sequence)->Truncate(1);
  EXPECT_EQ((*sequence)->length(), 1);
  sequence->reset();
  EXPECT_EQ(model.kv_free_tokens(), 20);
  EXPECT_EQ(model.num_sequences(), 0);
}

TEST(TableModelTest, ChecksAndCountsWhatIsSaidOfTheNextStep) {
  TableModelOptions options;
  options.draws_tokens = true;
  options.shows_hidden = true;
  TableModel model(options);
  const auto sequence = *model.NewSequence(4);
  const auto draw = [](int position) {
    return TokenDraw{3, position, 1.0f, 16};
  };
  int32_t token = 1;
  const auto step = [&](absl::optional<TokenDraw> next) {
    const std::vector<absl::optional<TokenDraw>> draws = {
        draw(sequence->length() + 1)};
    model.Forward({{sequence.get(), {&token, 1}, 1, draws, next}})
        .status()
        .IgnoreError();
    token = model.drawn_tokens()[0];
  };
  step(draw(2));
  EXPECT_DEATH(model.final_hidden(), "hidden states of a step with next draws");
  step(draw(3));
  EXPECT_EQ(model.queued_steps(), (model::QueuedSteps{1, 0}));
  token = (token + 1) % 16;
  step(draw(4));
  EXPECT_EQ(model.queued_steps(), (model::QueuedSteps{1, 1}));
  EXPECT_DEATH(step(draw(5)), "a next draw without room for its row");
  sequence->Truncate(1);
  EXPECT_DEATH(step(draw(4)), "a next draw for another position");
  EXPECT_DEATH(model.Forward({{sequence.get(), {&token, 1}, 1, {}, draw(3)}})
                   .status()
                   .IgnoreError(),
               "a next draw behind a row that is not drawn");
  step(absl::nullopt);
  EXPECT_EQ(model.queued_steps(), (model::QueuedSteps{1, 2}));
  EXPECT_EQ(model.final_hidden().size(), 16u);
}

}  // namespace
}  // namespace nacre::testing
