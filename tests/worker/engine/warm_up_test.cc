#include "worker/engine/warm_up.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "kernels/backend_factory.h"
#include "model/load_model.h"
#include "model/remote_eagle.h"
#include "tests/testing/table_model.h"
#include "tests/worker/damaged_draft.h"

namespace nacre::worker {
namespace {

using nacre::testing::TableModel;
using nacre::testing::TableModelOptions;

TEST(WarmUpTest, GivesTheShortestTimeOfEachNumberOfRows) {
  int64_t now_ns = 0;
  int count = 0;
  TableModelOptions options;
  options.on_forward = [&](int rows) {
    // Every other sample is an outlier.
    now_ns += count++ % 2 == 1 ? 1'000'000 : 100 * rows;
    return absl::OkStatus();
  };
  TableModel model(options);
  const auto times = WarmUp(&model, [&] { return now_ns; });
  ASSERT_TRUE(times.ok());
  ASSERT_EQ(times->size(), 5u);
  int rows = 1;
  for (const StepTime& time : *times) {
    EXPECT_EQ(time.rows, rows);
    EXPECT_EQ(time.duration_ns, 100 * rows);
    rows *= 2;
  }
  EXPECT_EQ(model.num_sequences(), 0);
}

TEST(WarmUpTest, MeasuresStepsWithoutLogitsWhereTheModelDraws) {
  TableModelOptions options;
  options.draws_tokens = true;
  TableModel model(options);
  ASSERT_EQ(WarmUp(&model, MonotonicNowNs)->size(), 5u);
  EXPECT_EQ(model.num_logit_rows(), 16);  // that must be numbers
  EXPECT_EQ(model.num_draws(), 5 * (1 + 2 + 4 + 8 + 16));
}

// A draft's that grows trees: a chain's token is drawn where its logits are,
// rows beside it are ranked by the host.
TEST(WarmUpTest, MeasuresRankedRowsWithTheirLogits) {
  TableModelOptions options;
  options.draws_tokens = true;
  TableModel model(options);
  ASSERT_EQ(WarmUp(&model, MonotonicNowNs, RowUse::kRanked)->size(), 5u);
  EXPECT_EQ(model.num_logit_rows(), 16 + 5 * (2 + 4 + 8 + 16));
  EXPECT_EQ(model.num_draws(), 5);
}

TEST(WarmUpTest, RankedRowsOfAModelOfTheHostAreAsMany) {
  TableModel drawn({});
  ASSERT_EQ(WarmUp(&drawn, MonotonicNowNs)->size(), 5u);
  TableModel ranked({});
  const auto times = WarmUp(&ranked, MonotonicNowNs, RowUse::kRanked);
  ASSERT_EQ(times->size(), 5u);
  EXPECT_EQ(ranked.num_logit_rows(), drawn.num_logit_rows());
  EXPECT_EQ(ranked.num_sequences(), 0);
}

// It runs before the draft hears of a target, whose keys only serving brings.
TEST(WarmUpTest, RefusesCrossAttentionThatGivesNoNumbers) {
  const auto warmed = [](const std::string& folder) {
    kernels::BackendOptions options;
    options.kind = "cpu";
    const auto backend = *kernels::CreateBackend(options);
    const auto model = model::LoadModel(folder, backend.get(),
                                        {.kv_cache_bytes = int64_t{1} << 20});
    EXPECT_TRUE(model.ok()) << model.status();
    return WarmUp(model->get(), MonotonicNowNs).status();
  };
  const std::string glide = NACRE_MODELS "/glide";
  EXPECT_TRUE(warmed(glide).ok());
  for (const char* end :
       {"cross_attn.q_proj.weight", "cross_attn.o_proj.weight"}) {
    ForEachDamage(glide, end, [&](const std::string& folder) {
      const absl::Status status = warmed(folder);
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
      EXPECT_THAT(std::string(status.message()),
                  ::testing::HasSubstr("the first forward gave no numbers"));
    });
  }
}

TEST(WarmUpTest, KeepsToASmallContext) {
  TableModelOptions options;
  options.context_length = 5;
  TableModel model(options);
  EXPECT_EQ(WarmUp(&model, MonotonicNowNs)->size(), 3u);
}

TEST(WarmUpTest, PassesOnWhatTheDeviceSays) {
  TableModelOptions options;
  options.on_forward = [](int) { return absl::InternalError("no device"); };
  TableModel model(options);
  EXPECT_EQ(WarmUp(&model, MonotonicNowNs).status().message(), "no device");
}

TEST(WarmUpTest, LogitsThatAreNoNumbersEndTheStart) {
  for (const float scale : {std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
    TableModelOptions options;
    options.scale = scale;
    TableModel model(options);
    const absl::Status status = WarmUp(&model, MonotonicNowNs).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << scale;
    EXPECT_THAT(std::string(status.message()),
                ::testing::HasSubstr(
                    "the first forward gave no numbers: row 0, token id "));
    EXPECT_EQ(model.num_forwards(), 1);
  }
}

// Tokens that a draft never says, and a first token that it has no row for.
TEST(WarmUpTest, MeasuresAnEagleDraftOfFewTokens) {
  kernels::BackendOptions options;
  options.kind = "cpu";
  const auto backend = *kernels::CreateBackend(options);
  const std::string data = NACRE_TEST_DATA "/model/eagle/";
  const auto eagle =
      model::RemoteEagle::Load(data + "specforge", data + "target",
                               backend.get(), {.kv_cache_bytes = 1 << 18});
  ASSERT_TRUE(eagle.ok()) << eagle.status();
  int64_t now = 0;
  const auto times = WarmUp(
      eagle->get(), [&now] { return ++now; }, RowUse::kRanked);
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_EQ(times->size(), 5u);
}

}  // namespace
}  // namespace nacre::worker
