#include "model/paced_model.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "tests/testing/table_model.h"

namespace nacre::model {
namespace {

using nacre::testing::TableModel;
using nacre::testing::TableModelOptions;

// A model of 4 ms a forward, whatever its rows, on a clock of its own.
class PacedModelTest : public ::testing::Test {
 protected:
  std::unique_ptr<PacedModel> Make(StepTimes times) {
    TableModelOptions options;
    options.is_interruptible = true;
    options.on_forward = [this](int) {
      now_ns_ += 4'000'000;
      return absl::OkStatus();
    };
    auto model = std::make_unique<TableModel>(options);
    alone_ = model.get();
    return std::make_unique<PacedModel>(
        std::move(model), std::move(times),
        PacedModel::Clock{[this] { return now_ns_; },
                          [this](int64_t ns) { now_ns_ += ns; }});
  }
  // What a forward of so many rows takes, in ns.
  int64_t Forward(PacedModel& model, int rows) {
    const auto sequence = *model.NewSequence(rows);
    const std::vector<int32_t> ids(static_cast<size_t>(rows), 3);
    const int64_t start_ns = now_ns_;
    const SequenceRows one = {
        .sequence = sequence.get(), .token_ids = ids, .num_logits = 1};
    const auto logits = model.Forward({&one, 1});
    EXPECT_TRUE(logits.ok()) << logits.status();
    EXPECT_EQ(std::vector<float>(logits->begin(), logits->end()),
              alone_->Logits(ids));
    return now_ns_ - start_ns;
  }

  int64_t now_ns_ = 1;
  TableModel* alone_ = nullptr;
};

TEST_F(PacedModelTest, AForwardTakesTheTimeOfItsRows) {
  const auto model = Make(StepTimes({{1, 30e6}, {8, 37e6}}));
  EXPECT_EQ(Forward(*model, 1), 30'000'000);
  EXPECT_EQ(Forward(*model, 3), 32'000'000);
  EXPECT_EQ(Forward(*model, 9), 38'000'000);
}

TEST_F(PacedModelTest, AForwardThatIsSlowerWaitsForNothing) {
  const auto model = Make(StepTimes::Flat(1e6));
  EXPECT_EQ(Forward(*model, 1), 4'000'000);
}

TEST_F(PacedModelTest, AnInterruptAbandonsAForwardThatWaits) {
  const auto model = Make(StepTimes::Flat(30e6));
  Forward(*model, 1);  // it is known then how long that computes
  const int64_t start_ns = now_ns_;
  model->SetInterrupt([&] { return now_ns_ >= start_ns + 10'000'000; });
  const auto sequence = *model->NewSequence(1);
  const std::vector<int32_t> ids = {3};
  const SequenceRows one = {
      .sequence = sequence.get(), .token_ids = ids, .num_logits = 1};
  const int64_t forwards = alone_->num_forwards();
  EXPECT_TRUE(absl::IsAborted(model->Forward({&one, 1}).status()));
  // Noticed within a quarter of a millisecond, before anything was computed.
  EXPECT_LE(now_ns_, start_ns + 10'250'000);
  EXPECT_EQ(alone_->num_forwards(), forwards);
  EXPECT_EQ(sequence->length(), 0);
}

TEST_F(PacedModelTest, NothingWaitsOnceItIsStopped) {
  const auto model = Make(StepTimes::Flat(30e6));
  model->StopWaiting();
  EXPECT_EQ(Forward(*model, 1), 4'000'000);
}

TEST_F(PacedModelTest, WaitingIsProgress) {
  const auto model = Make(StepTimes::Flat(30e6));
  const uint64_t before = model->forward_progress();
  Forward(*model, 1);
  EXPECT_GT(model->forward_progress(), before);
}

TEST_F(PacedModelTest, ItsDescriptionSaysSo) {
  EXPECT_EQ(Make(StepTimes({{1, 30e6}, {8, 30.5e6}}))->info().description,
            "table model of the tests, paced to 1:30,8:30.5 ms");
}

}  // namespace
}  // namespace nacre::model
