// What engines make of it: tests/{target,draft}_worker/soundness_test.cc.

#include "worker/engine/soundness.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "tests/testing/table_model.h"

namespace nacre::worker {
namespace {

using nacre::testing::TableModel;
using nacre::testing::TableModelOptions;

EngineStats StatsOf(const Soundness& soundness) {
  EngineStats stats;
  soundness.FillStats(&stats);
  return stats;
}

TEST(SoundnessTest, CountsSessionsAndStepsInARow) {
  TableModelOptions options;
  options.on_row = [](absl::Span<const int32_t>, std::vector<float>* row) {
    row->assign(row->size(), std::numeric_limits<float>::quiet_NaN());
  };
  TableModel model(options);
  Soundness soundness(&model);
  const auto step = [&soundness](int sound, int unsound) {
    for (int i = 0; i < sound; ++i) soundness.Add(true);
    for (int i = 0; i < unsound; ++i) soundness.Add(false);
    soundness.EndStep();
    EXPECT_TRUE(soundness.Judge().ok());
    return StatsOf(soundness).computes_wrongly;
  };
  EXPECT_FALSE(step(0, 9));
  EXPECT_FALSE(step(0, 1));
  EXPECT_FALSE(step(1, 7));  // not in all sessions
  EXPECT_FALSE(step(0, 1));
  EXPECT_FALSE(step(0, 0));  // a step that looked at nothing
  EXPECT_FALSE(step(0, 1));
  EXPECT_TRUE(step(0, 1));
  EXPECT_TRUE(step(5, 0));  // for good
  EXPECT_EQ(StatsOf(soundness).nonfinite_logits, 20u);
  EXPECT_EQ(model.num_forwards(), 1);  // it was asked once
}

// One of a device whose state the test sets, after some unsound steps.
class SuspectTest : public ::testing::Test {
 protected:
  static constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

  SuspectTest() {
    TableModelOptions options;
    options.kv_capacity_tokens = 20;
    options.on_row = [this](absl::Span<const int32_t>,
                            std::vector<float>* row) {
      if (damage_.has_value()) (*row)[3] = *damage_;
    };
    options.on_forward = [this](int) { return device_; };
    model_ = std::make_unique<TableModel>(std::move(options));
    soundness_ = std::make_unique<Soundness>(model_.get());
  }

  absl::Status RunUnsoundSteps(int count) {
    for (int i = 0; i < count; ++i) {
      soundness_->Add(false);
      soundness_->EndStep();
      if (absl::Status status = soundness_->Judge(); !status.ok()) {
        return status;
      }
    }
    return absl::OkStatus();
  }
  bool ComputesWrongly() const { return StatsOf(*soundness_).computes_wrongly; }

  absl::optional<float> damage_;  // of one logit of each row
  absl::Status device_;
  std::unique_ptr<TableModel> model_;
  std::unique_ptr<Soundness> soundness_;
};

TEST_F(SuspectTest, ADeviceThatIsWellIsNotToBlame) {
  EXPECT_TRUE(soundness_->Remember().ok());
  EXPECT_TRUE(RunUnsoundSteps(100 * Soundness::kMaxUnsoundSteps).ok());
  EXPECT_FALSE(ComputesWrongly());
  EXPECT_EQ(model_->num_forwards(), 1 + 100);
  EXPECT_EQ(model_->num_sequences(), 0);
  EXPECT_EQ(model_->most_shared(), 0);
}

// NaN, and numbers, but others than at the start.
TEST_F(SuspectTest, ADeviceThatGivesOtherLogitsIs) {
  for (const float damage : {kNaN, 1.25f}) {
    damage_.reset();
    soundness_ = std::make_unique<Soundness>(model_.get());
    EXPECT_TRUE(soundness_->Remember().ok());
    damage_ = damage;
    EXPECT_TRUE(RunUnsoundSteps(Soundness::kMaxUnsoundSteps - 1).ok());
    EXPECT_FALSE(ComputesWrongly());
    EXPECT_TRUE(RunUnsoundSteps(1).ok());
    EXPECT_TRUE(ComputesWrongly());
    damage_.reset();
    EXPECT_TRUE(RunUnsoundSteps(Soundness::kMaxUnsoundSteps).ok());
    EXPECT_TRUE(ComputesWrongly());  // for good
  }
}

TEST_F(SuspectTest, ItIsAskedLaterWhereThereIsNoRoom) {
  EXPECT_TRUE(soundness_->Remember().ok());
  damage_ = kNaN;
  auto all = model_->NewSequence(20);
  EXPECT_TRUE(RunUnsoundSteps(Soundness::kMaxUnsoundSteps).ok());
  EXPECT_FALSE(ComputesWrongly());
  all->reset();
  EXPECT_TRUE(RunUnsoundSteps(1).ok());
  EXPECT_TRUE(ComputesWrongly());
}

TEST_F(SuspectTest, WhatTheDeviceSaysIsPassedOn) {
  device_ = absl::InternalError("no device");
  EXPECT_EQ(soundness_->Remember().message(), "no device");
  EXPECT_EQ(RunUnsoundSteps(Soundness::kMaxUnsoundSteps).message(),
            "no device");
}

TEST_F(SuspectTest, ADeviceThatIsNotWellAtTheStartIsNotRemembered) {
  damage_ = kNaN;
  EXPECT_EQ(soundness_->Remember().code(), absl::StatusCode::kDataLoss);
}

TEST(SoundnessTest, TheErrorSaysWhere) {
  const absl::Status status = UnsoundLogits(17);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_NE(std::string(status.message()).find("after 17 tokens"),
            std::string::npos);
}

}  // namespace
}  // namespace nacre::worker
