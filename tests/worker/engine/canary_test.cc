#include "worker/engine/canary.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "tests/testing/table_model.h"

namespace nacre::worker {
namespace {

using nacre::testing::TableModel;
using nacre::testing::TableModelOptions;

constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();

// Whether it finds that one logit of one of its rows is another one.
bool Notices(float other, size_t row, bool draws) {
  bool is_damaged = false;
  TableModelOptions options;
  options.draws_tokens = draws;
  options.on_row = [&](absl::Span<const int32_t> tokens,
                       std::vector<float>* logits) {
    if (is_damaged && tokens.size() == row) logits->back() = other;
  };
  TableModel model(options);
  Canary canary(&model);
  EXPECT_TRUE(*canary.Ask());
  EXPECT_TRUE(*canary.Ask());
  is_damaged = true;
  const bool notices = !*canary.Ask();
  EXPECT_EQ(*canary.Ask(), !notices);
  is_damaged = false;
  EXPECT_TRUE(*canary.Ask());
  EXPECT_EQ(model.num_sequences(), 0);
  EXPECT_EQ(model.most_shared(), 0);
  return notices;
}

TEST(CanaryTest, NoticesWhatIsNotAsItWas) {
  for (const bool draws : {false, true}) {
    for (const float other : {kNoNumber, 0.125f, 1e30f}) {
      EXPECT_TRUE(Notices(other, 16, draws)) << other;
    }
  }
  // The row before the last is drawn: what changes the token shows.
  for (const float other : {kNoNumber, 1e30f}) {
    EXPECT_TRUE(Notices(other, 15, true)) << other;
    EXPECT_FALSE(Notices(other, 15, false)) << other;
  }
}

TEST(CanaryTest, WhatIsNotSoundIsNotRemembered) {
  bool is_sound = false;
  TableModelOptions options;
  options.on_row = [&](absl::Span<const int32_t>, std::vector<float>* logits) {
    if (!is_sound) logits->front() = kNoNumber;
  };
  TableModel model(options);
  Canary canary(&model);
  EXPECT_FALSE(*canary.Ask());
  is_sound = true;
  EXPECT_TRUE(*canary.Ask());
}

TEST(CanaryTest, ADrawThatIsNotSoundIsNotRememberedEither) {
  bool is_sound = false;
  TableModelOptions options;
  options.draws_tokens = true;
  // The row that is drawn, and no other.
  options.on_row = [&](absl::Span<const int32_t> tokens,
                       std::vector<float>* logits) {
    if (!is_sound && tokens.size() == 15) logits->back() = kNoNumber;
  };
  TableModel model(options);
  Canary canary(&model);
  EXPECT_FALSE(*canary.Ask());
  EXPECT_FALSE(*canary.Ask());
  is_sound = true;
  EXPECT_TRUE(*canary.Ask());
}

TEST(CanaryTest, KeepsToASmallModel) {
  for (const int room : {1, 2, 5}) {
    for (const bool draws : {false, true}) {
      TableModelOptions options;
      options.vocab_size = 3;
      options.draws_tokens = draws;
      options.context_length = room;
      TableModel of_context(options);
      EXPECT_TRUE(*Canary(&of_context).Ask());
      EXPECT_EQ(of_context.num_rows(), room);
      options.context_length = 100;
      options.kv_capacity_tokens = room;
      TableModel of_kv(options);
      EXPECT_TRUE(*Canary(&of_kv).Ask());
      EXPECT_EQ(of_kv.num_rows(), room);
    }
  }
}

TEST(CanaryTest, PassesOnWhyItCouldNotAsk) {
  TableModelOptions options;
  options.kv_capacity_tokens = 16;
  options.on_forward = [](int) { return absl::InternalError("no device"); };
  TableModel model(options);
  EXPECT_EQ(Canary(&model).Ask().status().message(), "no device");
  const auto all = model.NewSequence(16);
  EXPECT_EQ(Canary(&model).Ask().status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(CanaryTest, AsksNoMoreThanItNeeds) {
  const TableModelOptions options;
  TableModel model(options);
  EXPECT_TRUE(*Canary(&model).Ask());
  EXPECT_EQ(model.num_rows(), 16);
}

}  // namespace
}  // namespace nacre::worker
